"""Evaluates a condition with the newest points of a run, for each rank, host or device."""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from stepscope.alerts.conditions.moments import Moments
from stepscope.alerts.conditions.run_history import spark
from stepscope.alerts.conditions.subjects import subjects_of
from stepscope.alerts.conditions.tree import (
    Arithmetic,
    Baseline,
    Comparison,
    Expression,
    Logic,
    Name,
    Negative,
    Not,
    Number,
    Of,
    StatusIs,
    Windowed,
)
from stepscope.alerts.conditions.window_functions import over_newest, over_seconds
from stepscope.schema.notation import COMPARISONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.recent_points import RecentPoints
    from stepscope.alerts.conditions.run_history import History
from stepscope.alerts.conditions.subjects import Subject


@dataclass(frozen=True)
class Outcome:
    """The result of a condition for one subject."""

    is_true: bool | None
    """None if unknown: a metric is missing or is not a number."""
    rank: int | None = None
    host: str = ""
    device: str = ""
    value: float | None = None
    """The side with the metric, of the comparison that decided."""
    threshold: float | None = None
    """The other side."""
    key: str = ""
    """The metric to show; empty if the condition names none."""
    quantity: str = ""
    """The expression of the value; empty for the metric itself. Set only if true, as the next two fields."""
    recent: tuple[float, ...] = ()
    """Its last values, up to twenty, oldest first."""
    step: int | None = None
    """The step of its last value; None for machine metrics."""
    points: int = 0
    """How many points the metric has had so far."""


def evaluate(
    expression: Expression, history: History, now_ns: int, status: str | None = None
) -> list[Outcome]:
    """Returns one outcome for each subject that has any of the metrics."""
    return [evaluator.outcome(now_ns, status) for evaluator in evaluators_of(expression, history)]


def evaluators_of(expression: Expression, history: History) -> list[Evaluator]:
    """Returns one for each subject that has any of the metrics; valid until `history.generation` changes."""
    return [Evaluator(expression, history, subject) for subject in subjects_of(expression, history)]


def _written(side: Expression, key: str) -> str:
    """Writes a side of a comparison for people: of several names of a metric, only the one in use."""
    text = str(side)
    for name in side.metrics:
        if key in name.either:
            text = text.replace(str(name), key)
    return text


class _Result(NamedTuple):
    is_true: bool | None
    value: float | None = None
    threshold: float | None = None
    side: Expression | None = None
    """The side that names the metric to show."""


class _Moment(NamedTuple):
    now_ns: int
    status: str | None


class Evaluator:
    """Evaluates a condition for one subject, any number of times.

    It looks up the series and walks the tree once, when it is created: conditions are evaluated for every new
    row, and are rarely true.
    """

    def __init__(self, expression: Expression, history: History, subject: Subject) -> None:
        self._expression, self._history, self.subject = expression, history, subject
        self._evaluate = self._truth(expression)

    def is_true(self, now_ns: int, status: str | None) -> bool | None:
        """Whether the condition is true now; None if unknown."""
        return self._evaluate(_Moment(now_ns, status)).is_true

    @functools.cached_property
    def moments(self) -> Moments:
        """Evaluates the condition at each point since the last evaluation."""
        series = [self._recent(name) for name in self._expression.metrics]
        recents = list(dict.fromkeys(recent for recent in series if recent is not None))
        return Moments(self._expression, recents, self._recent, self.is_true)

    def outcome(self, now_ns: int, status: str | None) -> Outcome:
        """Returns the current result of the condition."""
        result = self._evaluate(_Moment(now_ns, status))
        key, recent = self._shown(result.side or self._expression)
        points = 0 if recent is None else recent.total
        outcome = Outcome(result.is_true, *self.subject, result.value, result.threshold, key, points=points)
        if recent is None or not result.is_true:
            # The rest is needed for notices only, and most conditions are never true.
            return outcome
        quantity = "" if result.side is None else _written(result.side, key)
        return replace(
            outcome,
            quantity="" if quantity == key else quantity,
            recent=spark(recent),
            step=(int(recent.steps[-1]) or None) if len(recent) else None,
        )

    def _shown(self, side: Expression) -> tuple[str, RecentPoints | None]:
        for name in side.metrics:
            for key in name.either:
                recent = self._history.find(key, self.subject)
                if recent is not None:
                    return key, recent
        return next(iter(side.keys), ""), None

    def _truth(self, part: Expression) -> Callable[[_Moment], _Result]:
        if isinstance(part, Logic):
            return _logic(part.operator, self._truth(part.left), self._lazy_truth(part.right))
        if isinstance(part, Not):
            return _negation(self._truth(part.operand))
        if isinstance(part, StatusIs):
            return _status_is(part)
        assert isinstance(part, Comparison)  # noqa: S101 - the parser allows nothing else here
        return _comparison(part, self._number(part.left), self._number(part.right))

    def _lazy_truth(self, part: Expression) -> Callable[[_Moment], _Result]:
        """Returns the same, created on first use: the second half of a condition is rarely evaluated."""
        evaluate_part: Callable[[_Moment], _Result] | None = None

        def evaluate(moment: _Moment) -> _Result:
            nonlocal evaluate_part
            if evaluate_part is None:
                evaluate_part = self._truth(part)
            return evaluate_part(moment)

        return evaluate

    def _number(self, part: Expression) -> Callable[[_Moment], float | None]:
        """Returns a function that computes a number: NaN if a metric is NaN, None if it is unknown."""
        if isinstance(part, Number):
            return lambda _: part.value
        if isinstance(part, Name | Windowed | Baseline):
            name = part if isinstance(part, Name) else part.name
            recent = self._recent(name) if name is not None else None
            return (lambda _: None) if recent is None else _of_metric(part, recent)
        if isinstance(part, Arithmetic):
            return _arithmetic(part.operator, self._number(part.left), self._number(part.right))
        return _function_of_numbers(part, [self._number(operand) for operand in part.parts])

    def _recent(self, name: Name) -> RecentPoints | None:
        series = (self._history.find(key, self.subject) for key in name.either)
        return next((recent for recent in series if recent is not None), None)


