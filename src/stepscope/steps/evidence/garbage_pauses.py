"""Measures the pauses of Python's garbage collector."""

from __future__ import annotations

import gc
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OLDEST = 2
"""The generation whose collection visits all objects."""

LONG_NS = 500_000
"""A longer pause is recorded with its own step."""


class GarbagePauses:
    """Counts collections through `gc.callbacks`; a pause stops all threads, whichever caused it.

    A collection is timed by the processor time of its thread: where other programs keep the thread from
    running, it is not the collector that takes the time.

    Values cover the time since the last reading; those of a long pause are recorded with its own step.
    """

    def __init__(
        self,
        mark_changed: Callable[[GarbagePauses], None],
        now_ns: Callable[[], int] = thread_time_ns,
        callbacks: list[Any] = gc.callbacks,
    ) -> None:
        self._mark_changed, self._now_ns, self._callbacks = mark_changed, now_ns, callbacks
        self._began_ns = self._paused_ns = self._longest_ns = 0
        self._collections = self._full = 0
        callbacks.append(self._on_collection)

    def read(self, steps: int) -> Mapping[str, float]:
        """Pauses since the last reading."""
        # Copied before anything is allocated: building the result may start a collection.
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
        """Removes the callback."""
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
            self._mark_changed(self)
