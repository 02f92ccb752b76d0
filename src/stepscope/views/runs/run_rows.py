"""The rows of the list of runs: status, progress, speed, loss, verdict, and what people added."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.analysis.verdict import MIN_STEPS, Verdict
from stepscope.number_format import NonFinite  # noqa: TC001 - the schema of the API reads it
from stepscope.schema.run import LIVE, Status
from stepscope.views.history.run_record import record_of
from stepscope.views.json_values import Scalar, clean
from stepscope.views.overview.run_verdict import recorded_checks, verdict_for
from stepscope.views.run_figures import figures_of
from stepscope.views.runs.attention import attention_of
from stepscope.views.steps.step_rate import run_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.reading import Run, Runs
    from stepscope.views.history.run_record import RunRecord
    from stepscope.views.run_figures import RunFigures
    from stepscope.views.runs.marks import Marks

SETTLED_NS = 15_000_000_000
"""After this time an ended run receives no more data: the last readings have been stored."""

MAX_DIAGNOSED = 10
"""Maximum number of runs that one list diagnoses; each takes about 20 ms."""

MAX_NAME = 300


@dataclass(frozen=True)
class RunRow:
    """A run in a list; None for what is not known."""

    id: str
    name: str
    project: str
    status: Status
    reason: str
    started: float
    ended: float | None
    duration_s: float
    """The sum of its segments, without the time between them."""
    last_seen: float
    step: int | None
    total_steps: int | None
    steps_per_second: float | None
    eta_s: float | None
    loss_last: float | None
    loss_best: float | None
    loss_nonfinite: NonFinite | None
    """The newest loss if it is not a finite number."""
    loss_key: str | None
    data_wait_ratio: float | None
    gpu_mean_ratio: float | None
    gpu_worst_ratio: float | None
    gpu_worst: str | None
    peak_memory_bytes: float | None
    verdict: Verdict
    attention: str | None
    """What needs attention, in a sentence; None if nothing does."""
    open_alerts: int
    tags: tuple[str, ...]
    archived: bool
    colour: str | None
    hosts: tuple[str, ...]
    ranks: int
    segments: int
    config: dict[str, Scalar]
    spark: tuple[float | None, ...]
    """At most 40 values of the loss."""


class FigureCache:
    """Caches the figures of ended runs, which change only if a run is resumed."""

    def __init__(self) -> None:
        self._figures: dict[str, tuple[tuple[object, ...], RunFigures]] = {}
        self._diagnosed: dict[str, tuple[tuple[object, ...], Diagnosis]] = {}
        self._records: dict[str, tuple[tuple[object, ...], RunRecord]] = {}
        self._diagnoses_left = MAX_DIAGNOSED

    def of(self, run: Run, now_ns: int) -> RunFigures:
        """Returns the figures of a run; they are read again if they may have changed."""
        version = _version(run)
        cached = self._figures.get(run.id)
        if cached is not None and cached[0] == version:
            return cached[1]
        figures = figures_of(run)
        if self._is_settled(run, now_ns):
            self._figures[run.id] = version, figures
        return figures

    def record(self, run: Run, now_ns: int) -> RunRecord:
        """Returns what the history of its project uses of a run."""
        version = _version(run)
        cached = self._records.get(run.id)
        if cached is not None and cached[0] == version:
            return cached[1]
        record = record_of(run)
        if self._is_settled(run, now_ns):
            self._records[run.id] = version, record
        return record

    def begin_list(self) -> None:
        """Allows the next list to diagnose some runs that no agent has checked."""
        self._diagnoses_left = MAX_DIAGNOSED

    def diagnosis(self, run: Run, now_ns: int) -> Diagnosis | None:
        """Returns the diagnosis of a run that no agent has checked; None if one has, or at the limit.

        A page diagnoses each run it shows. A list of hundreds cannot: it diagnoses some of them, and others
        the next time, because the diagnosis of an ended run is cached.
        """
        version = _version(run)
        cached = self._diagnosed.get(run.id)
        if cached is not None and cached[0] == version:
            return cached[1]
        if (
            self._diagnoses_left <= 0
            or self.of(run, now_ns).points < MIN_STEPS
            or recorded_checks(run) is not None
        ):
            return None
        self._diagnoses_left -= 1
        diagnosis = run.diagnose()
        if self._is_settled(run, now_ns):
            self._diagnosed[run.id] = version, diagnosis
        return diagnosis

    def forget_others(self, run_ids: Iterable[str]) -> None:
        """Removes runs that no longer exist."""
        existing = set(run_ids)
        for entries in (self._figures, self._diagnosed, self._records):
            for run_id in entries.keys() - existing:
                entries.pop(run_id, None)

    @staticmethod
    def _is_settled(run: Run, now_ns: int) -> bool:
        return run.status not in LIVE and now_ns - run.info.last_ns > SETTLED_NS


def run_rows(
    runs: Runs, marks: Marks, now_ns: int | None = None, cache: FigureCache | None = None
) -> list[RunRow]:
    """Returns a row for each run, oldest first; a `cache` makes repeated calls cheap."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    cache = cache or FigureCache()
    all_runs = runs.runs()
    cache.forget_others(run.id for run in all_runs)
    cache.begin_list()
    # The newest runs are at the top of a list, so they are diagnosed first.
    return [run_row(run, marks, now_ns, cache) for run in reversed(all_runs)][::-1]


