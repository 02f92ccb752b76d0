"""Counts the pauses that Python's garbage collector makes."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OLDEST = 2
"""The generation whose collection looks at every object there is."""

LONG_NS = 500_000
"""A pause worth knowing the very step of."""


class GarbagePauses:
    """Listens to the collector by the callbacks it offers; a pause stops all threads, whoever caused it.

    Figures are of the time since they were last given: those of a long pause are given with its own step.
    """

    def __init__(
        self,
        notice: Callable[[GarbagePauses], None],
        now_ns: Callable[[], int] = perf_counter_ns,
        callbacks: list[Any] = gc.callbacks,
    ) -> None:
        self._notice, self._now_ns, self._callbacks = notice, now_ns, callbacks
        self._began_ns = self._paused_ns = self._longest_ns = 0
        self._collections = self._full = 0
        callbacks.append(self._on_collection)

    def look(self, steps: int) -> Mapping[str, float]:
        """Pauses since the last look."""
        # Taken before anything is made: making the result may start a collection.
        paused, longest = self._paused_ns, self._longest_ns
        collections, full = self._collections, self._full
        self._paused_ns = self._longest_ns = self._collections = self._full = 0
        return {
            "gc/pause_seconds": paused * 1e-9,
            "gc/longest_pause_seconds": longest * 1e-9,
            "gc/collections": float(collections),
            "gc/full_collections": float(full),
        }

    def close(self) -> None:
        """Stops listening."""
        if self._on_collection in self._callbacks:
            self._callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._now_ns()
            return
        took = self._now_ns() - self._began_ns
        self._paused_ns += took
        self._longest_ns = max(self._longest_ns, took)
        self._collections += 1
        if info["generation"] == OLDEST:
            self._full += 1
        if took >= LONG_NS:
            self._notice(self)
