"""Finds what was read from the machines of a run, and the times at which it was live on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.schema.run import LIVE
from stepscope.views.energy.metering import Metered, Stretch, total, without

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.run import Process, SegmentInfo
    from stepscope.schema.series import Source

    Meter = Callable[[NDArray[np.int64], NDArray[np.float64], Stretch], Metered]


@dataclass(frozen=True)
class Part:
    """A host in a segment of a run."""

    segment: str
    host: str
    processes: tuple[Process, ...]
    stretches: tuple[Stretch, ...]
    """When the run was live there; what a later segment covers as well belongs to that one."""

    @property
    def seconds(self) -> float:
        """How long the run was live there."""
        return sum(stretch.seconds for stretch in self.stretches)


class Readings:
    """The series of a run that samplers read, part by part."""

    def __init__(self, run: Run, now_ns: int) -> None:
        self._run = run
        self._places: dict[str, list[Source]] = {}
        for source, keys in run.sources().items():
            if source.axis == "seconds":
                for key in keys:
                    self._places.setdefault(key, []).append(source)
        self.parts = _parts(run, now_ns)
        self.live_seconds = _live_seconds(run, now_ns)
        """How long the run was live anywhere; the time between its segments is left out."""

    def devices(self, part: Part, prefix: str) -> list[str]:
        """The devices of a part of which some key with such a beginning was read."""
        found = {
            source.device
            for key, sources in self._places.items()
            if key.startswith(prefix)
            for source in sources
            if (source.segment, source.host) == (part.segment, part.host)
        }
        return sorted(found)

    def places(self, part: Part, key: str, device: str | None = None) -> list[Source]:
        """Where a key was read in a part: of any device, or of one."""
        return [
            source
            for source in self._places.get(key, ())
            if (source.segment, source.host) == (part.segment, part.host)
            and (device is None or source.device == device)
        ]

    def metered(self, part: Part, sources: Sequence[Source], key: str, meter: Meter) -> Metered:
        """What a key adds up to while the part was live, all sources together."""
        found = []
        for source in sources:
            points = self._run.series(key, source.rank, source.segment, source.host, source.device)
            found += [meter(points.times_ns, points.values, stretch) for stretch in part.stretches]
        return total(found)


def _parts(run: Run, now_ns: int) -> list[Part]:
    hosts: dict[tuple[str, str], list[Process]] = {}
    for segment in run.segments:
        for process in _counted(segment):
            hosts.setdefault((segment.id, process.host), []).append(process)
    whole = {key: _stretch(processes, now_ns) for key, processes in hosts.items()}
    keys = list(hosts)
    parts = []
    for number, (segment_id, host) in enumerate(keys):
        later = [whole[key] for key in keys[number + 1 :] if key[1] == host]
        stretches = tuple(without(whole[segment_id, host], later))
        parts.append(Part(segment_id, host, tuple(hosts[segment_id, host]), stretches))
    return parts


def _live_seconds(run: Run, now_ns: int) -> float:
    whole = [_stretch(counted, now_ns) for segment in run.segments if (counted := _counted(segment))]
    left = [piece for number, one in enumerate(whole) for piece in without(one, whole[number + 1 :])]
    return sum(stretch.seconds for stretch in left)


def _counted(segment: SegmentInfo) -> list[Process]:
    """Loader workers come and go; a time of zero is one that a damaged journal did not tell."""
    return [one for one in segment.processes if one.role != "worker" and one.started_ns]


def _stretch(processes: Sequence[Process], now_ns: int) -> Stretch:
    ends = [now_ns if one.status in LIVE else one.ended_ns or one.last_ns for one in processes]
    return Stretch(min(one.started_ns for one in processes), max(ends))
