"""Turns counters that only grow into rates per second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Key = TypeVar("Key")


class Rates(Generic[Key]):
    """Remembers the counters of some things (disks, processes) as they were at the last look."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._previous_at = float("-inf")
        self._previous: Mapping[Key, Mapping[str, float]] = {}

    def since_last(self, counters: Mapping[Key, Mapping[str, float]]) -> dict[Key, dict[str, float]]:
        """How much each counter has grown in a second since the last look.

        A counter seen for the first time has no rate; nor has one that went back, as happens when it
        wraps round, or when a device was taken away and another has come in its place.
        """
        now = self._now()
        elapsed = now - self._previous_at
        if elapsed <= 0:  # two looks in one tick of the clock: the next one will tell
            return {}
        previous, self._previous, self._previous_at = self._previous, counters, now
        return {
            key: {
                name: (count - before[name]) / elapsed
                for name, count in counts.items()
                if name in before and count >= before[name]
            }
            for key, counts in counters.items()
            if (before := previous.get(key)) is not None
        }


class HostRates:
    """The same for the counters of one thing alone."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._rates: Rates[None] = Rates(now)

    def since_last(self, counters: Mapping[str, float]) -> dict[str, float]:
        """How much each counter has grown in a second since the last look."""
        return self._rates.since_last({None: counters}).get(None, {})
