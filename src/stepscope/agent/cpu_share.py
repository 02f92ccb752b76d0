"""Spaces out repeated work so that it takes no more than a share of one core."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS_AVERAGED = 8


class CpuShare:
    """Repeated work: what it costs on average, and whether it is due again."""

    def __init__(
        self,
        share: float,
        max_pause_s: float,
        now: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._max_pause_s, self._now, self._cpu_s = share, max_pause_s, now, cpu_s
        self._average_s = 0.0
        self._started_at = float("-inf")

    @property
    def pause_s(self) -> float:
        """How long to pause after a round to stay within the share; never longer than `max_pause_s`."""
        return min(self._average_s / self._share, self._max_pause_s)

    @property
    def is_due(self) -> bool:
        """Whether the pause is over."""
        return self._now() - self._started_at >= self.pause_s

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measures the processor time of the block."""
        self._started_at, cpu_before = self._now(), self._cpu_s()
        try:
            yield
        finally:
            self._average_s += (self._cpu_s() - cpu_before - self._average_s) / ROUNDS_AVERAGED
