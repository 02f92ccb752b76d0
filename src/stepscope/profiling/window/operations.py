"""Ranks operations by their self time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.profiling.plain_data import Described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.profiling.window.events import DeviceSpan, Span
    from stepscope.profiling.window.nesting import OperatorCall

NANOSECONDS = 1e-9


@dataclass(frozen=True)
class Operation(Described):
    """All calls of one operation in a window."""

    name: str
    calls: int
    self_seconds: float
    """Time in the operation itself, without operations it called."""
    share_ratio: float
    """Self time divided by that of all operations of its kind."""
    shapes: str | None = None
    """The input shapes with the most self time; None if shapes were not recorded."""
    place: str | None = None
    """The user's function with the most self time; None if stacks were not recorded."""
    memory_bytes: int | None = None
    """Memory allocated minus memory freed; None if memory was not recorded."""


class _Sum:
    """The totals of an operation."""

    def __init__(self) -> None:
        self.calls = self.own_ns = self.count_bytes = 0
        self.shapes: defaultdict[str, int] = defaultdict(int)
        self.places: defaultdict[str, int] = defaultdict(int)

    def add(self, own_ns: int) -> None:
        self.calls += 1
        self.own_ns += own_ns


def host_operations(parts: Iterable[OperatorCall], top: int, *, with_memory: bool) -> tuple[Operation, ...]:
    """The operators with the most host time, over all threads."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for part in parts:
        total = sums[part.span.name]
        total.add(part.own_ns)
        total.count_bytes += part.own_bytes
        if part.span.shapes:
            total.shapes[part.span.shapes] += part.own_ns
        if part.place:
            total.places[part.place] += part.own_ns
    return _ranked(sums, top, with_memory=with_memory)


def device_operations(
    spans: Iterable[DeviceSpan], operators: Iterable[Span], top: int
) -> tuple[Operation, ...]:
    """The operators whose kernels and copies have the most device time."""
    names = {span.id: span.name for span in operators if span.id}
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for span in spans:
        sums[names.get(span.begun_by, span.name)].add(span.end_ns - span.start_ns)
    return _ranked(sums, top)


def kernels(spans: Iterable[DeviceSpan], top: int) -> tuple[Operation, ...]:
    """The kernels and copies with the most device time, by their own names."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for span in spans:
        sums[span.name].add(span.end_ns - span.start_ns)
    return _ranked(sums, top)


def _ranked(sums: dict[str, _Sum], top: int, *, with_memory: bool = False) -> tuple[Operation, ...]:
    total_ns = sum(total.own_ns for total in sums.values())
    largest = sorted(sums.items(), key=lambda item: (-item[1].own_ns, item[0]))[:top]
    return tuple(
        Operation(
            name,
            total.calls,
            total.own_ns * NANOSECONDS,
            total.own_ns / total_ns if total_ns else 0.0,
            _longest(total.shapes),
            _longest(total.places),
            total.count_bytes if with_memory else None,
        )
        for name, total in largest
    )


def _longest(times: dict[str, int]) -> str | None:
    return max(times, key=lambda name: times[name]) if times else None
