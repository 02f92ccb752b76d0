"""Judges a condition by the newest points of a run, for everybody it is about."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.alerts.history import spark
from stepscope.alerts.subjects import subjects_of
from stepscope.alerts.tree import (
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
from stepscope.alerts.window_functions import over_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.history import History, Subject
    from stepscope.alerts.recent import Recent


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
    return [
        _Judge(history, subject, now_ns, status).outcome(expression)
        for subject in subjects_of(expression, history)
    ]


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


class _Judge:
    """Judges a condition for one subject."""

    def __init__(self, history: History, subject: Subject, now_ns: int, status: str | None) -> None:
        self._history, self._subject, self._now_ns, self._status = history, subject, now_ns, status

    def outcome(self, expression: Expression) -> Outcome:
        verdict = self._verdict(expression)
        key, recent = self._shown(verdict.side or expression)
        points = 0 if recent is None else recent.total
        known = Outcome(verdict.is_true, *self._subject, verdict.value, verdict.threshold, key, points=points)
        if recent is None or not verdict.is_true:
            # Nobody is told what is not so, and most conditions never are.
            return known
        quantity = "" if verdict.side is None else _written(verdict.side, key)
        return replace(
            known,
            quantity="" if quantity == key else quantity,
            recent=spark(recent),
            step=int(recent.steps[-1]) or None,
        )

    def _shown(self, side: Expression) -> tuple[str, Recent | None]:
        for name in side.metrics:
            for key in name.either:
                recent = self._history.find(key, self._subject)
                if recent is not None:
                    return key, recent
        return next(iter(side.keys), ""), None

    def _verdict(self, part: Expression) -> _Verdict:
        if isinstance(part, Logic):
            return self._joined(part)
        if isinstance(part, Not):
            inner = self._verdict(part.operand)
            return inner._replace(is_true=None if inner.is_true is None else not inner.is_true)
        if isinstance(part, StatusIs):
            if self._status is None:
                return _Verdict(None)
            return _Verdict((self._status == part.status) == (part.operator == "=="))
        assert isinstance(part, Comparison)  # noqa: S101 - the parser lets nothing else stand here
        return self._compared(part)

    def _joined(self, part: Logic) -> _Verdict:
        """`and` is false when either is, `or` is true when either is, whatever is not known of the other."""
        deciding = part.operator == "or"
        left = self._verdict(part.left)
        if left.is_true is deciding:
            return left
        right = self._verdict(part.right)
        is_right_better = right.is_true is deciding or (left.is_true is not None and right.is_true is None)
        return right if is_right_better else left

    def _compared(self, part: Comparison) -> _Verdict:
        left, right = self._value(part.left), self._value(part.right)
        is_turned = not part.left.keys and bool(part.right.keys)
        value, threshold = (right, left) if is_turned else (left, right)
        side = part.right if is_turned else part.left
        known = left is not None and right is not None and not math.isnan(left) and not math.isnan(right)
        return _Verdict(_COMPARE[part.operator](left, right) if known else None, value, threshold, side)

    def _value(self, part: Expression) -> float | None:
        """A number, NaN where a metric is not one; None where it is not known."""
        if isinstance(part, Number):
            return part.value
        if isinstance(part, Name | Windowed | Baseline):
            return self._of_metric(part)
        known = [value for one in part.parts if (value := self._value(one)) is not None]
        return _calculated(part, known) if len(known) == len(part.parts) else None

    def _of_metric(self, part: Name | Windowed | Baseline) -> float | None:
        name = part if isinstance(part, Name) else part.name
        recent = self._recent(name) if name is not None else None
        if recent is None:
            return None
        if isinstance(part, Baseline):
            return recent.baseline
        if isinstance(part, Name) or (part.function == "last" and part.window is None):
            return float(recent.values[-1])
        if part.function == "age":
            return max(0.0, (self._now_ns - int(recent.times_ns[-1])) / 1e9)
        return self._over_window(part, recent)

    def _over_window(self, part: Windowed, recent: Recent) -> float | None:
        window = part.window
        if window is None:
            return None
        if window.points is not None:
            within = recent.newest(window.points)
        else:
            within = recent.since(self._now_ns - int((window.seconds or 0) * 1e9))
        return over_window(part.function, recent.times_ns[within], recent.values[within])

    def _recent(self, name: Name) -> Recent | None:
        found = (self._history.find(key, self._subject) for key in name.either)
        return next((recent for recent in found if recent is not None), None)


def _calculated(part: Expression, values: list[float]) -> float | None:
    if isinstance(part, Arithmetic):
        is_by_zero = part.operator == "/" and values[1] == 0
        return None if is_by_zero else _CALCULATE[part.operator](*values)
    if isinstance(part, Negative):
        return -values[0]
    assert isinstance(part, Of)  # noqa: S101 - no other kind of number is left
    return math.nan if any(map(math.isnan, values)) else _OF[part.function](values)


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
