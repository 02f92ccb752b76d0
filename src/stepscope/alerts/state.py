"""The state of one rule for one subject: inactive, pending or firing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from stepscope.alerts.conditions.moments import ConditionResults
    from stepscope.alerts.rule import Rule

Turn = Literal["fires", "resolves"]


@dataclass
class State:
    """State of a rule for a subject."""

    true_since_ns: int | None = None
    """When the condition became true; None while it is not."""
    true_since_points: int = 0
    """How many points the metric had at that time."""
    alert_id: int | None = None
    """Id of its alert while it fires."""

    @property
    def is_firing(self) -> bool:
        """Whether it fires."""
        return self.alert_id is not None

    @property
    def is_underway(self) -> bool:
        """Whether it is pending or firing."""
        return self.true_since_ns is not None or self.is_firing

    def advance(
        self, rule: Rule, *, is_true: bool | None, is_clear: bool | None, now_ns: int, points: int = 0
    ) -> Turn | None:
        """Updates the state with a result of the condition; an unknown result changes nothing.

        A rule with a duration fires when every result was true for that long. A firing rule resolves when
        `is_clear`, which may require more than the condition not being true (hysteresis).
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

    def advance_all(self, rule: Rule, truths: ConditionResults) -> int | None:
        """Updates the state with the results of many moments, for a rule without a duration in seconds.

        Returns the place of the moment at which it fires; None if it does not, with the state after the last.
        """
        known = np.flatnonzero(truths.is_true | truths.is_false)
        is_true = truths.is_true[known]
        if not is_true.any():
            if len(known):
                self.true_since_ns = None
            return None
        was_true = np.concatenate([[self.true_since_ns is not None], is_true[:-1]])
        # For each moment, where the current series of true results began; -1: before the first moment.
        begins = np.maximum.accumulate(np.where(is_true & ~was_true, np.arange(len(known)), -1))
        points = truths.points[known]
        since_points = np.where(begins < 0, self.true_since_points, points[begins])
        fires = np.flatnonzero(is_true & (points - since_points >= rule.for_points))
        place = int(fires[0]) if len(fires) else len(known) - 1
        if not is_true[place]:
            self.true_since_ns = None
        elif begins[place] >= 0:
            self.true_since_ns = int(truths.times_ns[known[begins[place]]])
            self.true_since_points = int(since_points[place])
        return int(known[place]) if len(fires) else None

    def fired(self, alert_id: int) -> None:
        """Stores the id of its alert."""
        self.alert_id = alert_id

    def resolved(self) -> None:
        """Resets the state after its alert was resolved."""
        self.alert_id = self.true_since_ns = None
