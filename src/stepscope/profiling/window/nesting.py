"""Works out what each operator did itself, from how spans lie inside each other."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.profiling.window.events import Allocation, Span, Timeline

_LIBRARY = ("torch", "<", "nn.Module:")
"""How names of functions begin that the user did not write."""


class Own(NamedTuple):
    """A call of an operator, less the operators it called."""

    span: Span
    own_ns: int
    own_bytes: int
    """Memory it took, less what it gave back."""
    place: str
    """The function of the user's code that called it; empty where stacks were not recorded."""
    is_outermost: bool


def own_parts(timeline: Timeline) -> Iterator[Own]:
    """Every operator call on the host with its own time and memory, thread by thread."""
    # Of spans that begin together the longest is the outer one.
    ordered = sorted(timeline.operators, key=lambda span: (span.thread, span.start_ns, -span.end_ns))
    for thread, spans in groupby(ordered, key=lambda span: span.thread):
        functions = sorted(span for span in timeline.functions if span.thread == thread)
        allocations = sorted(one for one in timeline.allocations if one.thread == thread)
        yield from _Nest(_Places(functions), allocations).parts(spans)


class _Open:
    """An operator in progress."""

    __slots__ = ("count_bytes", "inside_ns", "place", "span")

    def __init__(self, span: Span, place: str) -> None:
        self.span, self.place = span, place
        self.inside_ns = self.count_bytes = 0


class _Nest:
    """The operators of one thread, read in the order they began."""

    def __init__(self, places: _Places, allocations: list[Allocation]) -> None:
        self._places = places
        self._allocations = iter(allocations)
        self._next_allocation = next(self._allocations, None)
        self._open: list[_Open] = []

    def parts(self, spans: Iterable[Span]) -> Iterator[Own]:
        """Each operator, when the next one shows that it is over."""
        for span in spans:
            yield from self._until(span.start_ns)
            self._open.append(_Open(span, self._places.at(span.start_ns)))
        yield from self._until(None)

    def _until(self, time_ns: int | None) -> Iterator[Own]:
        """Closes what is over at a moment; None is after everything."""
        while self._open and (time_ns is None or self._open[-1].span.end_ns <= time_ns):
            self._allocate(self._open[-1].span.end_ns)
            yield self._close()
        if time_ns is not None:
            self._allocate(time_ns)

    def _allocate(self, until_ns: int) -> None:
        """Gives the memory taken before a moment to the innermost operator."""
        while self._next_allocation is not None and self._next_allocation.time_ns < until_ns:
            if self._open:
                self._open[-1].count_bytes += self._next_allocation.count_bytes
            self._next_allocation = next(self._allocations, None)

    def _close(self) -> Own:
        done = self._open.pop()
        took_ns = done.span.end_ns - done.span.start_ns
        if self._open:
            self._open[-1].inside_ns += took_ns
        own_ns = max(took_ns - done.inside_ns, 0)
        return Own(done.span, own_ns, done.count_bytes, done.place, not self._open)


class _Places:
    """The user's function in progress at a moment; moments are asked for in order."""

    def __init__(self, functions: list[Span]) -> None:
        self._functions = iter(functions)
        self._next = next(self._functions, None)
        self._open: list[tuple[int, str]] = []

    def at(self, time_ns: int) -> str:
        """The innermost function of the user's; empty when there is none."""
        while self._next is not None and self._next.start_ns <= time_ns:
            self._leave(self._next.start_ns)
            outer = self._open[-1][1] if self._open else ""
            name = self._next.name
            self._open.append((self._next.end_ns, name if _is_users(name) else outer))
            self._next = next(self._functions, None)
        self._leave(time_ns)
        return self._open[-1][1] if self._open else ""

    def _leave(self, time_ns: int) -> None:
        while self._open and self._open[-1][0] <= time_ns:
            self._open.pop()


def _is_users(name: str) -> bool:
    """Whether a function is neither torch's nor Python's; its name begins with its file."""
    if name.startswith(_LIBRARY):
        return False
    return name.partition("/")[0].partition(".py(")[0] not in sys.stdlib_module_names
