"""What several parts of a run's page need to know of it, read once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from stepscope.schema.run import LIVE
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.machine.gpu_names import own_gpus
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.runs.run_rows import FigureCache
from stepscope.views.steps.step_values import step_seconds

if TYPE_CHECKING:
    from stepscope.devices.gpu import GpuFacts
    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.views.metrics.series_summaries import HostDevice
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks
    from stepscope.views.steps.step_values import StepValues

MAX_RANKS = 16
"""So many ranks are looked at step by step; sums are of all."""


class RunContext:
    """One run at one moment."""

    def __init__(self, run: Run, marks: Marks, now_ns: int, cache: FigureCache | None = None) -> None:
        self.run, self.marks, self.now_ns = run, marks, now_ns
        self._cache = cache or FigureCache()

    @property
    def is_live(self) -> bool:
        """Whether it goes on."""
        return self.run.status in LIVE

    @functools.cached_property
    def figures(self) -> RunFigures:
        """What a list shows of it."""
        return self._cache.of(self.run, self.now_ns)

    @functools.cached_property
    def summaries(self) -> SeriesSummaries:
        """All of its series in a few numbers each."""
        return SeriesSummaries(self.run.summaries())

    @functools.cached_property
    def events(self) -> dict[str, list[Event]]:
        """What happened, by kind, oldest first."""
        events_by_kind: dict[str, list[Event]] = {}
        for event in self.run.events():
            events_by_kind.setdefault(event.kind, []).append(event)
        return events_by_kind

    @functools.cached_property
    def own_events(self) -> dict[str, list[Event]]:
        """What stepscope itself has noticed, by kind, oldest first."""
        by_kind = {
            kind: [event for event in events if not event.by_user] for kind, events in self.events.items()
        }
        return {kind: events for kind, events in by_kind.items() if events}

    @functools.cached_property
    def gpus(self) -> dict[HostDevice, GpuFacts]:
        """What its GPUs said of themselves."""
        return known_gpus(self.run) if "device" in self.own_events else {}

    @functools.cached_property
    def own_gpus(self) -> set[HostDevice]:
        """Those it answers for."""
        return own_gpus(self.run, self.summaries, self.gpus)

    @functools.cached_property
    def ranks(self) -> list[int]:
        """The ranks that log steps."""
        key = self.summaries.step_key()
        return self.summaries.ranks(key) if key is not None else []

    @functools.cached_property
    def step_seconds(self) -> dict[int, StepValues]:
        """How long steps took, rank by rank; of the first ranks where there are many."""
        return {rank: step_seconds(self.run, self.summaries, rank) for rank in self.ranks[:MAX_RANKS]}

    @property
    def of_first_rank(self) -> StepValues | None:
        """How long the steps of the lowest rank took; None where no steps are known."""
        return next((seconds for seconds in self.step_seconds.values() if len(seconds)), None)

    def of_own_gpus(self, by_device: dict[HostDevice, float]) -> dict[HostDevice, float]:
        """Figures of devices, of its own GPUs alone; of all where none of them has any."""
        devices = {host_device: value for host_device, value in by_device.items() if host_device[1]}
        return {
            host_device: value for host_device, value in devices.items() if host_device in self.own_gpus
        } or devices
