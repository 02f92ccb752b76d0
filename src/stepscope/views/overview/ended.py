"""The card of a run that has ended: how, when, what it used, its best, and what went before a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.number_format import number
from stepscope.views.energy.energy import energy_of
from stepscope.views.logs.console_lines import console_of
from stepscope.views.logs.failure import MAX_SEARCHED, WENT_WRONG, failure_of
from stepscope.views.metrics.series_summaries import is_evaluation, is_loss
from stepscope.views.overview.last_minute import changes_before_end
from stepscope.views.plain import finite
from stepscope.views.steps.pace import run_seconds
from stepscope.views.wording import duration

if TYPE_CHECKING:
    from stepscope.config.sections import Energy
    from stepscope.reading import Run
    from stepscope.store.base import SeriesSummary
    from stepscope.views.energy.energy import EnergyReport
    from stepscope.views.logs.failure import Failure
    from stepscope.views.run_context import RunContext

MAX_LOG_LINES = 20
BUCKETS = 1000


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: str
    text: str
    last_step: int | None
    failure: Failure | None
    """Why it went wrong; None where it ended as it should."""
    last_loss: str | None
    """The newest loss in words: a number, NaN, ∞ or -∞."""
    log_lines: tuple[str, ...]
    duration_s: float
    energy_kwh: float | None
    cost: str | None
    best: str | None
    changed: tuple[str, ...]
    """What changed in the last minute; empty where it ended as it should."""


def ended_of(scene: RunContext, settings: Energy) -> Ended | None:
    """The card; None while the run goes on."""
    run = scene.run
    if scene.is_live:
        return None
    took = run_seconds(run, scene.now_ns)
    step = scene.figures.step
    went_wrong = run.status in WENT_WRONG
    energy = energy_of(run, settings, scene.now_ns)
    failure = failure_of(run)
    at = "" if step is None else f" at step {step:,}"
    return Ended(
        status=run.status,
        text=f"{run.status.capitalize()} after {duration(took)}{at}.",
        last_step=step,
        failure=failure,
        last_loss=_last_loss(scene),
        log_lines=_last_lines(run, failure),
        duration_s=took,
        # Nothing at all is used by no run: it was not measured.
        energy_kwh=finite(energy.total.value) or None,
        cost=_cost(energy),
        best=best_of(scene),
        changed=changes_before_end(scene) if went_wrong else (),
    )


def _last_loss(scene: RunContext) -> str | None:
    figures = scene.figures
    return figures.loss_nonfinite or (None if figures.loss_last is None else number(figures.loss_last))


def _last_lines(run: Run, failure: Failure | None) -> tuple[str, ...]:
    """What was printed last; of a failure what was printed before its traceback, which is shown by itself."""
    trace = failure.traceback if failure is not None else None
    texts = [line.text for line in console_of(run, limit=MAX_SEARCHED if trace else MAX_LOG_LINES).lines]
    known = set((trace or "").split("\n"))
    # Log files have it indented.
    while trace and texts and {texts[-1], texts[-1].removeprefix("    ")} & {*known, ""}:
        texts.pop()
    return tuple(texts[-MAX_LOG_LINES:])


def best_of(scene: RunContext) -> str | None:
    """The least loss and its step: that of evaluations where there is one."""
    summed = scene.summed
    evaluated = sorted(
        key for key in summed.keys if is_loss(key) and is_evaluation(key) and summed.logged(key)
    )
    key = evaluated[0] if evaluated else summed.loss_key()
    if key is None:
        return None
    best = summed.with_least(key)
    if best is None or best.minimum is None:
        return None
    step = _step_of_least(scene.run, best)
    return f"{key} {number(best.minimum)}" + ("" if step is None else f" at step {step:,}")


def _step_of_least(run: Run, series: SeriesSummary) -> int | None:
    """The first step with the least value, found through buckets: a long series is never read whole.

    None where the points of it cannot be read.
    """
    source = series.source
    low, high = None, None
    while True:
        found = run.buckets(
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
        if np.isnan(found.minimum).all():
            return None
        place = int(np.nanargmin(found.minimum))
        low = int(found.starts[place])
        if found.width == 1:
            return low
        high = low + found.width - 1


def _cost(energy: EnergyReport) -> str | None:
    """What it cost to rent, or else in electricity; None where no price is known."""
    for figure in (energy.cloud, energy.electricity):
        if figure.value is not None:
            return f"{figure.value:,.2f} {figure.unit} ({figure.method})"
    return None
