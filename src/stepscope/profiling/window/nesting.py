"""Computes the self time and memory of each operator from the nesting of spans."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepscope.profiling.window.events import Allocation, Span, Timeline

_LIBRARY = ("torch", "<", "nn.Module:")
"""Prefixes of functions that are not user code."""


class OperatorCall(NamedTuple):
    """A call of an operator, without the operators it called."""

    span: Span
    own_ns: int
    own_bytes: int
    """Memory it allocated minus the memory it freed."""
    place: str
    """The user's function that called it; empty if stacks were not recorded."""
    is_outermost: bool


def operator_calls(timeline: Timeline) -> Iterator[OperatorCall]:
    """Yields every operator call on the host with its self time and memory, thread by thread."""
    # Of spans with the same start, the longest is the outer one.
    ordered = sorted(timeline.operators, key=lambda span: (span.thread, span.start_ns, -span.end_ns))
    for thread, spans in groupby(ordered, key=lambda span: span.thread):
        functions = sorted(span for span in timeline.functions if span.thread == thread)
        allocations = sorted(allocation for allocation in timeline.allocations if allocation.thread == thread)
        yield from _CallStack(_UserFunctions(functions), allocations).parts(spans)


class _OpenCall:
    """An operator in progress."""

    __slots__ = ("count_bytes", "inside_ns", "place", "span")

    def __init__(self, span: Span, place: str) -> None:
        self.span, self.place = span, place
        self.inside_ns = self.count_bytes = 0


class _CallStack:
    """The operators of one thread, processed in order of their start."""

    def __init__(self, user_functions: _UserFunctions, allocations: list[Allocation]) -> None:
        self._functions = user_functions
        self._allocations = iter(allocations)
        self._next_allocation = next(self._allocations, None)
        self._open: list[_OpenCall] = []

    def parts(self, spans: Iterable[Span]) -> Iterator[OperatorCall]:
        """Yields each operator once a later one shows that it has ended."""
        for span in spans:
            yield from self._until(span.start_ns)
            self._open.append(_OpenCall(span, self._functions.at(span.start_ns)))
        yield from self._until(None)

    def _until(self, time_ns: int | None) -> Iterator[OperatorCall]:
        """Ends the operators that are over at a time; None means all."""
        while self._open and (time_ns is None or self._open[-1].span.end_ns <= time_ns):
            self._allocate(self._open[-1].span.end_ns)
            yield self._close()
        if time_ns is not None:
            self._allocate(time_ns)

    def _allocate(self, until_ns: int) -> None:
        """Adds the memory allocated before a time to the innermost operator."""
        while self._next_allocation is not None and self._next_allocation.time_ns < until_ns:
            if self._open:
                self._open[-1].count_bytes += self._next_allocation.count_bytes
            self._next_allocation = next(self._allocations, None)

    def _close(self) -> OperatorCall:
        done = self._open.pop()
        took_ns = done.span.end_ns - done.span.start_ns
        if self._open:
            self._open[-1].inside_ns += took_ns
        own_ns = max(took_ns - done.inside_ns, 0)
        return OperatorCall(done.span, own_ns, done.count_bytes, done.place, not self._open)


class _UserFunctions:
    """Finds the user's function running at a time; times must be passed in order."""

    def __init__(self, functions: list[Span]) -> None:
        self._functions = iter(functions)
        self._next = next(self._functions, None)
        self._open: list[tuple[int, str]] = []

    def at(self, time_ns: int) -> str:
        """The innermost user function at a time; empty if there is none."""
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
    """Whether a function belongs neither to torch nor to Python; its name begins with its file."""
    if name.startswith(_LIBRARY):
        return False
    return name.partition("/")[0].partition(".py(")[0] not in sys.stdlib_module_names
