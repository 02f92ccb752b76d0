"""The figures by which runs are compared, and how sure a difference is against the noise of their steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stepscope.analysis.robust import block_edges, block_medians, spread
from stepscope.views.json_values import finite
from stepscope.views.metrics.series_summaries import is_evaluation, is_loss
from stepscope.views.run_figures import data_wait
from stepscope.views.steps.phases import phases_of
from stepscope.views.steps.step_values import step_values
from stepscope.views.wording import comparison, is_many_times, quantity, signed_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from stepscope.views.compare.compared_run import ComparedRun
    from stepscope.views.run_context import RunContext

    Floats = NDArray[np.float64]

Better = Literal["less", "more", "none"]
PRESETS = ("all", "performance", "quality")

BLOCKS, MIN_BLOCK = 20, 10
"""Steps are compared block by block: neighbours are alike, so that single steps would seem surer."""

MIN_BLOCKS = 4
MIN_STANDARD_ERRORS = 3.0
"""Standard errors between two medians from which on they differ for sure."""

MIN_DIFFERENCE = 0.01
"""A difference that small is none, however sure."""

MAX_QUALITY = 8
LAST_SHARE = 0.1
"""The last part of a loss that stands for where it has come to."""


FINAL_LOSS = "Loss, median of the last 10 %"
UNKNOWN = "–"
SPEEDS = {"seconds": ("slower", "faster"), "/s": ("faster", "slower")}
"""What more and less of a unit mean where it tells of speed."""


@dataclass(frozen=True)
class Cell:
    """A figure of one run, and its change against the baseline."""

    run: str
    value: float | None
    text: str
    delta_ratio: float | None
    """0.1 for a tenth more; None for the baseline itself, or where one of both is not known."""
    delta_text: str
    sure: bool | None
    """Whether the difference is more than noise; None where that cannot be told."""


@dataclass(frozen=True)
class FigureRow:
    """One figure of all runs."""

    name: str
    unit: str
    better: Better
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class _Measurement:
    """A figure of one run, and the medians of blocks that tell how much it varies by itself."""

    value: float | None
    blocks: Floats | None = None
    nonfinite: str | None = None
    """NaN, ∞ or -∞ where the figure is none of the finite numbers."""


def figure_rows(compared_runs: Sequence[ComparedRun], baseline: int, preset: str) -> tuple[FigureRow, ...]:
    """The figures of a preset that at least one run has."""
    rows: list[FigureRow] = []
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
    """Whether the medians of two runs differ by more than chance; None for too few steps to tell."""
    if blocks is None or other_blocks is None or min(len(blocks), len(other_blocks)) < MIN_BLOCKS:
        return None
    medians = float(np.median(blocks)), float(np.median(other_blocks))
    ratio = change(*medians)
    if (
        ratio is not None
        and is_many_times(ratio)
        and (blocks.min() > other_blocks.max() or blocks.max() < other_blocks.min())
    ):
        # A figure that explodes varies as much as it grows: by that spread nothing would ever differ from it.
        return True
    difference = abs(medians[0] - medians[1])
    # The error of a median of normal values is a quarter larger than that of their mean.
    errors = [1.2533 * float(spread(values)) / math.sqrt(len(values)) for values in (blocks, other_blocks)]
    min_difference = MIN_DIFFERENCE * abs(medians[1])
    return difference > max(MIN_STANDARD_ERRORS * math.hypot(*errors), min_difference)


def _row(
    contexts: Sequence[RunContext],
    baseline: int,
    name: str,
    unit: str,
    better: Better,
    measurements: Sequence[_Measurement],
) -> FigureRow:
    base = measurements[baseline]
    cells = []
    for index, (context, measurement) in enumerate(zip(contexts, measurements, strict=True)):
        value = finite(measurement.value)
        text = measurement.nonfinite or UNKNOWN if value is None else quantity(value, unit)
        ratio = None if index == baseline else change(value, finite(base.value))
        sure = is_sure(measurement.blocks, base.blocks) if ratio is not None else None
        cells.append(Cell(context.run.id, value, text, ratio, change_text(ratio, better, sure, unit), sure))
    return FigureRow(name, unit, better, tuple(cells))


def change(value: float | None, base: float | None) -> float | None:
    """What a figure is more than that of the baseline; None where that cannot be told."""
    if value is None or base is None or base == 0:
        return None
    ratio = value / base - 1 if base > 0 else (value - base) / abs(base)
    return ratio if math.isfinite(ratio) else None


def change_text(ratio: float | None, better: Better, sure: bool | None, unit: str = "") -> str:  # noqa: FBT001 - three states of one thing
    """Sign, arrow and word: colour alone tells nobody anything."""
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
    # Who reads that something is slower need not be told that this is worse.
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
    """The pace that every page shows; how sure a difference is, the steps tell."""
    timed = _step_time(compared_run)
    blocks = None if timed.blocks is None else 1.0 / np.maximum(timed.blocks, 1e-12)
    return _Measurement(compared_run.context.figures.steps_per_second, blocks)


def _blocks(values: Floats) -> Floats:
    return block_medians(values, block_edges(len(values), BLOCKS, MIN_BLOCK))


_PERFORMANCE: tuple[tuple[str, str, Better, Callable[[ComparedRun], _Measurement]], ...] = (
    ("Step time, p50", "seconds", "less", _step_time),
    ("Step time, p95", "seconds", "less", _tail),
    ("Steps a second", "/s", "more", _throughput),
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


def _phase_rows(compared_runs: Sequence[ComparedRun], baseline: int) -> Iterator[FigureRow]:
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


def _quality_rows(contexts: Sequence[RunContext], baseline: int) -> Iterator[FigureRow]:
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
    """The median of the last tenth: a single loss is noise. A run whose last loss is NaN ended with NaN."""
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
