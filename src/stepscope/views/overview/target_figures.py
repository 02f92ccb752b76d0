"""The targets of a run, each with its current figure and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from stepscope.analysis.change_points import MAX_WARM_UP_STEPS, warm_up_length
from stepscope.config.sections import Targets, recorded_targets
from stepscope.number_format import number
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.run import deciding_process
from stepscope.views.energy.energy import energy_of, recorded_prices
from stepscope.views.energy.figure import Figure, unknown
from stepscope.views.formatting import duration
from stepscope.views.overview.tile import State  # noqa: TC001 - the schema of the API reads it
from stepscope.views.overview.tile_gpu import CPU, utilization_by_gpu, utilization_by_host
from stepscope.views.overview.tile_steps import MIN_JUDGED, NO_STEPS, TOO_FEW, work_per_step
from stepscope.views.run_context import RunContext, stored_run
from stepscope.views.run_figures import UTILIZATION
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import eta_s
from stepscope.views.steps.step_rate import RECENT_S, run_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.config.sections import Energy
    from stepscope.reading import Run
    from stepscope.store.base import Reader, SeriesSummary
    from stepscope.views.metrics.series_summaries import HostDevice

TargetId = Literal[
    "steps_per_second", "samples_per_second", "gpu_utilization_percent", "cpu_utilization_percent", "cost"
]
TITLES: dict[TargetId, str] = {
    "steps_per_second": "Steps per second",
    "samples_per_second": "Samples per second",
    "gpu_utilization_percent": "GPU utilization",
    "cpu_utilization_percent": "CPU utilization",
    "cost": "Cost",
}
MAX_BUCKETS = 64
NOT_KNOWN = "not known"
WARMING_UP = "not judged during the warm-up"


@dataclass(frozen=True)
class TargetFigure:
    """A target of a run and the figure that it is compared with."""

    id: TargetId
    title: str
    target: float
    value: float | None
    """The current figure; None if it is not known."""
    unit: str
    is_met: bool | None
    """None if that cannot be judged."""
    expected: float | None
    """The cost at the end of the run at its current speed; None for other targets, and if it is not known."""
    target_text: str
    value_text: str
    state: State
    state_text: str
    detail: str
    """How the figure was determined, or why it is not known."""


def target_figures(context: RunContext, energy: Energy) -> tuple[TargetFigure, ...]:
    """Returns the targets that are set for the run; `energy` has the prices to use."""
    targets = targets_of(context.run)
    if targets == Targets():
        return ()
    is_early = context.is_live and is_warming_up(context)
    figures = [
        _rate(target, goal, RATES[target](context), is_early=is_early) for target, goal in _rates(targets)
    ]
    return (*figures, *([] if targets.cost is None else [_cost(context, targets.cost, energy)]))


def targets_of(run: Run) -> Targets:
    """Returns the targets that the run was started with."""
    process = deciding_process(process for segment in run.segments for process in segment.processes)
    return recorded_targets({} if process is None else process.facts)


def judged_rates(reader: Reader, run_id: str, targets: Targets, now_ns: int) -> dict[str, float]:
    """Returns the current figures of a live run that its alerts judge; none in its warm-up and a stall."""
    context = _context(reader, run_id, now_ns)
    if context.run.status != "running" or is_warming_up(context):
        return {}
    figures = {target: RATES[target](context).value for target, _ in _rates(targets)}
    return {target: value for target, value in figures.items() if value is not None}


def cost_so_far(reader: Reader, run_id: str, energy: Energy, now_ns: int) -> float | None:
    """Returns what a run has cost until now, in the currency of its targets; None if that is not known."""
    return energy_of(_context(reader, run_id, now_ns).run, energy, now_ns).cost(energy.currency).value


def _context(reader: Reader, run_id: str, now_ns: int) -> RunContext:
    return RunContext(stored_run(reader, run_id), NoMarks(), now_ns)


def _rates(targets: Targets) -> list[tuple[TargetId, float]]:
    goals = [(target, getattr(targets, target)) for target in get_args(TargetId) if target in RATES]
    return [(target, goal) for target, goal in goals if goal is not None]


def is_warming_up(context: RunContext) -> bool:
    """Whether too few steps were made since the warm-up of the newest segment."""
    key = context.summaries.step_key()
    newest = None if key is None else _newest(context, context.summaries.by_first_rank(key))
    if newest is None:
        return True
    if newest.points >= 2 * MAX_WARM_UP_STEPS:
        return False
    source = newest.source
    points = context.run.series(
        newest.key, source.rank, source.segment, source.host, source.device, source.axis
    )
    seconds = points.values if newest.key == STEP_SECONDS else np.diff(points.times)
    return len(seconds) - warm_up_length(seconds) < MIN_JUDGED


def _newest(context: RunContext, series: list[SeriesSummary]) -> SeriesSummary | None:
    segment = context.run.segments[-1].id
    return next((summary for summary in reversed(series) if summary.source.segment == segment), None)


def _steps(context: RunContext) -> Figure:
    steps_per_second = context.figures.steps_per_second
    if steps_per_second is None:
        return unknown("steps/s", NO_STEPS if context.first_rank_seconds is None else TOO_FEW)
    return Figure(steps_per_second, "steps/s", _period(context), "")


def _samples(context: RunContext) -> Figure:
    steps = _steps(context)
    per_step = work_per_step(context).get("samples")
    if per_step is None:
        return unknown("samples/s", "log batch_size or samples_per_step to count them")
    if steps.value is None:
        return unknown("samples/s", steps.how)
    return Figure(steps.value * per_step, "samples/s", steps.method, "")


def _gpu(context: RunContext) -> Figure:
    means = utilization_by_gpu(context)
    return _utilization(context, UTILIZATION, means, "no GPU was read")


def _cpu(context: RunContext) -> Figure:
    return _utilization(context, CPU, utilization_by_host(context), "the CPU was not read")


RATES: dict[TargetId, Callable[[RunContext], Figure]] = {
    "steps_per_second": _steps,
    "samples_per_second": _samples,
    "gpu_utilization_percent": _gpu,
    "cpu_utilization_percent": _cpu,
}
"""The figure of each target that is a least value: as on the tiles, but a live run has recent utilization."""


def _utilization(context: RunContext, key: str, means: dict[HostDevice, float], why_not: str) -> Figure:
    if context.is_live:
        recent = {host_device: _recent_mean(context, key, host_device) for host_device in means}
        means = {host_device: mean for host_device, mean in recent.items() if mean is not None}
    if not means:
        return unknown("%", why_not)
    return Figure(100 * sum(means.values()) / len(means), "%", _period(context), "")


def _recent_mean(context: RunContext, key: str, host_device: HostDevice) -> float | None:
    series = [
        summary
        for summary in context.summaries.sampled(key)
        if (summary.source.host, summary.source.device) == host_device
    ]
    newest = _newest(context, series)
    if newest is None:
        return None
    host, device = host_device
    buckets = context.run.buckets(
        key,
        MAX_BUCKETS,
        low=int(newest.last_ns / 1e9 - RECENT_S),
        segment=newest.source.segment,
        host=host,
        device=device,
        axis="seconds",
    )
    finite = buckets.count - buckets.nonfinite
    return float(np.nansum(buckets.mean * finite) / finite.sum()) if finite.sum() else None


def _period(context: RunContext) -> str:
    return f"last {duration(RECENT_S)}" if context.is_live else "whole run"


def _rate(target: TargetId, goal: float, figure: Figure, *, is_early: bool) -> TargetFigure:
    value = figure.value
    is_met = None if value is None or is_early else value >= goal
    text = NOT_KNOWN if value is None else WARMING_UP
    if is_met is not None and value is not None:
        text = "met" if is_met else f"{_written(goal - value, figure.unit)} below the target"
    return _figure(target, goal, figure, is_met=is_met, text=text)


def _cost(context: RunContext, goal: float, energy: Energy) -> TargetFigure:
    # The target is in the currency of the run, whatever the currency of these prices.
    figure = energy_of(context.run, energy, context.now_ns).cost(recorded_prices(context.run).currency)
    if figure.value is None:
        return _figure("cost", goal, figure, is_met=None, text=NOT_KNOWN)
    expected = _expected_cost(context, figure.value)
    is_met = figure.value <= goal
    text = f"{_written(figure.value - goal, figure.unit)} above the target"
    if is_met:
        text = "met" if expected is None else "met so far"
    if expected is not None:
        text += f"; {_written(expected, figure.unit)} expected at the end"
    return _figure("cost", goal, figure, is_met=is_met, text=text, expected=expected)


def _expected_cost(context: RunContext, cost: float) -> float | None:
    """Returns the cost at the end of a live run: the rest costs as much per second as the time until now."""
    remaining_s, took_s = eta_s(context.figures), run_seconds(context.run, context.now_ns)
    if not context.is_live or remaining_s is None or took_s <= 0:
        return None
    return cost * (1 + remaining_s / took_s)


def _figure(
    target: TargetId,
    goal: float,
    figure: Figure,
    *,
    is_met: bool | None,
    text: str,
    expected: float | None = None,
) -> TargetFigure:
    states: dict[bool | None, State] = {True: "ok", False: "warn", None: "unknown"}
    return TargetFigure(
        id=target,
        title=TITLES[target],
        target=goal,
        value=figure.value,
        unit=figure.unit,
        is_met=is_met,
        expected=expected,
        target_text=_written(goal, figure.unit),
        value_text="–" if figure.value is None else _written(figure.value, figure.unit),
        state=states[is_met],
        state_text=text,
        detail=figure.method or figure.how,
    )


def _written(value: float, unit: str) -> str:
    if unit == "%":
        return f"{number(value, 3)}%"
    is_money_of_cents = not unit.endswith("/s") and value >= 1
    return f"{value:,.2f} {unit}" if is_money_of_cents else f"{number(value, 3)} {unit}"
