"""Limits how often somebody may ask: a bucket for each, filled at a steady rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_S = 5.0
MAX_KNOWN = 4096
"""So many buckets are kept; beyond it the one used longest ago goes."""


class Rate:
    """So many requests a second for each name, with a burst of some seconds' worth."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._most = max(per_second * BURST_S, 1.0)
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, name: str) -> bool:
        """Whether one more is allowed now; it counts if it is."""
        now = self._now()
        left, since = self._buckets.pop(name, (self._most, now))
        left = min(left + (now - since) * self._per_second, self._most)
        allowed = left >= 1
        self._buckets[name] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_KNOWN:
            del self._buckets[next(iter(self._buckets))]
        return allowed
