"""Ranks operations by the time they took themselves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.profiling.plain import Described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.profiling.window.events import DeviceSpan, Span
    from stepscope.profiling.window.nesting import Own

NANOSECONDS = 1e-9


@dataclass(frozen=True)
class Operation(Described):
    """All calls of one operation in a window."""

    name: str
    calls: int
    self_seconds: float
    """Time in the operation itself, without the operations it called."""
    share_ratio: float
    """That time against the time of all operations of its kind."""
    shapes: str | None = None
    """The shapes of inputs that took most of it; None where they were not recorded."""
    place: str | None = None
    """The user's function that most of it was called from; None where stacks were not recorded."""
    memory_bytes: int | None = None
    """Memory it took less what it gave back; None where memory was not recorded."""


class _Sum:
    """What adds up to an operation."""

    def __init__(self) -> None:
        self.calls = self.own_ns = self.count_bytes = 0
        self.shapes: defaultdict[str, int] = defaultdict(int)
        self.places: defaultdict[str, int] = defaultdict(int)

    def add(self, own_ns: int) -> None:
        self.calls += 1
        self.own_ns += own_ns


def on_the_host(parts: Iterable[Own], top: int, *, with_memory: bool) -> tuple[Operation, ...]:
    """The operators that took most of the host's time, over all its threads."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for part in parts:
        one = sums[part.span.name]
        one.add(part.own_ns)
        one.count_bytes += part.own_bytes
        if part.span.shapes:
            one.shapes[part.span.shapes] += part.own_ns
        if part.place:
            one.places[part.place] += part.own_ns
    return _ranked(sums, top, with_memory=with_memory)


def on_the_device(spans: Iterable[DeviceSpan], operators: Iterable[Span], top: int) -> tuple[Operation, ...]:
    """The operators whose kernels and copies took most of the device's time."""
    names = {span.id: span.name for span in operators if span.id}
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for span in spans:
        sums[names.get(span.begun_by, span.name)].add(span.end_ns - span.start_ns)
    return _ranked(sums, top)


def kernels(spans: Iterable[DeviceSpan], top: int) -> tuple[Operation, ...]:
    """The kernels and copies that took most of the device's time, by their own names."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for span in spans:
        sums[span.name].add(span.end_ns - span.start_ns)
    return _ranked(sums, top)


def _ranked(sums: dict[str, _Sum], top: int, *, with_memory: bool = False) -> tuple[Operation, ...]:
    total_ns = sum(one.own_ns for one in sums.values())
    largest = sorted(sums.items(), key=lambda item: (-item[1].own_ns, item[0]))[:top]
    return tuple(
        Operation(
            name,
            one.calls,
            one.own_ns * NANOSECONDS,
            one.own_ns / total_ns if total_ns else 0.0,
            _most(one.shapes),
            _most(one.places),
            one.count_bytes if with_memory else None,
        )
        for name, one in largest
    )


def _most(times: dict[str, int]) -> str | None:
    return max(times, key=lambda name: times[name]) if times else None