def _logic(
    operator: str, evaluate_left: Callable[[_Moment], _Result], evaluate_right: Callable[[_Moment], _Result]
) -> Callable[[_Moment], _Result]:
    """`and` is false if either side is, `or` is true if either side is, even if the other is unknown."""
    deciding = operator == "or"

    def evaluate(moment: _Moment) -> _Result:
        left = evaluate_left(moment)
        if left.is_true is deciding:
            return left
        right = evaluate_right(moment)
        use_right = right.is_true is deciding or (left.is_true is not None and right.is_true is None)
        return right if use_right else left

    return evaluate


def _negation(evaluate_inner: Callable[[_Moment], _Result]) -> Callable[[_Moment], _Result]:
    def evaluate(moment: _Moment) -> _Result:
        inner = evaluate_inner(moment)
        return inner._replace(is_true=None if inner.is_true is None else not inner.is_true)

    return evaluate


def _status_is(part: StatusIs) -> Callable[[_Moment], _Result]:
    def evaluate(moment: _Moment) -> _Result:
        if moment.status is None:
            return _Result(None)
        return _Result((moment.status == part.status) == (part.operator == "=="))

    return evaluate


def _comparison(
    part: Comparison,
    get_left: Callable[[_Moment], float | None],
    get_right: Callable[[_Moment], float | None],
) -> Callable[[_Moment], _Result]:
    is_metric_right = not part.left.keys and bool(part.right.keys)
    side = part.right if is_metric_right else part.left
    compare = COMPARISONS[part.operator]

    def evaluate(moment: _Moment) -> _Result:
        left, right = get_left(moment), get_right(moment)
        value, threshold = (right, left) if is_metric_right else (left, right)
        is_known = left is not None and right is not None and not math.isnan(left) and not math.isnan(right)
        return _Result(compare(left, right) if is_known else None, value, threshold, side)

    return evaluate


def _of_metric(part: Name | Windowed | Baseline, recent: RecentPoints) -> Callable[[_Moment], float | None]:
    if isinstance(part, Baseline):
        return lambda _: recent.baseline
    if isinstance(part, Name) or (part.function == "last" and part.window is None):
        return lambda _: float(recent.values[-1]) if len(recent) else None
    window = part.window
    if window is None:
        return _of_whole_series(part.function, recent)
    if window.points is not None:
        newest = over_newest(part.function, recent, window.points)
        return lambda _: newest()
    span_ns = int((window.seconds or 0) * 1e9)
    return lambda moment: over_seconds(part.function, recent, span_ns, moment.now_ns)


def _of_whole_series(function: str, recent: RecentPoints) -> Callable[[_Moment], float | None]:
    if function == "age":
        return lambda moment: (
            max(0.0, (moment.now_ns - int(recent.times_ns[-1])) / 1e9) if len(recent) else None
        )
    return lambda _: recent.start if function == "start" else None


def _arithmetic(
    operator: str, get_left: Callable[[_Moment], float | None], get_right: Callable[[_Moment], float | None]
) -> Callable[[_Moment], float | None]:
    calculate, divides = _CALCULATE[operator], operator == "/"

    def result(moment: _Moment) -> float | None:
        left, right = get_left(moment), get_right(moment)
        if left is None or right is None or (divides and right == 0):
            return None
        return calculate(left, right)

    return result


def _function_of_numbers(
    part: Expression, getters: list[Callable[[_Moment], float | None]]
) -> Callable[[_Moment], float | None]:
    def result(moment: _Moment) -> float | None:
        known = [value for get in getters if (value := get(moment)) is not None]
        if len(known) < len(getters):
            return None
        if isinstance(part, Negative):
            return -known[0]
        assert isinstance(part, Of)  # noqa: S101 - there is no other kind of number
        return math.nan if any(map(math.isnan, known)) else _OF[part.function](known)

    return result


_CALCULATE: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_OF: dict[str, Callable[[list[float]], float]] = {
    "abs": lambda values: abs(values[0]),
    "min": min,
    "max": max,
}
