"""Follows one rule for one subject: quiet, pending, firing, and quiet again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from stepscope.alerts.rule import Rule

Turn = Literal["fires", "resolves"]


@dataclass
class State:
    """Where a rule stands for a subject."""

    true_since_ns: int | None = None
    """When its condition became true; None while it is not."""
    true_since_points: int = 0
    """How many points the metric had then."""
    alert_id: int | None = None
    """The number of its alert while it fires."""

    @property
    def is_firing(self) -> bool:
        """Whether it fires."""
        return self.alert_id is not None

    @property
    def is_underway(self) -> bool:
        """Whether its condition was true at the last look, or its alert is not over."""
        return self.true_since_ns is not None or self.is_firing

    def advance(
        self, rule: Rule, *, is_true: bool | None, is_clear: bool | None, now_ns: int, points: int = 0
    ) -> Turn | None:
        """What a look at the condition brings about; what is unknown changes nothing.

        A rule with a duration fires when it was true at every look for so long. One that fires resolves when
        `is_clear`, which by hysteresis may take more than the condition not being true.
        """
        if self.is_firing:
            return "resolves" if is_clear else None
        if is_true is None:
            return None
        if not is_true:
            self.true_since_ns = None
            return None
        if self.true_since_ns is None:
            self.true_since_ns, self.true_since_points = now_ns, points
        has_lasted = now_ns - self.true_since_ns >= rule.for_s * 1e9
        return "fires" if has_lasted and points - self.true_since_points >= rule.for_points else None

    def fired(self, alert_id: int) -> None:
        """Its alert has this number."""
        self.alert_id = alert_id

    def resolved(self) -> None:
        """Its alert is over."""
        self.alert_id = self.true_since_ns = None
