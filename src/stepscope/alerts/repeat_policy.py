"""Decides when people are notified of a rule again: new alerts immediately, flapping ones rarely."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RepeatPolicy:
    """Which notices people received about one rule of one run."""

    reported_firing: bool = False
    """Whether the last notice said that it fires."""
    last_ns: int | None = None
    """Time of the last notice."""
    reported_resolved_early: bool = False
    """Whether the last notice said that it is resolved, within the cooldown."""

    def is_due(self, *, fires: bool, cooldown_s: float, now_ns: int) -> bool:
        """Whether a notice about the current state is due.

        The first firing and the first resolution are reported immediately. After that, however often the
        state changes, nothing is reported until the cooldown has passed since the last notice.
        """
        if fires == self.reported_firing:
            return False
        if self.last_ns is None or now_ns - self.last_ns >= cooldown_s * 1e9:
            return True
        return not fires and not self.reported_resolved_early

    def record_notice(self, *, fires: bool, cooldown_s: float, now_ns: int) -> None:
        """Records that a notice was posted."""
        is_early = self.last_ns is not None and now_ns - self.last_ns < cooldown_s * 1e9
        self.reported_resolved_early = not fires and is_early
        self.reported_firing, self.last_ns = fires, now_ns

    def should_remind(self, remind_s: float | None, now_ns: int) -> bool:
        """Whether a reminder that it still fires is due."""
        if remind_s is None or not self.reported_firing or self.last_ns is None:
            return False
        return now_ns - self.last_ns >= remind_s * 1e9
