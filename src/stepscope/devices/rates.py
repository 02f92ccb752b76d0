"""Turns counters that only grow into rates per second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Thing = TypeVar("Thing")


class Rates(Generic[Thing]):
    """Remembers the counters of some things (disks, processes) as they were at the last look."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen_at = float("-inf")
        self._seen: Mapping[Thing, Mapping[str, float]] = {}

    def since_last(self, counters: Mapping[Thing, Mapping[str, float]]) -> dict[Thing, dict[str, float]]:
        """How much each counter has grown in a second since the last look.

        A counter seen for the first time has no rate; nor has one that went back, as happens when it
        wraps round, or when a device was taken away and another has come in its place.
        """
        now = self._now()
        elapsed = now - self._seen_at
        if elapsed <= 0:  # two looks in one tick of the clock: the next one will tell
            return {}
        seen, self._seen, self._seen_at = self._seen, counters, now
        return {
            thing: {
                name: (count - before[name]) / elapsed
                for name, count in counts.items()
                if name in before and count >= before[name]
            }
            for thing, counts in counters.items()
            if (before := seen.get(thing)) is not None
        }


class HostRates:
    """The same for the counters of one thing alone."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._rates: Rates[None] = Rates(now)

    def since_last(self, counters: Mapping[str, float]) -> dict[str, float]:
        """How much each counter has grown in a second since the last look."""
        return self._rates.since_last({None: counters}).get(None, {})
