"""Computes norms of many tensors where they lie: a few fused calls, whatever their kind, and no waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from stepscope.model_stats.layers import Layers

MAX_KEPT = 16
"""So many sets of parameters are remembered; a model that changes them all the time is read anew."""


@dataclass(frozen=True)
class Norms:
    """Norms of a model, on one device.

    `values` holds the norm of all, the number of tensors with an element that is not finite, and the norm of
    each layer of `names`: those that had a tensor at all.
    """

    names: tuple[str, ...]
    values: Any


def tensor_norms(torch: ModuleType, tensors: Mapping[int, Any]) -> dict[int, Any]:
    """The L2 norm of each tensor as a tensor of no dimension, by fused calls for each device and type.

    Squares are summed in float32 at least. A norm is not finite exactly when an element is not, or when
    elements beyond 1e19 made the sum of their squares overflow.
    """
    groups: dict[tuple[Any, Any], list[tuple[int, Any]]] = {}
    strided, ordinary = torch.strided, torch.Tensor
    for place, tensor in tensors.items():
        is_plain = type(tensor) is ordinary and tensor.layout is strided and not tensor.is_complex()
        dense = tensor if is_plain else plain(torch, tensor)
        groups.setdefault((dense.device, dense.dtype), []).append((place, dense))
    norms: dict[int, Any] = {}
    for (_, dtype), members in groups.items():
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        found = _fused(torch, [tensor for _, tensor in members], wide)
        norms.update(zip([place for place, _ in members], found, strict=True))
    return norms


@dataclass(frozen=True)
class _Plan:
    """How norms at certain places are added up: to which layers, and on which devices."""

    names: tuple[str, ...]
    home: Any
    groups: tuple[tuple[list[int], Any], ...]
    """Places, and for each the row of its layer, a tensor on their device."""


class LayerSums:
    """Puts the norms of tensors together, by layer and as a whole."""

    def __init__(self, torch: ModuleType, layers: Layers) -> None:
        self._torch, self.layers = torch, layers
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def of(self, norms: Mapping[int, Any]) -> Norms:
        """Adds up the norms of the parameters at these places, of which there must be one."""
        torch = self._torch
        plan = self._plan(norms)
        total: Any = None
        bad: Any = None
        for places, rows in plan.groups:
            found = torch.stack([norms[place] for place in places]).to(widest(torch, rows.device))
            squares = found.new_zeros(len(plan.names)).index_add_(0, rows, found.square())
            wrong = found.isfinite().logical_not().sum().to(found.dtype)
            total = _added(total, to_device(squares, plan.home))
            bad = _added(bad, to_device(wrong, plan.home))
        whole = torch.stack([total.sum().sqrt(), bad])
        return Norms(plan.names, torch.cat([whole, total.sqrt()]))

    def _plan(self, norms: Mapping[int, Any]) -> _Plan:
        """Mostly the same parameters have gradients, in the same place."""
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
        present = sorted({layer_of[place] for place in norms})
        row = {layer: at for at, layer in enumerate(present)}
        places: dict[tuple[Any, Any], list[int]] = {}
        for place, norm in norms.items():
            places.setdefault((norm.device, norm.dtype), []).append(place)
        home = next((device for device, _ in places if device.type != "cpu"), next(iter(places))[0])
        groups = tuple(
            (some, to_device(self._torch.tensor([row[layer_of[place]] for place in some]), device))
            for (device, _), some in places.items()
        )
        return _Plan(tuple(self.layers.names[layer] for layer in present), home, groups)


def plain(torch: ModuleType, tensor: Any) -> Any:
    """The real, dense numbers of a tensor: of a sharded one the part that is here."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        # The whole would take a message from every rank, and not every rank looks at this step.
        tensor = tensor.to_local()
    if tensor.layout == torch.sparse_coo:
        tensor = _summed_rows(torch, tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def widest(torch: ModuleType, device: Any) -> Any:
    """The type in which sums are kept: squares of small norms would be lost in less."""
    return torch.float32 if device.type == "mps" else torch.float64


def to_device(tensor: Any, device: Any) -> Any:
    """A small tensor on another device. From the host it goes by pinned memory: nobody waits for that."""
    if tensor.device == device:
        return tensor
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type != "cpu")


def _summed_rows(torch: ModuleType, sparse: Any) -> Any:
    """Values of a sparse tensor, summed where an index comes twice.

    `coalesce` would wait for the GPU to learn how many are left; here as many rows remain as there were, and
    those that were summed into others are zero.
    """
    if sparse.is_coalesced():
        return sparse.values()
    indices, values = sparse._indices(), sparse._values()  # noqa: SLF001 - the public ones want it coalesced
    if values.shape[0] == 0:
        return values
    flat = indices[0]
    for dimension in range(1, indices.shape[0]):
        flat = flat * sparse.shape[dimension] + indices[dimension]
    ordered, order = flat.sort()
    is_new = torch.cat([ordered[:1] != ordered[:1], ordered[1:] != ordered[:-1]])
    return torch.zeros_like(values).index_add_(0, is_new.cumsum(0), values[order])


def _fused(torch: ModuleType, tensors: Sequence[Any], wide: Any) -> Sequence[Any]:
    norm = torch._foreach_norm  # noqa: SLF001 - what torch's own clipping calls; it has no public name
    try:
        found: Sequence[Any] = norm(tensors, 2, dtype=wide)
    except TypeError:  # older than torch 2.4
        found = norm([tensor.to(wide) for tensor in tensors], 2)
    return found


def _added(total: Any, part: Any) -> Any:
    return part if total is None else total + part
