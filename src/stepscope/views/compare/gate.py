"""Decides whether a run is slower than its baselines by more than a limit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.regression import CONFIDENCE, MIN_STEPS, Change, time_change
from stepscope.errors import StepscopeError
from stepscope.schema.keys import BATCH_SIZES
from stepscope.schema.run import LIVE
from stepscope.views.compare.compared_run import ComparedRun
from stepscope.views.formatting import percent, quantity, signed_percent
from stepscope.views.run_context import RunContext
from stepscope.views.runs.marks import NoMarks
from stepscope.views.steps.step_values import step_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.reading import Run

Result = Literal["passed", "failed", "inconclusive"]
TOKENS = "batch/tokens"

SAME_SIZE = 0.01
"""Batch sizes that differ by less are compared step by step."""


@dataclass(frozen=True)
class GatedRun:
    """One side of the comparison."""

    run: str
    name: str
    status: str
    steps: int
    """How many steps after the warm-up were compared."""
    step_s: float | None
    """Their median time."""
    batch_size: float | None
    """The median number of samples or tokens in a step; None unless all compared runs recorded it."""


@dataclass(frozen=True)
class Gate:
    """Whether a run is slower than allowed."""

    result: Result
    sentence: str
    figure: str
    """What was compared: step time, or the time per sample or token if batch sizes differ."""
    limit_ratio: float
    change_ratio: float | None
    """How much longer the current run takes: 0.1 for 10%. None for too few steps."""
    low_ratio: float | None
    high_ratio: float | None
    confidence: float
    """The probability with which the true change is between low and high."""
    current: GatedRun
    baselines: tuple[GatedRun, ...]
    notes: tuple[str, ...]
    """What limits the comparison."""


def gate(current: Run, baselines: Sequence[Run], limit: float, now_ns: int | None = None) -> Gate:
    """Compares the median step time of a run, without the warm-up, with that of one or several baselines."""
    if any(run.id == current.id for run in baselines):
        raise StepscopeError(f"{current.name!r} is its own baseline; name another run as the baseline.")
    now_ns = time.time_ns() if now_ns is None else now_ns
    compared = [ComparedRun(RunContext(run, NoMarks(), now_ns)) for run in (current, *baselines)]
    key = next((key for key in BATCH_SIZES if all(run.summaries.ranks(key) for run in compared)), None)
    sides = [_side(run, key) for run in compared]
    sizes = _sizes(sides)
    change = time_change(
        compared[0].seconds / sizes[0],
        [run.seconds / size for run, size in zip(compared[1:], sizes[1:], strict=True)],
    )
    figure = "step time" if max(sizes) == 1 else f"time per {'token' if key == TOKENS else 'sample'}"
    result, sentence = _decide(change, limit, sides, figure)
    return Gate(
        result=result,
        sentence=sentence,
        figure=figure,
        limit_ratio=limit,
        change_ratio=None if change is None else change.ratio,
        low_ratio=None if change is None else change.low,
        high_ratio=None if change is None else change.high,
        confidence=CONFIDENCE,
        current=sides[0],
        baselines=tuple(sides[1:]),
        notes=tuple(_notes(sides)),
    )


def _side(compared: ComparedRun, size_key: str | None) -> GatedRun:
    run, seconds = compared.context.run, compared.seconds
    return GatedRun(
        run=run.id,
        name=run.name,
        status=run.status,
        steps=len(seconds),
        step_s=float(np.median(seconds)) if len(seconds) else None,
        batch_size=None if size_key is None else _batch_size(compared, size_key),
    )


def _batch_size(compared: ComparedRun, key: str) -> float | None:
    sizes = step_values(compared.context.run, key, compared.summaries.ranks(key)[0]).values
    return float(np.median(sizes)) if len(sizes) else None


def _sizes(sides: Sequence[GatedRun]) -> list[float]:
    """Returns what to divide step times by: batch sizes if they are known and differ, else 1."""
    known = [side.batch_size for side in sides if side.batch_size]
    if len(known) < len(sides) or max(known) <= (1 + SAME_SIZE) * min(known):
        return [1.0] * len(sides)
    return known


def _decide(
    change: Change | None, limit: float, sides: Sequence[GatedRun], figure: str
) -> tuple[Result, str]:
    if change is None:
        shortest = min(sides, key=lambda side: side.steps)
        return "inconclusive", (
            f"{shortest.name!r} has {shortest.steps:,} timed step{'s' if shortest.steps != 1 else ''} after "
            f"the warm-up; {MIN_STEPS} are needed."
        )
    interval = f"{signed_percent(change.low)} to {signed_percent(change.high)}"
    measured = f"{figure.capitalize()} changed by {signed_percent(change.ratio)} ({interval})"
    if change.low > limit:
        return "failed", f"{measured}: more than the limit of {percent(limit)}."
    if change.high <= limit:
        return "passed", f"{measured}: within the limit of {percent(limit)}."
    return "inconclusive", (
        f"{measured}: the limit of {percent(limit)} is within this interval. Run more steps, or give more "
        "baselines."
    )


def _notes(sides: Sequence[GatedRun]) -> list[str]:
    """Says what limits the comparison."""
    notes = [
        f"{side.name!r} is {side.status}: {side.steps:,} steps so far."
        for side in sides
        if side.status in LIVE
    ]
    notes += [f"{side.name!r} {side.status}." for side in sides if side.status in ("failed", "crashed")]
    if max(_sizes(sides)) > 1:
        sizes = ", ".join(quantity(side.batch_size or 0, "") for side in sides)
        notes.append(f"Batch sizes differ ({sizes}): step times are divided by them.")
    if len(sides) == 2:
        notes.append(
            "With one baseline, the interval has the noise within the runs, not that between two runs or "
            "machines. Three baselines or more include it."
        )
    return notes
