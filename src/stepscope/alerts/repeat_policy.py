"""Decides when people hear of a rule again: at once of what is new, and of what goes to and fro, seldom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RepeatPolicy:
    """What people were told of one rule in one run."""

    as_firing: bool = False
    """Whether they were last told that it fires."""
    last_ns: int | None = None
    """When they were last told anything."""
    has_reported_back: bool = False
    """Whether they were told that it is over, without having had to wait for that."""

    def is_due(self, *, fires: bool, cooldown_s: float, now_ns: int) -> bool:
        """Whether to tell how it stands now.

        That it fires is told at once, and that it is over, too; after that, however often it changes, nothing
        until the cooldown has passed since the last word.
        """
        if fires == self.as_firing:
            return False
        if self.last_ns is None or now_ns - self.last_ns >= cooldown_s * 1e9:
            return True
        return not fires and not self.has_reported_back

    def told(self, *, fires: bool, cooldown_s: float, now_ns: int) -> None:
        """It was told."""
        is_early = self.last_ns is not None and now_ns - self.last_ns < cooldown_s * 1e9
        self.has_reported_back = not fires and is_early
        self.as_firing, self.last_ns = fires, now_ns

    def is_to_remind(self, remind_s: float | None, now_ns: int) -> bool:
        """Whether to say once more that it still fires."""
        if remind_s is None or not self.as_firing or self.last_ns is None:
            return False
        return now_ns - self.last_ns >= remind_s * 1e9
