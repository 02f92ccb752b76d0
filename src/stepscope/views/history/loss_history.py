"""Compares the loss of a run with that of similar earlier runs at the same step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.regression import HIGH_CONFIDENCE, MIN_RUNS, Level, difference_of, level_of
from stepscope.errors import StoreError
from stepscope.views.formatting import between, quantity
from stepscope.views.json_values import bucket_levels
from stepscope.views.steps.step_values import MAX_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.history.run_record import LossSeries, RunRecord

    Floats = NDArray[np.float64]

LAST_SHARE = 0.1
"""The median loss of this last share of the steps up to a step is compared."""

MAX_BUCKETS = 64
MAX_RUNS = 8
"""Losses are read of the newest similar runs only: they cannot be kept, since the step changes."""

MIN_DIFFERENCE = 0.05
"""A smaller relative difference is not reported, however certain it is."""


@dataclass(frozen=True)
class LossHistory:
    """The loss at the same step in a run and in similar earlier ones."""

    key: str
    step: int
    value: float
    low: float
    """The lowest of the earlier runs."""
    high: float
    runs: int
    """How many earlier runs reached the step."""
    result: Literal["higher", "lower", "no clear difference"]
    sentence: str


def loss_history_of(
    current: RunRecord, similar: Sequence[RunRecord], runs: Mapping[str, Run], unreadable: list[str]
) -> tuple[LossHistory | None, dict[str, float]]:
    """Compares at the newest step of the run, or at the newest that three earlier runs reached.

    Also returns the losses of the earlier runs at that step, by their ids. Why a run cannot be read is added
    to `unreadable`.
    """
    own = current.loss
    if own is None:
        return None, {}
    others = {
        record.run: record.loss
        for record in similar[-MAX_RUNS:]
        if record.loss is not None and record.loss.key == own.key
    }
    reached = sorted((series.last_step for series in others.values()), reverse=True)
    if len(reached) < MIN_RUNS:
        return None, {}
    step = min(own.last_step, reached[MIN_RUNS - 1])
    level = _level(runs[current.run], own, step, unreadable)
    levels = {
        run: _level(runs[run], series, step, unreadable)
        for run, series in others.items()
        if series.last_step >= step
    }
    known = {run: other for run, other in levels.items() if other is not None}
    if level is None or len(known) < MIN_RUNS:
        return None, {}
    losses = {run: other.value for run, other in known.items()}
    return _compared(own.key, step, level, list(known.values())), losses


def _level(run: Run, series: LossSeries, step: int, unreadable: list[str]) -> Level | None:
    low = int((1 - LAST_SHARE) * step)
    try:
        buckets = run.buckets(
            series.key, MAX_BUCKETS, low=low, high=step, rank=series.rank, device="", axis="step"
        )
    except StoreError as error:  # damaged: the other runs can still be compared
        unreadable.append(str(error))
        return None
    values = bucket_levels(buckets)
    values = values[(np.abs(values) < MAX_VALUE) & (buckets.nonfinite == 0)]  # false for NaN and infinity
    return level_of(values) if len(values) else None


def _compared(key: str, step: int, own: Level, levels: Sequence[Level]) -> LossHistory:
    losses = [level.value for level in levels]
    difference, width = difference_of(own, levels, HIGH_CONFIDENCE)
    is_clear = abs(difference) - width > MIN_DIFFERENCE * abs(float(np.median(losses)))
    result: Literal["higher", "lower", "no clear difference"] = "no clear difference"
    if is_clear:
        result = "higher" if difference > 0 else "lower"
    low, high = min(losses), max(losses)
    sentence = (
        f"{key} at step {step:,}: {quantity(own.value, '')}; {len(losses)} similar runs had "
        f"{between(quantity(low, ''), quantity(high, ''))}: {result}."
    )
    return LossHistory(key, step, own.value, low, high, len(losses), result, sentence)
