"""The card of an ended run: how it ended, its energy, cost and best loss, and what changed before a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.robust import spread
from stepscope.number_format import number
from stepscope.schema.run import FAILED, Status
from stepscope.views.energy.energy import energy_of
from stepscope.views.formatting import duration, quantity
from stepscope.views.json_values import finite
from stepscope.views.logs.console_lines import Failure, console_of
from stepscope.views.logs.run_failure import MAX_SEARCHED, failure_of
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.metrics.catalogue import is_share
from stepscope.views.metrics.metric_meaning import unit_of
from stepscope.views.metrics.series_summaries import is_evaluation, is_loss
from stepscope.views.steps.step_rate import run_seconds
from stepscope.views.steps.step_values import MAX_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from stepscope.config.sections import Energy
    from stepscope.reading import Run
    from stepscope.store.base import SeriesSummary
    from stepscope.views.energy.energy import EnergyReport
    from stepscope.views.run_context import RunContext

    Floats = NDArray[np.float64]

MAX_LOG_LINES = 20
BUCKETS = 1000

LAST_S, BEFORE_S = 60.0, 360.0
MIN_BEFORE, MIN_LAST = 5, 1
MIN_SIGMAS = 6.0
MIN_CHANGE = 0.2
"""Relative change of a value below which it is not listed."""

MIN_SHARE_CHANGE = 0.1
"""Absolute change of a share below which it is not listed; a share may have been close to 0."""

MAX_CHANGES = 6
MAX_SERIES = 400

_IGNORED_KEYS = ("_total", "epoch", "stepscope/", "sampled_ratio", "learning_rate")


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: Status
    text: str
    last_step: int | None
    failure: Failure | None
    """Why the run failed; None if it ended normally."""
    last_loss: str | None
    """The newest loss as text: a number, NaN, ∞ or -∞."""
    log_lines: tuple[str, ...]
    duration_s: float
    energy_kwh: float | None
    cost: str | None
    best: str | None
    changed: tuple[str, ...]
    """What changed in the last minute; empty if the run ended normally."""


def ended_of(context: RunContext, settings: Energy) -> Ended | None:
    """Returns the card; None while the run is live."""
    run = context.run
    if context.is_live:
        return None
    duration_s = run_seconds(run, context.now_ns)
    step = context.figures.step
    went_wrong = run.status in FAILED
    energy = energy_of(run, settings, context.now_ns)
    failure = failure_of(run)
    at = "" if step is None else f" at step {step:,}"
    return Ended(
        status=run.info.status,
        text=f"{run.status.capitalize()} after {duration(duration_s)}{at}.",
        last_step=step,
        failure=failure,
        last_loss=_last_loss(context),
        log_lines=_last_lines(run, failure),
        duration_s=duration_s,
        # Every run uses some energy, so 0 means that it was not measured.
        energy_kwh=finite(energy.total.value) or None,
        cost=_cost(energy),
        best=best_of(context),
        changed=changes_before_end(context) if went_wrong else (),
    )


def _last_loss(context: RunContext) -> str | None:
    figures = context.figures
    return figures.loss_nonfinite or (None if figures.loss_last is None else number(figures.loss_last))


def _last_lines(run: Run, failure: Failure | None) -> tuple[str, ...]:
    """Returns the last lines; of a failed run those before the traceback, which is shown separately."""
    trace = failure.traceback if failure is not None else None
    texts = [line.text for line in console_of(run, limit=MAX_SEARCHED if trace else MAX_LOG_LINES).lines]
    trace_lines = set((trace or "").split("\n"))
    # Log files indent the traceback.
    while trace and texts and {texts[-1], texts[-1].removeprefix("    ")} & {*trace_lines, ""}:
        texts.pop()
    return tuple(texts[-MAX_LOG_LINES:])


def best_of(context: RunContext) -> str | None:
    """Returns the lowest loss and its step as text; the evaluation loss if there is one."""
    summaries = context.summaries
    evaluated = sorted(
        key for key in summaries.keys if is_loss(key) and is_evaluation(key) and summaries.logged(key)
    )
    key = evaluated[0] if evaluated else summaries.loss_key()
    if key is None:
        return None
    best = summaries.with_minimum(key)
    if best is None or best.minimum is None:
        return None
    step = _step_of_minimum(context.run, best)
    return f"{key} {number(best.minimum)}" + ("" if step is None else f" at step {step:,}")


def _step_of_minimum(run: Run, series: SeriesSummary) -> int | None:
    """Returns the first step with the minimum, searched in buckets so that a long series is not read whole.

    Returns None if the points cannot be read.
    """
    source = series.source
    low, high = None, None
    while True:
        buckets = run.buckets(
            series.key,
            BUCKETS,
            low=low,
            high=high,
            rank=source.rank,
            segment=source.segment,
            host=source.host,
            device=source.device,
            axis="step",
        )
        if np.isnan(buckets.minimum).all():
            return None
        index = int(np.nanargmin(buckets.minimum))
        low = int(buckets.starts[index])
        if buckets.width == 1:
            return low
        high = low + buckets.width - 1


def _cost(energy: EnergyReport) -> str | None:
    """Returns the rental cost as text, otherwise the cost of electricity; None if no price is known."""
    cost = energy.cost()
    return None if cost.value is None else f"{cost.value:,.2f} {cost.unit} ({cost.method})"


@dataclass(frozen=True)
class _Change:
    key: str
    label: str
    before: float
    after: float
    sigmas: float

    def sentence(self) -> str:
        verb = "rose" if self.after > self.before else "fell"
        unit = unit_of(self.key)
        return (
            f"{self.key}{self.label} {verb} from {quantity(self.before, unit)}"
            f" to {quantity(self.after, unit)}"
        )


def changes_before_end(context: RunContext) -> tuple[str, ...]:
    """Returns sentences on what changed before the end, the largest change first."""
    end = context.run.info.last_ns / 1e9
    nonfinite: list[str] = []
    changes: list[_Change] = []
    series = [summary for key in context.summaries.keys for summary in _candidates(context, key, end)]
    for summary in series[:MAX_SERIES]:
        times, values = _last_points(context, summary, end)
        if len(times) and not np.isfinite(values[-1]):
            nonfinite.append(f"{summary.key}{_label(context, summary)} was no longer finite")
            continue
        change = _change(context, summary, times, values)
        if change is not None:
            changes.append(change)
    changes.sort(key=lambda change: -change.sigmas)
    return tuple([*nonfinite, *(change.sentence() for change in changes)][:MAX_CHANGES])


def _candidates(context: RunContext, key: str, end: float) -> Iterator[SeriesSummary]:
    if any(part in key for part in _IGNORED_KEYS):
        return
    series = [*context.summaries.sampled(key), *context.summaries.logged(key)]
    newest = context.run.segments[-1].id
    yield from (
        summary
        for summary in series
        if summary.source.segment == newest and summary.last_ns / 1e9 > end - LAST_S
    )


def _last_points(context: RunContext, summary: SeriesSummary, end: float) -> tuple[Floats, Floats]:
    """Returns times and values of the last minutes, from rollups so that long runs cost no more."""
    source = summary.source
    if source.axis == "seconds":
        low, max_buckets = int(end - BEFORE_S), int(BEFORE_S) + 60
    else:
        steps_per_second = context.figures.steps_per_second or 1.0
        steps = int(min(max(steps_per_second * BEFORE_S, 64), 20_000))
        low, max_buckets = (summary.last_step or 0) - steps, min(steps + 1, 2_000)
    buckets = context.run.buckets(
        summary.key,
        max_buckets,
        low=low,
        rank=source.rank,
        segment=source.segment,
        host=source.host,
        device=source.device,
        axis=source.axis,
    )
    is_recent = buckets.times > end - BEFORE_S
    # The last value of a bucket shows a value that is not finite.
    return buckets.times[is_recent], buckets.last[is_recent]


def _change(context: RunContext, summary: SeriesSummary, times: Floats, values: Floats) -> _Change | None:
    if not len(times):
        return None
    known = np.abs(values) < MAX_VALUE
    is_last = times > times[-1] - LAST_S
    before, last = values[known & ~is_last], values[known & is_last]
    if len(before) < MIN_BEFORE or len(last) < MIN_LAST:
        return None
    # The last quarter of the minute shows a jump in the last seconds.
    latest = last[-max(len(last) // 4, 1) :]
    level, now = float(np.median(before)), float(np.median(latest))
    min_change = MIN_SHARE_CHANGE if is_share(summary.key, summary.maximum) else MIN_CHANGE * abs(level)
    noise = max(float(spread(before)), 1e-9 * abs(level), 1e-12)
    sigmas = abs(now - level) / noise
    if abs(now - level) < max(min_change, 1e-12) or sigmas < MIN_SIGMAS:
        return None
    return _Change(summary.key, _label(context, summary), level, now, sigmas)


def _label(context: RunContext, summary: SeriesSummary) -> str:
    host_device = (summary.source.host, summary.source.device)
    if host_device in context.gpus:
        several_hosts = len(context.run.segments[-1].processes) > 1
        return f" of {label_of(host_device, context.gpus, several_hosts=several_hosts)}"
    if summary.source.rank is not None and len(context.ranks) > 1:
        return f" of rank {summary.source.rank}"
    return f" of {summary.source.device}" if summary.source.device else ""
