"""Finds what was sampled on the hosts of a run, and when the run was live on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.schema.run import LIVE
from stepscope.views.energy.metering import Metered, TimeSpan, subtract_spans, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.run import Process, SegmentInfo
    from stepscope.schema.series import Source

    Meter = Callable[[NDArray[np.int64], NDArray[np.float64], TimeSpan], Metered]


@dataclass(frozen=True)
class HostSegment:
    """One host in one segment of a run."""

    segment: str
    host: str
    processes: tuple[Process, ...]
    spans: tuple[TimeSpan, ...]
    """When the run was live there; time that a later segment also covers counts for the later one."""

    @property
    def seconds(self) -> float:
        """How long the run was live there."""
        return sum(span.seconds for span in self.spans)


class Readings:
    """The sampled series of a run, by host and segment."""

    def __init__(self, run: Run, now_ns: int) -> None:
        self._run = run
        self._sources: dict[str, list[Source]] = {}
        for source, keys in run.sources().items():
            if source.axis == "seconds":
                for key in keys:
                    self._sources.setdefault(key, []).append(source)
        self.host_segments = _host_segments(run, now_ns)
        self.live_seconds = _live_seconds(run, now_ns)
        """How long the run was live on any host, without the time between its segments."""

    def devices(self, host_segment: HostSegment, prefix: str) -> list[str]:
        """Returns the devices that have readings of a key with this prefix."""
        devices = {
            source.device
            for key, sources in self._sources.items()
            if key.startswith(prefix)
            for source in sources
            if (source.segment, source.host) == (host_segment.segment, host_segment.host)
        }
        return sorted(devices)

    def sources(self, host_segment: HostSegment, key: str, device: str | None = None) -> list[Source]:
        """Returns the sources of a key: of all devices, or of one."""
        return [
            source
            for source in self._sources.get(key, ())
            if (source.segment, source.host) == (host_segment.segment, host_segment.host)
            and (device is None or source.device == device)
        ]

    def metered(
        self, host_segment: HostSegment, sources: Sequence[Source], key: str, meter: Meter
    ) -> Metered:
        """Returns what a key adds up to while the run was live there, over all sources."""
        amounts = []
        for source in sources:
            points = self._run.series(key, source.rank, source.segment, source.host, source.device)
            amounts += [meter(points.times_ns, points.values, span) for span in host_segment.spans]
        return total(amounts)


def _host_segments(run: Run, now_ns: int) -> list[HostSegment]:
    hosts: dict[tuple[str, str], list[Process]] = {}
    for segment in run.segments:
        for process in _counted_processes(segment):
            hosts.setdefault((segment.id, process.host), []).append(process)
    spans = {key: _live_span(processes, now_ns) for key, processes in hosts.items()}
    keys = list(hosts)
    host_segments = []
    for index, (segment_id, host) in enumerate(keys):
        later = [spans[key] for key in keys[index + 1 :] if key[1] == host]
        live_spans = tuple(subtract_spans(spans[segment_id, host], later))
        host_segments.append(HostSegment(segment_id, host, tuple(hosts[segment_id, host]), live_spans))
    return host_segments


def _live_seconds(run: Run, now_ns: int) -> float:
    spans = [
        _live_span(processes, now_ns)
        for segment in run.segments
        if (processes := _counted_processes(segment))
    ]
    live_spans = [
        piece for index, span in enumerate(spans) for piece in subtract_spans(span, spans[index + 1 :])
    ]
    return sum(live_span.seconds for live_span in live_spans)


def _counted_processes(segment: SegmentInfo) -> list[Process]:
    """Leaves out loader workers, which come and go, and processes whose start a damaged journal lost."""
    return [process for process in segment.processes if process.role != "worker" and process.started_ns]


def _live_span(processes: Sequence[Process], now_ns: int) -> TimeSpan:
    ends = [
        now_ns if process.status in LIVE else process.ended_ns or process.last_ns for process in processes
    ]
    return TimeSpan(min(process.started_ns for process in processes), max(ends))
