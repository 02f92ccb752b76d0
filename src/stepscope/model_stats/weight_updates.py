"""Measures by how much an optimizer step changes the weights, on a sample of them taken before and after."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import LayerSums, Norms, plain, tensor_norms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

MAX_ELEMENTS = 4096
"""Of each parameter so many elements are compared: norms from them are right to a few per cent."""


@dataclass(frozen=True)
class Updates:
    """How far one step went."""

    names: tuple[str, ...]
    ratios: Any
    """The norm of the change over that of the weights: of all, then of each layer of `names`."""

    weights: Any
    """The norm of the weights: of all, then of each layer."""


@dataclass(frozen=True)
class _Group:
    """Sampled elements of parameters of one device and type, one after another, in float32 at least."""

    places: list[int]
    sizes: list[int]
    elements: Any


class WeightSample:
    """Elements of parameters as they were at one moment; a copy of all takes a model's memory."""

    def __init__(self, torch: ModuleType, sums: LayerSums, places: Iterable[int], start: float) -> None:
        """Takes evenly spaced elements, beginning at a share of the spacing that is drawn anew each time."""
        self._torch, self._sums, self._start = torch, sums, start
        self._places = tuple(places)
        self._growth: dict[int, float] = {}
        self._before = self._taken()

    def compare(self) -> Updates:
        """Compares with the parameters as they are now."""
        now = self._taken()
        change = self._norms([_change(one, other) for one, other in zip(self._before, now, strict=True)])
        before, after = self._norms(self._before), self._norms(now)
        # What moved at all moved from somewhere or to somewhere: this is never a division by zero.
        largest = self._torch.maximum(before.values, after.values)
        ratios = change.values / largest.clamp_min(self._torch.finfo(largest.dtype).tiny)
        return Updates(change.names, self._without_count(ratios), self._without_count(after.values))

    def _taken(self) -> list[_Group]:
        """Copies the sample, by one call for each device and type."""
        torch, parameters = self._torch, self._sums.layers.parameters
        members: dict[tuple[Any, Any], list[tuple[int, Any]]] = {}
        for place in self._places:
            whole = plain(torch, parameters[place])
            view = thinned(whole, self._start)
            # The norm of a part, times this, is about the norm of the whole.
            self._growth[place] = math.sqrt(whole.numel() / len(view)) if len(view) else 1.0
            members.setdefault((view.device, view.dtype), []).append((place, view))
        groups = []
        for (_, dtype), some in members.items():
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            elements = torch.cat([view for _, view in some]).to(wide)
            groups.append(_Group([place for place, _ in some], [len(view) for _, view in some], elements))
        return groups

    def _norms(self, groups: list[_Group]) -> Norms:
        """Norms as they would be of all elements."""
        norms: dict[int, Any] = {}
        for group in groups:
            parts = dict(zip(group.places, group.elements.split(group.sizes), strict=True))
            found = list(tensor_norms(self._torch, parts).values())
            grown = self._torch._foreach_mul(found, [self._growth[place] for place in group.places])  # noqa: SLF001 - one call for all
            norms.update(zip(group.places, grown, strict=True))
        return self._sums.of(norms)

    def _without_count(self, values: Any) -> Any:
        return self._torch.cat([values[:1], values[2:]])


def _change(before: _Group, after: _Group) -> _Group:
    return _Group(before.places, before.sizes, after.elements - before.elements)


def thinned(tensor: Any, start: float) -> Any:
    """At most 4,096 elements of a tensor, evenly spaced, as a view where its elements lie without gaps."""
    if not tensor.is_contiguous():
        tensor = tensor.permute(sorted(range(tensor.dim()), key=lambda one: -tensor.stride(one)))
    flat = tensor.reshape(-1)
    # An odd spacing meets all columns of a matrix in turn; an even one would meet the same few.
    spacing = math.ceil(len(flat) / MAX_ELEMENTS) | 1 if len(flat) > MAX_ELEMENTS else 1
    return flat[int(start * spacing) :: spacing]
