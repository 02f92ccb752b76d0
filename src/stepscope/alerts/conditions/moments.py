"""Evaluates a condition at every point since the last evaluation, for many points at once.

A fast training logs hundreds of points between two evaluations. Alerts must not depend on when the agent
evaluates rules, so the condition is evaluated as if there had been an evaluation after each point.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

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
from stepscope.alerts.conditions.window_functions import FAST, ROW_FUNCTIONS, sliding_values
from stepscope.schema.notation import COMPARISONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from stepscope.alerts.conditions.recent_points import Floats, Ints, RecentPoints
    from stepscope.alerts.conditions.tree import Expression

    Flags = NDArray[np.bool_]

MAX_IN_ROWS = 16_000
"""Maximum number of values that are sorted in one evaluation; beyond it, windows are skipped regularly."""

PARTS = 8
"""Conditions that cannot be computed for all points at once are evaluated this often in each window."""

MAX_SINGLE = 64
"""And at most this often in one evaluation, as long as no window is skipped completely."""


class ConditionResults(NamedTuple):
    """Results of a condition at several moments, oldest first; neither true nor false if unknown."""

    is_true: Flags
    is_false: Flags
    times_ns: Ints
    points: Ints
    """Total number of points of the first metric of the condition at each moment."""
    ends: dict[RecentPoints, Ints]
    """Number of kept points of each series at each moment."""


class _Ends(NamedTuple):
    """Moments, and the number of kept points of each series at each of them."""

    times_ns: Ints
    of: dict[RecentPoints, Ints]
    status: str | None


class Moments:
    """Evaluates a condition for one subject at the points that were not evaluated yet."""

    def __init__(
        self,
        expression: Expression,
        recents: Sequence[RecentPoints],
        find: Callable[[Name], RecentPoints | None],
        is_true: Callable[[int, str | None], bool | None],
    ) -> None:
        """`is_true` evaluates the condition with the current points of the series."""
        self._expression, self._recents, self._find, self._is_true = expression, recents, find, is_true
        windowed = [part for part in _all_parts(expression) if isinstance(part, Windowed)]
        slow = [part for part in windowed if not _is_fast(part)]
        self._slow_points = [part.window.points for part in slow if part.window and part.window.points]
        self._slow = {
            id(part) for part in _all_parts(expression) if any(inner in slow for inner in _all_parts(part))
        }
        """The parts that must be computed for each moment separately."""
        self._row_points = sum(
            part.window.points
            for part in windowed
            if part.function in ROW_FUNCTIONS and part.window and part.window.points
        )

    @property
    def has_several(self) -> bool:
        """Whether there are points besides the newest one, which is evaluated in any case."""
        return any(recent.unevaluated > 1 for recent in self._recents)

    def evaluate(self, status: str | None) -> ConditionResults:
        """Returns the results of the condition at these points; `status` is the current status of the run."""
        ends = self._ends(status)
        ends = self._thinned(ends, 1 + len(ends.times_ns) * self._row_points // MAX_IN_ROWS)
        with np.errstate(all="ignore"):
            is_true, is_false = self._truth(self._expression, ends)
            if self._slow:
                is_true, is_false = self._one_by_one(ends, is_true)
        return ConditionResults(is_true, is_false, ends.times_ns, self._points(ends), ends.of)

    def _ends(self, status: str | None) -> _Ends:
        if len(self._recents) == 1:
            (recent,) = self._recents
            at = np.arange(len(recent) - recent.unevaluated + 1, len(recent) + 1)
            return _Ends(recent.times_ns[at - 1], {recent: at}, status)
        new_times = [recent.times_ns[len(recent) - recent.unevaluated :] for recent in self._recents]
        times_ns = np.unique(np.concatenate(new_times))
        of = {recent: np.searchsorted(recent.times_ns, times_ns, "right") for recent in self._recents}
        return _Ends(times_ns, of, status)

    def _points(self, ends: _Ends) -> Ints:
        first = self._recents[0]
        return first.total - len(first) + ends.of[first]

    def _thinned(self, ends: _Ends, every: int) -> _Ends:
        at = _every_nth(self._points(ends), every)
        of = {recent: counts[at] for recent, counts in ends.of.items()}
        return _Ends(ends.times_ns[at], of, ends.status)

    def _one_by_one(self, ends: _Ends, may_be_true: Flags) -> tuple[Flags, Flags]:
        is_true, is_false = np.zeros_like(may_be_true), ~may_be_true
        (places,) = np.nonzero(may_be_true)
        if not len(places):
            return is_true, is_false
        shortest = min(self._slow_points, default=0)
        every = max(1, shortest // PARTS, min(shortest // 2, len(places) // MAX_SINGLE))
        every = every if shortest else max(1, len(places) // PARTS)
        chosen = places if every == 1 else places[_every_nth(self._points(ends)[places], every)]
        for place in chosen.tolist():
            with as_of(ends.of, place):
                result = self._is_true(int(ends.times_ns[place]), ends.status)
            is_true[place], is_false[place] = result is True, result is False
        return is_true, is_false

    def _truth(self, part: Expression, ends: _Ends) -> tuple[Flags, Flags]:
        """Returns where it is true and where it is false; parts that are slow to compute may be both."""
        count = len(ends.times_ns)
        if isinstance(part, Logic):
            is_true, is_false = self._truth(part.left, ends)
            if (is_false if part.operator == "and" else is_true).all():
                # Most conditions are not true; then their second half need not be computed.
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
            return np.full(count, holds), np.full(count, not holds and ends.status is not None)
        assert isinstance(part, Comparison)  # noqa: S101 - the parser allows nothing else here
        return self._comparison(part, ends)

    def _comparison(self, part: Comparison, ends: _Ends) -> tuple[Flags, Flags]:
        if id(part) in self._slow:
            return np.ones(len(ends.times_ns), bool), np.ones(len(ends.times_ns), bool)
        left, right = self._number(part.left, ends), self._number(part.right, ends)
        is_known = ~(np.isnan(left) | np.isnan(right))
        holds_at: Flags = COMPARISONS[part.operator](left, right)
        return holds_at & is_known, ~holds_at & is_known

    def _number(self, part: Expression, ends: _Ends) -> Floats:
        """Returns the number at each moment; NaN if unknown."""
        if isinstance(part, Number):
            return np.full(len(ends.times_ns), part.value)
        if isinstance(part, Name | Windowed | Baseline):
            return self._of_metric(part, ends)
        numbers = [self._number(operand, ends) for operand in part.parts]
        if isinstance(part, Arithmetic):
            return _CALCULATE[part.operator](*numbers)
        if isinstance(part, Negative):
            return -numbers[0]
        assert isinstance(part, Of)  # noqa: S101 - there is no other kind of number
        return np.abs(numbers[0]) if part.function == "abs" else _OF[part.function].reduce(numbers)

    def _of_metric(self, part: Name | Windowed | Baseline, ends: _Ends) -> Floats:
        name = part if isinstance(part, Name) else part.name
        recent = self._find(name) if name is not None else None
        if recent is None:
            return np.full(len(ends.times_ns), np.nan)
        function, points = _function_and_points(part)
        if function == "age":
            last_ns = recent.times_ns[np.maximum(ends.of[recent] - 1, 0)]
            age = np.maximum(ends.times_ns - last_ns, 0) / 1e9
            return np.where(ends.of[recent] > 0, age, np.nan)
        return sliding_values(function, recent, points, ends.of[recent])


@contextmanager
def as_of(ends: Mapping[RecentPoints, Ints], place: int) -> Iterator[None]:
    """Hides all points after one of the moments, in all series of a condition."""
    with ExitStack() as stack:
        for recent, at in ends.items():
            stack.enter_context(recent.as_of(int(at[place])))
        yield


def _every_nth(points: Ints, every: int) -> NDArray[np.intp]:
    """Returns the places of every n-th point since the first of the series, independent of evaluation times.

    The newest point is left out: it is evaluated in any case.
    """
    return np.flatnonzero(np.diff(points // every))


def _function_and_points(part: Name | Windowed | Baseline) -> tuple[str, int]:
    """Returns the function of a part and its number of points."""
    if isinstance(part, Baseline):
        return "baseline", 1
    if isinstance(part, Name) or part.window is None:
        return ("last" if isinstance(part, Name) else part.function), 1
    return part.function, part.window.points or 1


def _is_fast(part: Windowed) -> bool:
    """Whether it can be computed for many moments at once."""
    return part.window is None or (part.window.points is not None and part.function in FAST)


def _all_parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    for part in expression.parts:
        yield from _all_parts(part)


def _divided(left: Floats, right: Floats) -> Floats:
    return np.where(right == 0, np.nan, left / np.where(right == 0, 1.0, right))


_CALCULATE: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _divided,
}
_OF: dict[str, np.ufunc] = {"min": np.minimum, "max": np.maximum}
