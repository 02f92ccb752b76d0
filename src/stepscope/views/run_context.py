"""What several parts of a run's page need, read once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stepscope.reading import Run
from stepscope.schema.run import LIVE, RunInfo, segments_of
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.machine.gpu_names import own_gpus
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.run_verdict import findings_of, shown_findings
from stepscope.views.runs.run_rows import FigureCache
from stepscope.views.steps.step_values import step_seconds

if TYPE_CHECKING:
    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.devices.gpu import GpuFacts
    from stepscope.schema.record import Event
    from stepscope.store.base import Reader
    from stepscope.views.metrics.series_summaries import HostDevice
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks
    from stepscope.views.steps.step_values import StepValues

MAX_RANKS = 16
"""Maximum number of ranks whose steps are read one by one; sums cover all ranks."""


def stored_run(reader: Reader, run_id: str) -> Run:
    """Returns a run as its processes recorded it, for an agent, which needs no name and project."""
    return Run(RunInfo(run_id, run_id, "", 0, segments_of(reader.processes(run_id))), reader)


class RunContext:
    """A run at one moment, with what was read of it."""

    def __init__(self, run: Run, marks: Marks, now_ns: int, cache: FigureCache | None = None) -> None:
        self.run, self.marks, self.now_ns = run, marks, now_ns
        self._cache = cache or FigureCache()

    @property
    def is_live(self) -> bool:
        """Whether the run is still running."""
        return self.run.status in LIVE

    @functools.cached_property
    def figures(self) -> RunFigures:
        """The figures that a list of runs shows."""
        return self._cache.of(self.run, self.now_ns)

    @functools.cached_property
    def diagnosis(self) -> Diagnosis:
        """The results of all checks now."""
        return self.run.diagnose()

    @functools.cached_property
    def findings(self) -> dict[str, dict[str, Any]]:
        """The findings that are open and not muted, by their ids."""
        muted = self.marks.muted(self.run.id, self.run.project)
        findings = shown_findings(findings_of(self.run, self.diagnosis), muted)
        return {str(finding.get("id")): finding for finding in findings}

    @functools.cached_property
    def summaries(self) -> SeriesSummaries:
        """The summaries of all its series."""
        return SeriesSummaries(self.run.summaries())

    @functools.cached_property
    def events(self) -> dict[str, list[Event]]:
        """All events by kind, oldest first."""
        events_by_kind: dict[str, list[Event]] = {}
        for event in self.run.events():
            events_by_kind.setdefault(event.kind, []).append(event)
        return events_by_kind

    @functools.cached_property
    def own_events(self) -> dict[str, list[Event]]:
        """The events that stepscope itself recorded, by kind, oldest first."""
        by_kind = {
            kind: [event for event in events if not event.by_user] for kind, events in self.events.items()
        }
        return {kind: events for kind, events in by_kind.items() if events}

    @functools.cached_property
    def gpus(self) -> dict[HostDevice, GpuFacts]:
        """The facts of its GPUs."""
        return known_gpus(self.run) if "device" in self.own_events else {}

    @functools.cached_property
    def own_gpus(self) -> set[HostDevice]:
        """The GPUs that count for the run."""
        return own_gpus(self.run, self.summaries, self.gpus)

    @functools.cached_property
    def ranks(self) -> list[int]:
        """The ranks that log steps."""
        key = self.summaries.step_key()
        return self.summaries.ranks(key) if key is not None else []

    @functools.cached_property
    def step_seconds(self) -> dict[int, StepValues]:
        """The step times of each rank; only of the first ranks if there are many."""
        return {rank: step_seconds(self.run, self.summaries, rank) for rank in self.ranks[:MAX_RANKS]}

    @property
    def first_rank_seconds(self) -> StepValues | None:
        """The step times of the lowest rank; None if no steps are known."""
        return next((seconds for seconds in self.step_seconds.values() if len(seconds)), None)

    def keep_own_gpus(self, by_device: dict[HostDevice, float]) -> dict[HostDevice, float]:
        """Returns the values of the run's own GPUs; of all devices if none of its own has one."""
        devices = {host_device: value for host_device, value in by_device.items() if host_device[1]}
        return {
            host_device: value for host_device, value in devices.items() if host_device in self.own_gpus
        } or devices
