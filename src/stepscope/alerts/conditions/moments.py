"""Judges a condition as of every point that came since the last look, many of them at once.

A fast training logs hundreds of points between two looks. What they were like must not depend on when the
agent looked, so the condition is judged as if there had been a look after each of them.
"""

from __future__ import annotations

import operator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepscope.alerts.conditions.sliding import FAST, OF_ROWS, over_each
from stepscope.alerts.conditions.tree import (
    Arithmetic,
    Baseline,
    Comparison,
    Logic,
    Name,
    Negative,
    Not,
    Number,
    Of,
    StatusIs,
    Windowed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from stepscope.alerts.conditions.recent import Floats, Recent, Whole
    from stepscope.alerts.conditions.tree import Expression

    Flags = NDArray[np.bool_]

MAX_IN_ROWS = 16_000
"""So many values are sorted for one condition at one look; with more, every second or tenth window is."""

PARTS = 8
"""What cannot be worked out for all points at once is judged so often in each window of points."""

MAX_SINGLE = 64
"""And no more often than this at one look, as long as no window is passed over."""


class Truths(NamedTuple):
    """What a condition came to at some moments, oldest first; where it is neither, it is not known."""

    is_true: Flags
    is_false: Flags
    times_ns: Whole
    points: Whole
    """How many points the first metric of the condition had had by then."""
    ends: dict[Recent, Whole]
    """How many of the kept points of each series had come by then."""


class _Ends(NamedTuple):
    """Moments, by how many of the kept points of each series had come."""

    times_ns: Whole
    of: dict[Recent, Whole]
    status: str | None


class Moments:
    """A condition for one subject, as of the points that no rule has looked at yet."""

    def __init__(
        self,
        expression: Expression,
        recents: Sequence[Recent],
        find: Callable[[Name], Recent | None],
        is_true: Callable[[int, str | None], bool | None],
    ) -> None:
        """`is_true` judges the condition as the series are now."""
        self._expression, self._recents, self._find, self._is_true = expression, recents, find, is_true
        windowed = [part for part in _every(expression) if isinstance(part, Windowed)]
        slow = [one for one in windowed if not _is_fast(one)]
        self._slow_points = [one.window.points for one in slow if one.window and one.window.points]
        self._slow = {id(part) for part in _every(expression) if any(one in slow for one in _every(part))}
        """The parts that have to be worked out for one moment after the other."""
        self._row_points = sum(
            one.window.points
            for one in windowed
            if one.function in OF_ROWS and one.window and one.window.points
        )

    @property
    def are_several(self) -> bool:
        """Whether more has come than the newest point, which a look at the present judges anyway."""
        return any(recent.unjudged > 1 for recent in self._recents)

    def judge(self, status: str | None) -> Truths:
        """What the condition came to at each of them; the status is that of now."""
        ends = self._ends(status)
        ends = self._thinned(ends, 1 + len(ends.times_ns) * self._row_points // MAX_IN_ROWS)
        with np.errstate(all="ignore"):
            is_true, is_false = self._truth(self._expression, ends)
            if self._slow:
                is_true, is_false = self._one_by_one(ends, is_true)
        return Truths(is_true, is_false, ends.times_ns, self._points(ends), ends.of)

    def _ends(self, status: str | None) -> _Ends:
        if len(self._recents) == 1:
            (recent,) = self._recents
            at = np.arange(len(recent) - recent.unjudged + 1, len(recent) + 1)
            return _Ends(recent.times_ns[at - 1], {recent: at}, status)
        news = [recent.times_ns[len(recent) - recent.unjudged :] for recent in self._recents]
        times_ns = np.unique(np.concatenate(news))
        of = {recent: np.searchsorted(recent.times_ns, times_ns, "right") for recent in self._recents}
        return _Ends(times_ns, of, status)

    def _points(self, ends: _Ends) -> Whole:
        first = self._recents[0]
        return first.total - len(first) + ends.of[first]

    def _thinned(self, ends: _Ends, every: int) -> _Ends:
        at = _each(self._points(ends), every)
        return _Ends(ends.times_ns[at], {one: count[at] for one, count in ends.of.items()}, ends.status)

    def _one_by_one(self, ends: _Ends, may_be_true: Flags) -> tuple[Flags, Flags]:
        is_true, is_false = np.zeros_like(may_be_true), ~may_be_true
        (places,) = np.nonzero(may_be_true)
        if not len(places):
            return is_true, is_false
        shortest = min(self._slow_points, default=0)
        every = max(1, shortest // PARTS, min(shortest // 2, len(places) // MAX_SINGLE))
        every = every if shortest else max(1, len(places) // PARTS)
        chosen = places if every == 1 else places[_each(self._points(ends)[places], every)]
        for place in chosen.tolist():
            with as_of(ends.of, place):
                found = self._is_true(int(ends.times_ns[place]), ends.status)
            is_true[place], is_false[place] = found is True, found is False
        return is_true, is_false

    def _truth(self, part: Expression, ends: _Ends) -> tuple[Flags, Flags]:
        """Whether it is true and whether it is false; what is slow to work out may be both."""
        many = len(ends.times_ns)
        if isinstance(part, Logic):
            is_true, is_false = self._truth(part.left, ends)
            if (is_false if part.operator == "and" else is_true).all():
                # Most conditions are not true, and their second half need not be worked out to know that.
                return is_true, is_false
            other_true, other_false = self._truth(part.right, ends)
            if part.operator == "and":
                return is_true & other_true, is_false | other_false
            return is_true | other_true, is_false & other_false
        if isinstance(part, Not):
            is_true, is_false = self._truth(part.operand, ends)
            return is_false, is_true
        if isinstance(part, StatusIs):
            holds = (ends.status == part.status) == (part.operator == "==") and ends.status is not None
            return np.full(many, holds), np.full(many, not holds and ends.status is not None)
        assert isinstance(part, Comparison)  # noqa: S101 - the parser lets nothing else stand here
        return self._compared(part, ends)

    def _compared(self, part: Comparison, ends: _Ends) -> tuple[Flags, Flags]:
        if id(part) in self._slow:
            return np.ones(len(ends.times_ns), bool), np.ones(len(ends.times_ns), bool)
        left, right = self._number(part.left, ends), self._number(part.right, ends)
        is_known = ~(np.isnan(left) | np.isnan(right))
        holds_at: Flags = _COMPARE[part.operator](left, right)
        return holds_at & is_known, ~holds_at & is_known

    def _number(self, part: Expression, ends: _Ends) -> Floats:
        """The numbers at all moments; NaN where they are not known."""
        if isinstance(part, Number):
            return np.full(len(ends.times_ns), part.value)
        if isinstance(part, Name | Windowed | Baseline):
            return self._of_metric(part, ends)
        numbers = [self._number(one, ends) for one in part.parts]
        if isinstance(part, Arithmetic):
            return _CALCULATE[part.operator](*numbers)
        if isinstance(part, Negative):
            return -numbers[0]
        assert isinstance(part, Of)  # noqa: S101 - no other kind of number is left
        return np.abs(numbers[0]) if part.function == "abs" else _OF[part.function].reduce(numbers)

    def _of_metric(self, part: Name | Windowed | Baseline, ends: _Ends) -> Floats:
        name = part if isinstance(part, Name) else part.name
        recent = self._find(name) if name is not None else None
        if recent is None:
            return np.full(len(ends.times_ns), np.nan)
        function, points = _asked(part)
        if function == "age":
            last_ns = recent.times_ns[np.maximum(ends.of[recent] - 1, 0)]
            age = np.maximum(ends.times_ns - last_ns, 0) / 1e9
            return np.where(ends.of[recent] > 0, age, np.nan)
        return over_each(function, recent, points, ends.of[recent])


@contextmanager
def as_of(ends: Mapping[Recent, Whole], place: int) -> Iterator[None]:
    """Hides what came after one of some moments from all series of a condition."""
    with ExitStack() as stack:
        for recent, at in ends.items():
            stack.enter_context(recent.as_of(int(at[place])))
        yield


def _each(points: Whole, every: int) -> NDArray[np.intp]:
    """Places of the last of each so many points, counted from the first of all: looks do not change which.

    The newest is left out: a look at the present judges it.
    """
    return np.flatnonzero(np.diff(points // every))


def _asked(part: Name | Windowed | Baseline) -> tuple[str, int]:
    """The function of a metric that is asked for, and over how many points."""
    if isinstance(part, Baseline):
        return "baseline", 1
    if isinstance(part, Name) or part.window is None:
        return ("last" if isinstance(part, Name) else part.function), 1
    return part.function, part.window.points or 1


def _is_fast(part: Windowed) -> bool:
    """Whether it can be worked out for many moments at once."""
    return part.window is None or (part.window.points is not None and part.function in FAST)


def _every(part: Expression) -> Iterator[Expression]:
    yield part
    for one in part.parts:
        yield from _every(one)


def _divided(left: Floats, right: Floats) -> Floats:
    return np.where(right == 0, np.nan, left / np.where(right == 0, 1.0, right))


_CALCULATE: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _divided,
}
_OF: dict[str, np.ufunc] = {"min": np.minimum, "max": np.maximum}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
