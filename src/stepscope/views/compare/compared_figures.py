"""The figures of compared runs, and whether their differences exceed the noise of the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.regression import BLOCKS, MEDIAN_TO_MEAN, MIN_BLOCK, MIN_BLOCKS
from stepscope.analysis.robust import block_edges, block_medians, spread
from stepscope.views.formatting import comparison, is_many_times, quantity, signed_percent
from stepscope.views.json_values import finite
from stepscope.views.metrics.series_summaries import is_evaluation, is_loss
from stepscope.views.run_figures import data_wait
from stepscope.views.steps.phase_breakdown import phases_of
from stepscope.views.steps.step_values import step_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from stepscope.views.compare.compared_run import ComparedRun
    from stepscope.views.run_context import RunContext

    Floats = NDArray[np.float64]

Better = Literal["less", "more", "none"]
PRESETS = ("all", "performance", "quality")

MIN_STANDARD_ERRORS = 3.0
"""Medians that differ by this many standard errors are significantly different."""

MIN_DIFFERENCE = 0.01
"""A smaller relative difference is ignored, however certain it is."""

MAX_QUALITY = 8
LAST_SHARE = 0.1
"""The last share of the losses, whose median is the final loss."""


FINAL_LOSS = "Loss, median of the last 10%"
UNKNOWN = "–"
SPEEDS = {"seconds": ("slower", "faster"), "/s": ("faster", "slower")}
"""The words for more and less of a unit of speed."""


@dataclass(frozen=True)
class Cell:
    """A figure of one run, and its change relative to the baseline."""

    run: str
    value: float | None
    text: str
    delta_ratio: float | None
    """0.1 means 10% more; None for the baseline itself, or if a value is not known."""
    delta_text: str
    sure: bool | None
    """Whether the difference is more than noise; None if that is not known."""


@dataclass(frozen=True)
class Figure:
    """One figure of all runs."""

    name: str
    unit: str
    better: Better
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class _Measurement:
    """A figure of one run, with block medians that show its noise."""

    value: float | None
    blocks: Floats | None = None
    nonfinite: str | None = None
    """NaN, ∞ or -∞ if the figure is not finite."""


def figure_rows(compared_runs: Sequence[ComparedRun], baseline: int, preset: str) -> tuple[Figure, ...]:
    """Returns the figures of a preset that at least one run has."""
    rows: list[Figure] = []
    contexts = [run.context for run in compared_runs]
    if preset != "quality":
        rows += [
            _row(
                contexts,
                baseline,
                name,
                unit,
                better,
                [measure(run) for run in compared_runs],
            )
            for name, unit, better, measure in _PERFORMANCE
        ]
    if preset != "performance":
        rows += _quality_rows(contexts, baseline)
    if preset != "quality":
        rows += _phase_rows(compared_runs, baseline)
    return tuple(row for row in rows if any(cell.text != UNKNOWN for cell in row.cells))


def is_sure(blocks: Floats | None, other_blocks: Floats | None) -> bool | None:
    """Returns whether the medians of two runs differ by more than noise; None for too few steps."""
    if blocks is None or other_blocks is None or min(len(blocks), len(other_blocks)) < MIN_BLOCKS:
        return None
    medians = float(np.median(blocks)), float(np.median(other_blocks))
    ratio = change(*medians)
    if (
        ratio is not None
        and is_many_times(ratio)
        and (blocks.min() > other_blocks.max() or blocks.max() < other_blocks.min())
    ):
        # The spread of a diverging figure is as large as its growth, so a test by spread would never be
        # significant.
        return True
    difference = abs(medians[0] - medians[1])
    errors = [
        MEDIAN_TO_MEAN * float(spread(values)) / math.sqrt(len(values)) for values in (blocks, other_blocks)
    ]
    min_difference = MIN_DIFFERENCE * abs(medians[1])
    return difference > max(MIN_STANDARD_ERRORS * math.hypot(*errors), min_difference)


def _row(
    contexts: Sequence[RunContext],
    baseline: int,
    name: str,
    unit: str,
    better: Better,
    measurements: Sequence[_Measurement],
) -> Figure:
    base = measurements[baseline]
    cells = []
    for index, (context, measurement) in enumerate(zip(contexts, measurements, strict=True)):
        value = finite(measurement.value)
        text = measurement.nonfinite or UNKNOWN if value is None else quantity(value, unit)
        ratio = None if index == baseline else change(value, finite(base.value))
        sure = is_sure(measurement.blocks, base.blocks) if ratio is not None else None
        cells.append(Cell(context.run.id, value, text, ratio, change_text(ratio, better, sure, unit), sure))
    return Figure(name, unit, better, tuple(cells))


def change(value: float | None, base: float | None) -> float | None:
    """Returns the relative difference to the baseline; None if it is not defined."""
    if value is None or base is None or base == 0:
        return None
    ratio = value / base - 1 if base > 0 else (value - base) / abs(base)
    return ratio if math.isfinite(ratio) else None


def change_text(ratio: float | None, better: Better, sure: bool | None, unit: str = "") -> str:  # noqa: FBT001 - None is a third state
    """Describes a change with sign, arrow and word, so that it does not depend on colour alone."""
    if ratio is None:
        return ""
    directions = SPEEDS.get(unit, ("higher", "lower"))
    if sure is False:
        amount = comparison(ratio, *directions) if is_many_times(ratio) else signed_percent(ratio)
        return f"{amount} (within noise)"
    if abs(ratio) < 0.0005:
        return "no change"
    arrow = "▲" if ratio > 0 else "▼"
    if better == "none":
        word = "more" if ratio > 0 else "less"
    else:
        word = "better" if (ratio > 0) == (better == "more") else "worse"
    if not is_many_times(ratio):
        return f"{arrow} {signed_percent(ratio)} {word}"
    # "Slower" already says that it is worse.
    return f"{arrow} {comparison(ratio, *directions)}" + (
        "" if unit in SPEEDS or better == "none" else f" ({word})"
    )


def _step_time(compared_run: ComparedRun) -> _Measurement:
    seconds = compared_run.seconds
    return _Measurement(float(np.median(seconds)), _blocks(seconds)) if len(seconds) else _Measurement(None)


def _tail(compared_run: ComparedRun) -> _Measurement:
    seconds = compared_run.seconds
    return _Measurement(float(np.percentile(seconds, 95)) if len(seconds) else None)


def _throughput(compared_run: ComparedRun) -> _Measurement:
    """Returns the step rate that all pages show, with the noise of the step times."""
    timed = _step_time(compared_run)
    blocks = None if timed.blocks is None else 1.0 / np.maximum(timed.blocks, 1e-12)
    return _Measurement(compared_run.context.figures.steps_per_second, blocks)


def _blocks(values: Floats) -> Floats:
    return block_medians(values, block_edges(len(values), BLOCKS, MIN_BLOCK))


_PERFORMANCE: tuple[tuple[str, str, Better, Callable[[ComparedRun], _Measurement]], ...] = (
    ("Step time, p50", "seconds", "less", _step_time),
    ("Step time, p95", "seconds", "less", _tail),
    ("Steps per second", "/s", "more", _throughput),
    ("Waiting for data", "ratio", "less", lambda run: _Measurement(data_wait(run.summaries))),
    ("GPU utilization", "ratio", "more", lambda run: _Measurement(run.context.figures.gpu_mean_ratio)),
    (
        "GPU utilization, worst",
        "ratio",
        "more",
        lambda run: _Measurement(run.context.figures.gpu_worst_ratio),
    ),
    ("Peak memory", "bytes", "less", lambda run: _Measurement(run.context.figures.peak_memory_bytes)),
)


def _phase_rows(compared_runs: Sequence[ComparedRun], baseline: int) -> Iterator[Figure]:
    contexts = [compared_run.context for compared_run in compared_runs]
    phases_by_run = [
        {share.phase: share for share in phases_of(compared_run.context.run, compared_run.summaries)}
        for compared_run in compared_runs
    ]
    for name in dict.fromkeys(name for phases in phases_by_run for name in phases):
        measurements = [
            _Measurement(phases[name].mean_s if name in phases else None) for phases in phases_by_run
        ]
        yield _row(contexts, baseline, f"Phase {name}, mean", "seconds", "less", measurements)


def _quality_rows(contexts: Sequence[RunContext], baseline: int) -> Iterator[Figure]:
    final_losses = [_final_loss(context) for context in contexts]
    yield _row(contexts, baseline, FINAL_LOSS, "", "less", final_losses)
    last = [
        _Measurement(context.figures.loss_last, None, context.figures.loss_nonfinite) for context in contexts
    ]
    yield _row(contexts, baseline, "Loss, last", "", "less", last)
    best = [_Measurement(context.figures.loss_best) for context in contexts]
    yield _row(contexts, baseline, "Loss, best", "", "less", best)
    losses = {context.summaries.loss_key() for context in contexts}
    keys = sorted(
        {key for context in contexts for key in context.summaries.keys if context.summaries.logged(key)}
        - losses
    )
    shown = [key for key in keys if is_evaluation(key) or key.lower().endswith(("accuracy", "perplexity"))]
    for key in shown[:MAX_QUALITY]:
        better = _better(key)
        name = f"{key}, {'last' if better == 'none' else 'best'}"
        yield _row(
            contexts, baseline, name, "", better, [_best(context, key, better) for context in contexts]
        )


def _better(key: str) -> Better:
    name = key.rpartition("/")[2].lower()
    if is_loss(key) or "perplexity" in name or "error" in name:
        return "less"
    known = ("accuracy", "f1", "auc", "bleu", "reward", "iou", "precision", "recall")
    return "more" if any(word in name for word in known) else "none"


def _best(context: RunContext, key: str, better: Better) -> _Measurement:
    series = context.summaries.by_first_rank(key)
    if not series:
        return _Measurement(None)
    if better == "none":
        last = series[-1].last
        return _Measurement(last if last is not None and math.isfinite(last) else None)
    extremes = [summary.minimum if better == "less" else summary.maximum for summary in series]
    known = [value for value in extremes if value is not None]
    return _Measurement((min(known) if better == "less" else max(known)) if known else None)


def _final_loss(context: RunContext) -> _Measurement:
    """Returns the median of the last 10% of losses; of a run whose last loss is NaN, NaN."""
    key = context.summaries.loss_key()
    if key is None:
        return _Measurement(None)
    if context.figures.loss_nonfinite is not None:
        return _Measurement(None, None, context.figures.loss_nonfinite)
    rank = next(iter(context.summaries.ranks(key)), None)
    values = step_values(context.run, key, rank).values
    if not len(values):
        return _Measurement(None)
    last = values[-max(int(len(values) * LAST_SHARE), 1) :]
    return _Measurement(float(np.median(last)), _blocks(last))
