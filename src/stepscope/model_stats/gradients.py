"""Computes norms of many tensors on their own devices: with a few fused calls, and without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from stepscope.model_stats.layers import Layers

MAX_KEPT = 16
"""Number of cached plans; they are cleared for a model whose set of gradients keeps changing."""


@dataclass(frozen=True)
class Norms:
    """Norms of a model, on one device.

    `values` holds the total norm, the number of tensors with a non-finite element, and the norm of each layer
    of `names`, which lists the layers that had a tensor.
    """

    names: tuple[str, ...]
    values: Any


def tensor_norms(torch: ModuleType, tensors: Mapping[int, Any]) -> dict[int, Any]:
    """The L2 norm of each tensor as a zero-dimensional tensor, with fused calls for each device and type.

    Squares are summed in at least float32. A norm is non-finite only if an element is, or if elements beyond
    1e19 made the sum of their squares overflow.
    """
    groups: dict[tuple[Any, Any], list[tuple[int, Any]]] = {}
    strided, ordinary = torch.strided, torch.Tensor
    for index, tensor in tensors.items():
        is_plain = type(tensor) is ordinary and tensor.layout is strided and not tensor.is_complex()
        dense = tensor if is_plain else plain(torch, tensor)
        groups.setdefault((dense.device, dense.dtype), []).append((index, dense))
    norms: dict[int, Any] = {}
    for (_, dtype), members in groups.items():
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        fused = _fused_norms(torch, [tensor for _, tensor in members], wide)
        norms.update(zip([index for index, _ in members], fused, strict=True))
    return norms


@dataclass(frozen=True)
class _Plan:
    """How the norms of a set of parameters are added up: for which layers, and on which devices."""

    names: tuple[str, ...]
    device: Any
    groups: tuple[tuple[list[int], Any], ...]
    """Parameter indices, and for each the row of its layer as a tensor on their device."""


class LayerSums:
    """Combines the norms of tensors, by layer and in total."""

    def __init__(self, torch: ModuleType, layers: Layers) -> None:
        self._torch, self.layers = torch, layers
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def of(self, norms: Mapping[int, Any]) -> Norms:
        """Adds up norms by parameter index; there must be at least one."""
        torch = self._torch
        plan = self._plan(norms)
        total: Any = None
        bad: Any = None
        for indices, rows in plan.groups:
            stacked = torch.stack([norms[index] for index in indices]).to(widest(torch, rows.device))
            squares = stacked.new_zeros(len(plan.names)).index_add_(0, rows, stacked.square())
            nonfinite = stacked.isfinite().logical_not().sum().to(stacked.dtype)
            total = _added(total, to_device(squares, plan.device))
            bad = _added(bad, to_device(nonfinite, plan.device))
        totals = torch.stack([total.sum().sqrt(), bad])
        return Norms(plan.names, torch.cat([totals, total.sqrt()]))

    def _plan(self, norms: Mapping[int, Any]) -> _Plan:
        """The plan for these norms; cached, because mostly the same parameters have gradients."""
        first = next(iter(norms.values()))
        key = (first.device, first.dtype, *norms)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_KEPT:
                self._plans.clear()
            plan = self._plans[key] = self._planned(norms)
        return plan

    def _planned(self, norms: Mapping[int, Any]) -> _Plan:
        layer_of = self.layers.layer_of
        present = sorted({layer_of[index] for index in norms})
        row_of = {layer: row for row, layer in enumerate(present)}
        by_type: dict[tuple[Any, Any], list[int]] = {}
        for index, norm in norms.items():
            by_type.setdefault((norm.device, norm.dtype), []).append(index)
        target = next((device for device, _ in by_type if device.type != "cpu"), next(iter(by_type))[0])
        groups = tuple(
            (indices, to_device(self._torch.tensor([row_of[layer_of[index]] for index in indices]), device))
            for (device, _), indices in by_type.items()
        )
        return _Plan(tuple(self.layers.names[layer] for layer in present), target, groups)


def plain(torch: ModuleType, tensor: Any) -> Any:
    """The real, dense numbers of a tensor; of a sharded one, those of the local shard."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        # Gathering the whole needs all ranks, and not every rank samples this step.
        tensor = tensor.to_local()
    if tensor.layout == torch.sparse_coo:
        tensor = _summed_rows(torch, tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def widest(torch: ModuleType, device: Any) -> Any:
    """The number type for sums: squares of small norms would underflow in a smaller one."""
    return torch.float32 if device.type == "mps" else torch.float64


def to_device(tensor: Any, device: Any) -> Any:
    """Copies a small tensor to a device without waiting; from the host through pinned memory."""
    if tensor.device == device:
        return tensor
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type != "cpu")


def _summed_rows(torch: ModuleType, sparse: Any) -> Any:
    """Values of a sparse tensor, summed where an index occurs twice.

    `coalesce` would wait for the GPU to know the number of rows. Here the number of rows stays the same, and
    rows that were added to others are zero.
    """
    if sparse.is_coalesced():
        return sparse.values()
    indices, values = sparse._indices(), sparse._values()  # noqa: SLF001 - the public ones require a coalesced tensor
    if values.shape[0] == 0:
        return values
    flat = indices[0]
    for dimension in range(1, indices.shape[0]):
        flat = flat * sparse.shape[dimension] + indices[dimension]
    ordered, order = flat.sort()
    is_new = torch.cat([ordered[:1] != ordered[:1], ordered[1:] != ordered[:-1]])
    return torch.zeros_like(values).index_add_(0, is_new.cumsum(0), values[order])


def _fused_norms(torch: ModuleType, tensors: Sequence[Any], wide: Any) -> Sequence[Any]:
    norm = torch._foreach_norm  # noqa: SLF001 - torch's own clipping calls it; it has no public name
    try:
        norms: Sequence[Any] = norm(tensors, 2, dtype=wide)
    except TypeError:  # older than torch 2.4
        norms = norm([tensor.to(wide) for tensor in tensors], 2)
    return norms


def _added(total: Any, part: Any) -> Any:
    return part if total is None else total + part
