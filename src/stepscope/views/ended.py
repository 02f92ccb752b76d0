"""The card of a run that has ended: how, when, what it used, its best, and what went before a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.views.console_lines import console_of
from stepscope.views.energy import energy_of
from stepscope.views.last_minute import changes_before_end
from stepscope.views.pace import seconds_of
from stepscope.views.plain import clean, finite
from stepscope.views.step_values import step_values
from stepscope.views.summed import is_evaluation, is_loss
from stepscope.views.wording import duration, number

if TYPE_CHECKING:
    from stepscope.config.sections import Energy
    from stepscope.views.energy import EnergyReport
    from stepscope.views.scene import Scene

MOST_LOG_LINES = 20
MOST_EXCEPTION = 4_000


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: str
    text: str
    last_step: int | None
    exception: str | None
    log_lines: tuple[str, ...]
    duration_s: float
    energy_kwh: float | None
    cost: str | None
    best: str | None
    changed: tuple[str, ...]
    """What changed in the last minute; empty where it ended as it should."""


def ended_of(scene: Scene, settings: Energy) -> Ended | None:
    """The card; None while the run goes on."""
    run = scene.run
    if scene.is_live:
        return None
    took = sum(seconds_of(part, scene.now_ns) for part in run.segments)
    step = scene.figures.step
    went_wrong = run.status in ("failed", "crashed")
    energy = energy_of(run, settings, scene.now_ns)
    console = console_of(run, limit=MOST_LOG_LINES)
    at = "" if step is None else f" at step {step:,}"
    return Ended(
        status=run.status,
        text=f"{run.status.capitalize()} after {duration(took)}{at}.",
        last_step=step,
        exception=clean(run.reason, MOST_EXCEPTION) if went_wrong and run.reason else None,
        log_lines=tuple(line.text for line in console.lines),
        duration_s=took,
        # Nothing at all is used by no run: it was not measured.
        energy_kwh=finite(energy.total.value) or None,
        cost=_cost(energy),
        best=best_of(scene),
        changed=changes_before_end(scene) if went_wrong else (),
    )


def best_of(scene: Scene) -> str | None:
    """The least loss and its step: that of evaluations where there is one."""
    summed = scene.summed
    evaluated = sorted(
        key for key in summed.keys if is_loss(key) and is_evaluation(key) and summed.logged(key)
    )
    key = evaluated[0] if evaluated else summed.loss_key()
    if key is None:
        return None
    series = [one for one in summed.by_first_rank(key) if one.minimum is not None]
    if not series:
        return None
    logged = step_values(scene.run, key, series[0].source.rank)
    if not len(logged):
        return None
    place = int(np.argmin(logged.values))
    return f"{key} {number(float(logged.values[place]))} at step {int(logged.steps[place]):,}"


def _cost(energy: EnergyReport) -> str | None:
    """What it cost to rent, or else in electricity; None where no price is known."""
    for figure in (energy.cloud, energy.electricity):
        if figure.value is not None:
            return f"{figure.value:,.2f} {figure.unit} ({figure.method})"
    return None