def run_row(run: Run, marks: Marks, now_ns: int, cache: FigureCache | None = None) -> RunRow:
    """Returns the row of one run."""
    cache = cache or FigureCache()
    figures, diagnosis = cache.of(run, now_ns), cache.diagnosis(run, now_ns)
    attention = attention_of(run, marks, figures, now_ns, diagnosis)
    is_live = run.status in LIVE
    processes = [
        process for segment in run.segments for process in segment.processes if process.role != "worker"
    ]
    newest = [process for process in run.segments[-1].processes if process.role == "rank"]
    started_ns = run.info.created_ns or min((process.started_ns for process in processes), default=0)
    ended_ns = None if is_live else run.info.ended_ns or run.info.last_ns
    return RunRow(
        id=run.id,
        name=clean(marks.name(run.id) or run.name, MAX_NAME),
        project=clean(run.project, MAX_NAME),
        status=run.info.status,
        reason=clean(run.reason),
        started=started_ns / 1e9,
        ended=None if ended_ns is None else ended_ns / 1e9,
        duration_s=run_seconds(run, now_ns),
        last_seen=max(run.info.last_ns, started_ns) / 1e9,
        step=figures.step,
        total_steps=figures.total_steps,
        steps_per_second=figures.steps_per_second,
        eta_s=eta_s(figures) if is_live else None,
        loss_last=figures.loss_last,
        loss_best=figures.loss_best,
        loss_nonfinite=figures.loss_nonfinite,
        loss_key=figures.loss_key,
        data_wait_ratio=figures.data_wait_ratio,
        gpu_mean_ratio=figures.gpu_mean_ratio,
        gpu_worst_ratio=figures.gpu_worst_ratio,
        gpu_worst=figures.gpu_worst,
        peak_memory_bytes=figures.peak_memory_bytes,
        verdict=verdict_for(run, marks.muted(run.id, run.project), figures, diagnosis),
        attention=None if attention is None else attention.what,
        # Alerts of an ended run are over.
        open_alerts=sum(process["resolved_ns"] is None for process in run.alerts()) if is_live else 0,
        tags=marks.tags(run.id),
        archived=marks.archived(run.id),
        colour=marks.colour(run.id),
        hosts=tuple(dict.fromkeys(clean(process.host, MAX_NAME) for process in processes)),
        ranks=len({process.rank for process in newest}),
        segments=len(run.segments),
        config=figures.config,
        spark=figures.spark,
    )


def eta_s(figures: RunFigures) -> float | None:
    """Returns the remaining seconds at the current speed; None if the end or the speed is not known."""
    if figures.total_steps is None or figures.step is None or not figures.steps_per_second:
        return None
    # Steps count from 0, so the last step's number plus 1 have been done.
    return max(figures.total_steps - figures.step - 1, 0) / figures.steps_per_second


def _version(run: Run) -> tuple[object, ...]:
    processes = sum(len(segment.processes) for segment in run.segments)
    return run.status, run.info.last_ns, run.info.ended_ns, len(run.segments), processes
