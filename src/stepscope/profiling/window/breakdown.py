"""Divides a window into data, compute, communication and idle; the parts add up to the window."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.profiling.plain_data import Described
from stepscope.profiling.window.operations import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.profiling.window.events import DeviceSpan, Span, Timeline
    from stepscope.profiling.window.nesting import OperatorCall

_DATA = re.compile(
    r"enumerate\(DataLoader\)#|.*dataloader_next$|data(?:[_ ](?:load|wait|fetch)\w*)?$", re.IGNORECASE
)
"""Names that torch, Lightning and users give to the wait for a batch."""
_COLLECTIVE = re.compile(
    r"\b(?:nccl|rccl)|\b(?:gloo|mpi|ucc|xccl):|\b_?c10d(?:_functional)?::|record_param_comms", re.IGNORECASE
)
_COPY_IN = re.compile(r"Memcpy HtoD", re.IGNORECASE)


class WindowSpan(NamedTuple):
    """The window: one thread, from a start to an end time."""

    thread: int
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Its duration."""
        return max(self.end_ns - self.start_ns, 0)


@dataclass(frozen=True)
class Breakdown(Described):
    """Where a window went."""

    data_seconds: float
    """Waiting for a batch, or copying it to the device."""
    compute_seconds: float
    communication_seconds: float
    """Communication with other ranks that did not overlap with compute."""
    idle_seconds: float
    measured_on: str
    """The device whose time was divided, or the main thread if there was no device."""
    host_busy_ratio: float
    """Share of the window in which the main thread ran an operator."""

    @property
    def window_seconds(self) -> float:
        """The whole window."""
        return self.data_seconds + self.compute_seconds + self.communication_seconds + self.idle_seconds

    def shares(self) -> dict[str, float]:
        """The share of the window of each part."""
        window_seconds = self.window_seconds or 1.0
        return {
            "data": self.data_seconds / window_seconds,
            "compute": self.compute_seconds / window_seconds,
            "communication": self.communication_seconds / window_seconds,
            "idle": self.idle_seconds / window_seconds,
        }


def breakdown_of(timeline: Timeline, parts: Iterable[OperatorCall], window: WindowSpan) -> Breakdown:
    """Divides the device's time if a device was used, else the main thread's."""
    on_main = [part.span for part in parts if part.is_outermost and part.span.thread == window.thread]
    data = [span for span in timeline.ranges if span.thread == window.thread and _DATA.match(span.name)]
    host_busy = covered_ns(on_main, window) / (window.length_ns or 1)
    device = _busiest(timeline.device)
    if device is None:
        computing = [span for span in on_main if not is_collective(span.name)]
        # Gloo marks the work of its threads as ranges; an operator only covers the time to queue it.
        anywhere = (*timeline.operators, *timeline.overlapping, *timeline.ranges)
        communicating = [span for span in anywhere if is_collective(span.name)]
        data_ns, compute_ns, communication_ns = exclusive_ns([data, computing, communicating], window)
        return _in_seconds((data_ns, compute_ns, communication_ns), window, "main thread", host_busy)
    spans = [span for span in timeline.device if span.device == device]
    device_communication = [span for span in spans if is_collective(span.name)]
    copies_in = [span for span in spans if _COPY_IN.match(span.name)]
    not_compute = {*device_communication, *copies_in}
    device_compute = [span for span in spans if span not in not_compute]
    waiting: list[Span | DeviceSpan] = [*copies_in, *data]
    compute_ns, communication_ns, data_ns = exclusive_ns(
        [device_compute, device_communication, waiting], window
    )
    return _in_seconds((data_ns, compute_ns, communication_ns), window, f"device {device}", host_busy)


@functools.lru_cache(maxsize=4096)
def is_collective(name: str) -> bool:
    """Whether a name is that of a collective operation."""
    return _COLLECTIVE.search(name) is not None


def _busiest(spans: list[DeviceSpan]) -> int | None:
    """The device with the most work; None if there is none."""
    busy_ns: dict[int, int] = {}
    for span in spans:
        busy_ns[span.device] = busy_ns.get(span.device, 0) + span.end_ns - span.start_ns
    return max(busy_ns, key=lambda device: busy_ns[device]) if busy_ns else None


def _in_seconds(
    parts_ns: tuple[int, int, int], window: WindowSpan, measured_on: str, host_busy: float
) -> Breakdown:
    data_ns, compute_ns, communication_ns = parts_ns
    idle_ns = window.length_ns - sum(parts_ns)
    return Breakdown(
        data_ns * NANOSECONDS,
        compute_ns * NANOSECONDS,
        communication_ns * NANOSECONDS,
        idle_ns * NANOSECONDS,
        measured_on,
        host_busy,
    )


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
