"""The overview page of a run: verdict, tiles, phases, charts, events, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.analysis.verdict import Verdict  # noqa: TC001 - the schema of the API reads it
from stepscope.config.sections import Energy
from stepscope.views.alerts.alert_rows import AlertRow, alert_rows
from stepscope.views.overview.charts import ChartSpec, key_charts, system_charts
from stepscope.views.overview.ended import Ended, ended_of
from stepscope.views.overview.event_marks import EventMark, event_marks
from stepscope.views.overview.missing import Missing, missing_of
from stepscope.views.overview.run_environment import Labelled, environment_of
from stepscope.views.overview.run_verdict import verdict_for
from stepscope.views.overview.target_figures import TargetFigure, target_figures
from stepscope.views.overview.tile import Tile  # noqa: TC001 - the schema of the API reads it
from stepscope.views.overview.tile_gpu import gpu_tile
from stepscope.views.overview.tile_memory import memory_tile
from stepscope.views.overview.tile_steps import step_time_tile, throughput_tile
from stepscope.views.overview.wall_time import WallTime, wall_time_of
from stepscope.views.run_context import RunContext
from stepscope.views.steps.phase_breakdown import PhaseShare, phases_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepscope.reading import Run
    from stepscope.views.runs.marks import Marks
    from stepscope.views.runs.run_rows import FigureCache


@dataclass(frozen=True)
class Overview:
    """One run at a glance: the contents of its overview page."""

    verdict: Verdict
    tiles: tuple[Tile, ...]
    targets: tuple[TargetFigure, ...]
    """The targets that its settings have; empty for most runs."""
    phases: tuple[PhaseShare, ...]
    wall_time: WallTime | None
    key_charts: tuple[ChartSpec, ...]
    system_charts: tuple[ChartSpec, ...]
    events: tuple[EventMark, ...]
    """Of a kind with very many events, a selection over the whole run."""
    event_counts: dict[str, int]
    """The number of all events, by kind."""
    alerts: tuple[AlertRow, ...]
    environment: tuple[Labelled, ...]
    ended: Ended | None
    waiting_s: float | None
    """How long a live run has been running without a logged step; None otherwise."""
    missing: tuple[Missing, ...]


def overview_of(
    run: Run,
    marks: Marks,
    now_ns: int,
    *,
    energy: Energy | None = None,
    cache: FigureCache | None = None,
    acknowledged: Collection[int] = (),
) -> Overview:
    """Returns the overview of a run.

    `energy` has the prices to use, `cache` the figures of runs that a server has read before, and
    `acknowledged` the ids of acknowledged alerts.
    """
    context = RunContext(run, marks, now_ns, cache)
    alerts = alert_rows(run, marks, acknowledged)
    marked = event_marks(context, alerts)
    return Overview(
        verdict=verdict_for(run, marks.muted(run.id, run.project), context.figures, context.diagnosis),
        tiles=(
            throughput_tile(context),
            step_time_tile(context),
            gpu_tile(context),
            memory_tile(context),
        ),
        targets=target_figures(context, energy or Energy()),
        phases=phases_of(run, context.summaries),
        wall_time=wall_time_of(run, context.summaries, now_ns),
        key_charts=key_charts(context.summaries),
        system_charts=system_charts(context.summaries),
        events=marked.marks,
        event_counts=marked.counts,
        alerts=tuple(alerts),
        environment=environment_of(context),
        ended=ended_of(context, energy or Energy()),
        waiting_s=_waiting_s(context),
        missing=missing_of(context),
    )


def _waiting_s(context: RunContext) -> float | None:
    is_training = any(process.role in ("rank", "launcher") for process in context.run.segments[-1].processes)
    if not context.is_live or not is_training or context.summaries.step_key() is not None:
        return None
    return max(context.now_ns - context.run.segments[-1].started_ns, 0) / 1e9
