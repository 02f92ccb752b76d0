"""Measures how much of a window is covered by spans, by kind in order of priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.profiling.window.events import DeviceSpan, Span


class WindowSpan(NamedTuple):
    """The window: one thread, from a start to an end time."""

    thread: int
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Its duration."""
        return max(self.end_ns - self.start_ns, 0)


def covered_ns(spans: Iterable[Span | DeviceSpan], window: WindowSpan) -> int:
    """The time of a window that is inside at least one span."""
    return _covered_ns(_edges(spans), window)


def exclusive_ns(layers: Iterable[Iterable[Span | DeviceSpan]], window: WindowSpan) -> list[int]:
    """The time of each layer that no earlier layer covers."""
    covered = _edges(())
    exclusive, before = [], 0
    for layer in layers:
        covered = np.concatenate([covered, _edges(layer)])
        now = _covered_ns(covered, window)
        exclusive.append(now - before)
        before = now
    return exclusive


def _edges(spans: Iterable[Span | DeviceSpan]) -> NDArray[np.int64]:
    flat = np.fromiter((edge for span in spans for edge in span[1:3]), dtype=np.int64)
    return flat.reshape(-1, 2)


def _covered_ns(edges: NDArray[np.int64], window: WindowSpan) -> int:
    if not len(edges):
        return 0
    edges = np.clip(edges, window.start_ns, window.end_ns)
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    # A span adds the time after the latest end before it.
    furthest = np.maximum.accumulate(edges[:, 1])
    reached = np.concatenate(([window.start_ns], furthest[:-1]))
    return int(np.maximum(edges[:, 1] - np.maximum(edges[:, 0], reached), 0).sum())
