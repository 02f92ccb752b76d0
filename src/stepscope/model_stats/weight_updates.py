"""Measures how much an optimizer step changes the weights, on a sample taken before and after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import LayerSums, Norms, plain, tensor_norms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

MAX_ELEMENTS = 4096
"""Elements compared per parameter: norms estimated from them are accurate to a few per cent."""


@dataclass(frozen=True)
class Updates:
    """The relative weight changes of one optimizer step."""

    names: tuple[str, ...]
    ratios: Any
    """The norm of the change divided by that of the weights: in total, then for each layer of `names`."""

    weights: Any
    """The norm of the weights: in total, then for each layer."""

    denormals: Any
    """The share of the weights on processors that are denormal, as a tensor; None if none are there."""


@dataclass(frozen=True)
class _Group:
    """Sampled elements of the parameters of one device and type, concatenated, in at least float32."""

    indices: list[int]
    sizes: list[int]
    elements: Any


class WeightSample:
    """A copy of some elements of each parameter; a copy of all would take as much memory as the model."""

    def __init__(self, torch: ModuleType, sums: LayerSums, indices: Iterable[int], start: float) -> None:
        """Copies evenly spaced elements; `start` (0 to 1) is the offset of the first within the spacing."""
        self._torch, self._sums, self._start = torch, sums, start
        self._indices = tuple(indices)
        self._norm_scale: dict[int, float] = {}
        self._before = self._sampled()

    def compare(self) -> Updates:
        """Compares the sample with the current parameters."""
        now = self._sampled()
        changes = [_change(before, after) for before, after in zip(self._before, now, strict=True)]
        change = self._norms(changes)
        before, after = self._norms(self._before), self._norms(now)
        # A weight that changed is non-zero before or after, so this never divides by zero.
        largest = self._torch.maximum(before.values, after.values)
        ratios = change.values / largest.clamp_min(self._torch.finfo(largest.dtype).tiny)
        return Updates(
            change.names,
            self._without_count(ratios),
            self._without_count(after.values),
            self._denormal_share(now),
        )

    def _denormal_share(self, groups: list[_Group]) -> Any:
        """Numbers so small that a processor computes with them in microcode; GPUs do not mind them."""
        torch, elements = self._torch, [group.elements for group in groups]
        parts = [part.abs() for part in elements if part.device.type == "cpu"]
        if not parts:
            return None
        small = sum(((part > 0) & (part < torch.finfo(part.dtype).tiny)).sum() for part in parts)
        return small / sum(part.numel() for part in parts)

    def _sampled(self) -> list[_Group]:
        """Copies the sample, with one call for each device and type."""
        torch, parameters = self._torch, self._sums.layers.parameters
        by_type: dict[tuple[Any, Any], list[tuple[int, Any]]] = {}
        for index in self._indices:
            full = plain(torch, parameters[index])
            view = thinned(full, self._start)
            # The norm of the sample, multiplied by this, estimates the norm of the whole.
            self._norm_scale[index] = math.sqrt(full.numel() / len(view)) if len(view) else 1.0
            by_type.setdefault((view.device, view.dtype), []).append((index, view))
        groups = []
        for (_, dtype), members in by_type.items():
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            elements = torch.cat([view for _, view in members]).to(wide)
            groups.append(
                _Group([index for index, _ in members], [len(view) for _, view in members], elements)
            )
        return groups

    def _norms(self, groups: list[_Group]) -> Norms:
        """Estimated norms of all elements."""
        norms: dict[int, Any] = {}
        for group in groups:
            parts = dict(zip(group.indices, group.elements.split(group.sizes), strict=True))
            sampled = list(tensor_norms(self._torch, parts).values())
            scales = [self._norm_scale[index] for index in group.indices]
            scaled = self._torch._foreach_mul(sampled, scales)  # noqa: SLF001 - one call for all
            norms.update(zip(group.indices, scaled, strict=True))
        return self._sums.of(norms)

    def _without_count(self, values: Any) -> Any:
        return self._torch.cat([values[:1], values[2:]])


def _change(before: _Group, after: _Group) -> _Group:
    return _Group(before.indices, before.sizes, after.elements - before.elements)


def thinned(tensor: Any, start: float) -> Any:
    """At most 4,096 evenly spaced elements of a tensor, as a view if its memory has no gaps."""
    if not tensor.is_contiguous():
        by_stride = sorted(range(tensor.dim()), key=lambda dimension: -tensor.stride(dimension))
        tensor = tensor.permute(by_stride)
    flat = tensor.reshape(-1)
    # An odd spacing samples all columns of a matrix in turn; an even one would always sample the same few.
    spacing = math.ceil(len(flat) / MAX_ELEMENTS) | 1 if len(flat) > MAX_ELEMENTS else 1
    return flat[int(start * spacing) :: spacing]
