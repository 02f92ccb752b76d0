"""Finds what was read from the machines of a run, and the times at which it was live on each."""

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
    """A host in a segment of a run."""

    segment: str
    host: str
    processes: tuple[Process, ...]
    spans: tuple[TimeSpan, ...]
    """When the run was live there; what a later segment covers as well belongs to that one."""

    @property
    def seconds(self) -> float:
        """How long the run was live there."""
        return sum(span.seconds for span in self.spans)


class Readings:
    """The series of a run that samplers read, part by part."""

    def __init__(self, run: Run, now_ns: int) -> None:
        self._run = run
        self._sources: dict[str, list[Source]] = {}
        for source, keys in run.sources().items():
            if source.axis == "seconds":
                for key in keys:
                    self._sources.setdefault(key, []).append(source)
        self.host_segments = _host_segments(run, now_ns)
        self.live_seconds = _live_seconds(run, now_ns)
        """How long the run was live anywhere; the time between its segments is left out."""

    def devices(self, host_segment: HostSegment, prefix: str) -> list[str]:
        """The devices of a part of which some key with such a beginning was read."""
        devices = {
            source.device
            for key, sources in self._sources.items()
            if key.startswith(prefix)
            for source in sources
            if (source.segment, source.host) == (host_segment.segment, host_segment.host)
        }
        return sorted(devices)

    def sources(self, host_segment: HostSegment, key: str, device: str | None = None) -> list[Source]:
        """Where a key was read in a part: of any device, or of one."""
        return [
            source
            for source in self._sources.get(key, ())
            if (source.segment, source.host) == (host_segment.segment, host_segment.host)
            and (device is None or source.device == device)
        ]

    def metered(
        self, host_segment: HostSegment, sources: Sequence[Source], key: str, meter: Meter
    ) -> Metered:
        """What a key adds up to while the part was live, all sources together."""
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
    """Loader workers come and go; a time of zero is one that a damaged journal did not tell."""
    return [process for process in segment.processes if process.role != "worker" and process.started_ns]


def _live_span(processes: Sequence[Process], now_ns: int) -> TimeSpan:
    ends = [
        now_ns if process.status in LIVE else process.ended_ns or process.last_ns for process in processes
    ]
    return TimeSpan(min(process.started_ns for process in processes), max(ends))
