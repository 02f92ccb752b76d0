"""Converts growing counters into rates per second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Key = TypeVar("Key")


class Rates(Generic[Key]):
    """Rates of the counters of several devices or processes between two calls."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._previous_at = float("-inf")
        self._previous: Mapping[Key, Mapping[str, float]] = {}

    def since_last(self, counters: Mapping[Key, Mapping[str, float]]) -> dict[Key, dict[str, float]]:
        """The growth per second of each counter since the last call.

        A new counter has no rate; nor has one that decreased, because it has wrapped, or because the device
        was replaced by another.
        """
        now = self._now()
        elapsed = now - self._previous_at
        if elapsed <= 0:  # two calls in one tick of the clock
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
    """Rates of one set of counters."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._rates: Rates[None] = Rates(now)

    def since_last(self, counters: Mapping[str, float]) -> dict[str, float]:
        """The growth per second of each counter since the last call."""
        return self._rates.since_last({None: counters}).get(None, {})
