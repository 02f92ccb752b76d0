"""Judges a condition by the newest points of a run, for everybody it is about."""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.alerts.conditions.history import spark
from stepscope.alerts.conditions.moments import Moments
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.conditions.history import History, Subject
    from stepscope.alerts.conditions.recent import Recent


@dataclass(frozen=True)
class Outcome:
    """What a condition comes to for one subject."""

    is_true: bool | None
    """None where that cannot be known: a metric is missing, or not a number."""
    rank: int | None = None
    host: str = ""
    device: str = ""
    value: float | None = None
    """The side of the comparison that decided in which the metric stands."""
    threshold: float | None = None
    """The other side."""
    key: str = ""
    """The metric to show; empty where the condition names none."""
    quantity: str = ""
    """What the value is of; empty where that is the metric itself. This and the next two only where true."""
    recent: tuple[float, ...] = ()
    """Its last values, up to twenty, oldest first."""
    step: int | None = None
    """The step of its last value; None for what is read from a machine."""
    points: int = 0
    """How many points the metric has had so far."""


def evaluate(
    expression: Expression, history: History, now_ns: int, status: str | None = None
) -> list[Outcome]:
    """One outcome for each subject that any of the metrics tell of."""
    return [judge.outcome(now_ns, status) for judge in judges_of(expression, history)]


def judges_of(expression: Expression, history: History) -> list[Judge]:
    """One for each subject that any of the metrics tell of; they hold until `history.generation` changes."""
    return [Judge(expression, history, subject) for subject in subjects_of(expression, history)]


def _written(side: Expression, key: str) -> str:
    """A side of a comparison as people read it: of several names for a metric, the one that it has."""
    text = str(side)
    for name in side.metrics:
        if key in name.either:
            text = text.replace(str(name), key)
    return text


class _Verdict(NamedTuple):
    is_true: bool | None
    value: float | None = None
    threshold: float | None = None
    side: Expression | None = None
    """Where the metric to show is named."""


class _Moment(NamedTuple):
    now_ns: int
    status: str | None


class Judge:
    """Judges a condition for one subject, again and again.

    The series it is about are looked up and the tree is walked once, when it is made: conditions are judged
    whenever a row has come, and hardly ever is one true.
    """

    def __init__(self, expression: Expression, history: History, subject: Subject) -> None:
        self._expression, self._history, self.subject = expression, history, subject
        self._judge = self._truth(expression)

    def is_true(self, now_ns: int, status: str | None) -> bool | None:
        """Whether the condition is true now; None where that cannot be known."""
        return self._judge(_Moment(now_ns, status)).is_true

    @functools.cached_property
    def moments(self) -> Moments:
        """The condition as of each point that came since the last look."""
        found = [self._recent(name) for name in self._expression.metrics]
        recents = list(dict.fromkeys(one for one in found if one is not None))
        return Moments(self._expression, recents, self._recent, self.is_true)

    def outcome(self, now_ns: int, status: str | None) -> Outcome:
        """What the condition comes to now."""
        verdict = self._judge(_Moment(now_ns, status))
        key, recent = self._shown(verdict.side or self._expression)
        points = 0 if recent is None else recent.total
        known = Outcome(verdict.is_true, *self.subject, verdict.value, verdict.threshold, key, points=points)
        if recent is None or not verdict.is_true:
            # Nobody is told what is not so, and most conditions never are.
            return known
        quantity = "" if verdict.side is None else _written(verdict.side, key)
        return replace(
            known,
            quantity="" if quantity == key else quantity,
            recent=spark(recent),
            step=(int(recent.steps[-1]) or None) if len(recent) else None,
        )

    def _shown(self, side: Expression) -> tuple[str, Recent | None]:
        for name in side.metrics:
            for key in name.either:
                recent = self._history.find(key, self.subject)
                if recent is not None:
                    return key, recent
        return next(iter(side.keys), ""), None

    def _truth(self, part: Expression) -> Callable[[_Moment], _Verdict]:
        if isinstance(part, Logic):
            return _joined(part.operator, self._truth(part.left), self._truth_when_asked(part.right))
        if isinstance(part, Not):
            return _opposite(self._truth(part.operand))
        if isinstance(part, StatusIs):
            return _status_is(part)
        assert isinstance(part, Comparison)  # noqa: S101 - the parser lets nothing else stand here
        return _compared(part, self._number(part.left), self._number(part.right))

    def _truth_when_asked(self, part: Expression) -> Callable[[_Moment], _Verdict]:
        """The same, made when it is first asked: the second half of a condition hardly ever is."""
        made: Callable[[_Moment], _Verdict] | None = None

        def judge(moment: _Moment) -> _Verdict:
            nonlocal made
            if made is None:
                made = self._truth(part)
            return made(moment)

        return judge

    def _number(self, part: Expression) -> Callable[[_Moment], float | None]:
        """Gives a number, NaN where a metric is not one; None where it is not known."""
        if isinstance(part, Number):
            return lambda _: part.value
        if isinstance(part, Name | Windowed | Baseline):
            name = part if isinstance(part, Name) else part.name
            recent = self._recent(name) if name is not None else None
            return (lambda _: None) if recent is None else _of_metric(part, recent)
        if isinstance(part, Arithmetic):
            return _calculated(part.operator, self._number(part.left), self._number(part.right))
        return _of_several(part, [self._number(one) for one in part.parts])

    def _recent(self, name: Name) -> Recent | None:
        found = (self._history.find(key, self.subject) for key in name.either)
        return next((recent for recent in found if recent is not None), None)


