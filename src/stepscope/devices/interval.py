"""Decides when something that is too expensive for every sample is due again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Interval:
    """Due at once, and from then on every `every_s` seconds."""

    def __init__(self, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._now = every_s, now
        self._due_at = float("-inf")

    def is_due(self) -> bool:
        """Whether it is due; if so, the next interval starts now."""
        now = self._now()
        if now < self._due_at:
            return False
        self._due_at = now + self._every_s
        return True
