"""Reads every GPU of the host: utilisation, memory, temperature, clocks, and the processes on it."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stepscope.devices.find_gpus import GpusFound, find_gpus
from stepscope.devices.gpu_metrics import METRICS, figures_of
from stepscope.devices.gpu_watch import GpuWatch
from stepscope.devices.process.process_tree import owners_of, parent_of
from stepscope.devices.scripted import play_lines
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Notice, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stepscope.devices.gpu import GpuFacts, GpuProcess, GpuReading
    from stepscope.schema.sample import Reading, Watched


class GpuSampler(Sampler):
    """Samples each GPU under its UUID; the usage of a recording process belongs to that process as well."""

    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    def __init__(
        self,
        thorough_every_s: float = 10.0,
        *,
        performance_counters: bool = True,
        played: str | None = None,
        _find: Callable[..., GpusFound] = find_gpus,
        _now: Callable[[], float] = time.monotonic,
        _parent_of: Callable[[int], int | None] = parent_of,
    ) -> None:
        """Reads errors, links and limits, which change slowly, every `thorough_every_s`.

        Without `performance_counters` (SM, tensor and memory activity, on Hopper and newer) those counters
        stay free for another profiler of the host. `played` is a file of recorded readings to replay instead
        of reading GPUs.
        """
        find = functools.partial(_find, performance_counters=performance_counters)
        if played is not None:
            find = functools.partial(_find_played, Path(played))
        self._watch = GpuWatch(thorough_every_s, find, _now)
        self._parent_of = _parent_of

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        """Reads all GPUs; one that does not answer does not affect the others."""
        return list(self._sample(watched))

    def close(self) -> None:
        """Closes the GPUs."""
        self._watch.close()

    def _sample(self, watched: Sequence[Watched]) -> Iterator[Reading]:
        gpu_readings: list[tuple[GpuFacts, GpuReading]] = []
        for update in self._watch.read():
            if isinstance(update, tuple):
                gpu_readings.append(update)
            else:
                yield update
        find_parent = functools.cache(self._parent_of)
        for facts, reading in gpu_readings:
            yield Sample(figures_of(reading), device=facts.uuid)
            for owner, processes in _by_owner(reading.processes or (), watched, find_parent):
                if values := _process_values(processes):
                    yield Sample(values, device=facts.uuid, owner=owner)
        if len(gpu_readings) > 1:
            yield Sample(_total_values(gpu_readings))


def _find_played(path: Path) -> GpusFound:
    try:
        with path.open(encoding="utf-8") as lines:
            return GpusFound(play_lines(lines), ())
    except (OSError, ValueError, KeyError, TypeError) as error:
        return GpusFound((), [Notice("gpu/played", f"The recording {path} cannot be played: {error!r}.")])


def _by_owner(
    processes: Iterable[GpuProcess], watched: Sequence[Watched], find_parent: Callable[[int], int | None]
) -> list[tuple[Watched, list[GpuProcess]]]:
    """The processes on a GPU that belong to each recording process."""
    owned: dict[Watched, list[GpuProcess]] = {}
    for process in processes if watched else ():
        for owner in owners_of(process.pid, watched, find_parent):
            owned.setdefault(owner, []).append(process)
    return list(owned.items())


def _process_values(processes: Sequence[GpuProcess]) -> dict[str, float]:
    """The usage of a GPU by several processes together; a figure that one of them lacks is left out."""
    memory = _sum([process.memory_bytes for process in processes])
    busy = _sum([process.utilization_ratio for process in processes])
    values = {}
    if memory is not None:
        values["gpu/process_memory_bytes"] = memory
    if busy is not None:
        values["gpu/process_utilization_ratio"] = min(busy, 1.0)
    return values


def _total_values(gpu_readings: Sequence[tuple[GpuFacts, GpuReading]]) -> dict[str, float]:
    """Totals of several GPUs. The mean hides an idle GPU, so the minimum is reported too."""
    # Power and memory of a slice are included in its whole GPU's.
    whole = [reading for facts, reading in gpu_readings if facts.parent_uuid is None]
    busy = [reading.utilization_ratio for _, reading in gpu_readings if reading.utilization_ratio is not None]
    together = {
        "gpu/total_power_watts": _sum([reading.power_watts for reading in whole]),
        "gpu/total_memory_used_bytes": _sum([reading.memory_used_bytes for reading in whole]),
        "gpu/mean_utilization_ratio": sum(busy) / len(busy) if busy else None,
        "gpu/least_utilization_ratio": min(busy, default=None),
    }
    return {key: figure for key, figure in together.items() if figure is not None}


def _sum(parts: Sequence[float | None]) -> float | None:
    """A sum; None when a part of it is not known."""
    known = [float(part) for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