def _joined(
    operator: str, judge_left: Callable[[_Moment], _Verdict], judge_right: Callable[[_Moment], _Verdict]
) -> Callable[[_Moment], _Verdict]:
    """`and` is false when either is, `or` is true when either is, whatever is not known of the other."""
    deciding = operator == "or"

    def judge(moment: _Moment) -> _Verdict:
        left = judge_left(moment)
        if left.is_true is deciding:
            return left
        right = judge_right(moment)
        is_right_better = right.is_true is deciding or (left.is_true is not None and right.is_true is None)
        return right if is_right_better else left

    return judge


def _opposite(judge_inner: Callable[[_Moment], _Verdict]) -> Callable[[_Moment], _Verdict]:
    def judge(moment: _Moment) -> _Verdict:
        inner = judge_inner(moment)
        return inner._replace(is_true=None if inner.is_true is None else not inner.is_true)

    return judge


def _status_is(part: StatusIs) -> Callable[[_Moment], _Verdict]:
    def judge(moment: _Moment) -> _Verdict:
        if moment.status is None:
            return _Verdict(None)
        return _Verdict((moment.status == part.status) == (part.operator == "=="))

    return judge


def _compared(
    part: Comparison,
    get_left: Callable[[_Moment], float | None],
    get_right: Callable[[_Moment], float | None],
) -> Callable[[_Moment], _Verdict]:
    is_turned = not part.left.keys and bool(part.right.keys)
    side = part.right if is_turned else part.left
    compare = _COMPARE[part.operator]

    def judge(moment: _Moment) -> _Verdict:
        left, right = get_left(moment), get_right(moment)
        value, threshold = (right, left) if is_turned else (left, right)
        known = left is not None and right is not None and not math.isnan(left) and not math.isnan(right)
        return _Verdict(compare(left, right) if known else None, value, threshold, side)

    return judge


def _of_metric(part: Name | Windowed | Baseline, recent: Recent) -> Callable[[_Moment], float | None]:
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


def _of_whole_series(function: str, recent: Recent) -> Callable[[_Moment], float | None]:
    if function == "age":
        return lambda moment: (
            max(0.0, (moment.now_ns - int(recent.times_ns[-1])) / 1e9) if len(recent) else None
        )
    return lambda _: recent.start if function == "start" else None


def _calculated(
    operator: str, get_left: Callable[[_Moment], float | None], get_right: Callable[[_Moment], float | None]
) -> Callable[[_Moment], float | None]:
    calculate, divides = _CALCULATE[operator], operator == "/"

    def result(moment: _Moment) -> float | None:
        left, right = get_left(moment), get_right(moment)
        if left is None or right is None or (divides and right == 0):
            return None
        return calculate(left, right)

    return result


def _of_several(
    part: Expression, getters: list[Callable[[_Moment], float | None]]
) -> Callable[[_Moment], float | None]:
    def result(moment: _Moment) -> float | None:
        known = [value for get in getters if (value := get(moment)) is not None]
        if len(known) < len(getters):
            return None
        if isinstance(part, Negative):
            return -known[0]
        assert isinstance(part, Of)  # noqa: S101 - no other kind of number is left
        return math.nan if any(map(math.isnan, known)) else _OF[part.function](known)

    return result


_CALCULATE: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_OF: dict[str, Callable[[list[float]], float]] = {"abs": lambda one: abs(one[0]), "min": min, "max": max}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
