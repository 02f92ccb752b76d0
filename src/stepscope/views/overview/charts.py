"""Chooses the charts of a run's overview from the keys the run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepscope.schema.keys import GRADIENT_NORM, LEARNING_RATE, STEP_SECONDS, phase_key
from stepscope.views.metrics.catalogue import is_share
from stepscope.views.metrics.metric_meaning import unit_of
from stepscope.views.metrics.series_summaries import is_evaluation, is_loss
from stepscope.views.steps.phase_breakdown import phase_names

if TYPE_CHECKING:
    from stepscope.views.metrics.series_summaries import SeriesSummaries

MAX_LINES = 6
"""Maximum number of keys in one chart."""

MAX_EVALUATIONS = 4
QUALITY = ("accuracy", "perplexity", "f1", "auc", "bleu", "reward", "iou")

Kind = Literal["line", "stack"]
Per = Literal["rank", "device", "host", "none"]

_SYSTEM_CHARTS: tuple[tuple[str, tuple[str, ...], Per], ...] = (
    ("GPU utilization", ("gpu/utilization_ratio",), "device"),
    ("GPU memory", ("gpu/memory_used_bytes",), "device"),
    ("GPU power", ("gpu/power_watts",), "device"),
    ("GPU temperature", ("gpu/temperature_celsius",), "device"),
    ("CPU", ("cpu/utilization_ratio", "cpu/iowait_ratio"), "host"),
    ("Host memory", ("memory/used_bytes",), "host"),
    ("Process memory", ("process/rss_bytes",), "rank"),
    ("Disk", ("disk/read_bytes_per_second", "disk/write_bytes_per_second"), "host"),
    ("Network", ("network/received_bytes_per_second", "network/sent_bytes_per_second"), "host"),
    ("Data loader", ("loader/ready_batches",), "rank"),
)


@dataclass(frozen=True)
class ChartSpec:
    """The description of one chart."""

    title: str
    keys: tuple[str, ...]
    unit: str
    kind: Kind
    second_axis: tuple[str, ...]
    """The keys that use a second y axis."""
    from_zero: bool
    percent: bool
    per: Per


def key_charts(summaries: SeriesSummaries) -> tuple[ChartSpec, ...]:
    """Returns the charts of the training: step time, loss, gradients and evaluation results."""
    charts: list[ChartSpec] = []
    phases = tuple(
        phase_key(name) for name in phase_names(summaries.keys) if summaries.logged(phase_key(name))
    )
    if phases and summaries.logged(STEP_SECONDS):
        charts.append(_chart("Step time by phase", (*phases, STEP_SECONDS), kind="stack"))
    elif summaries.logged(STEP_SECONDS):
        charts.append(_chart("Step time", (STEP_SECONDS,), per="rank"))
    loss = summaries.loss_key()
    if loss is not None:
        second_axis = (LEARNING_RATE,) if summaries.logged(LEARNING_RATE) else ()
        charts.append(_chart("Loss", (loss, *second_axis), second_axis=second_axis))
    if summaries.logged(GRADIENT_NORM):
        charts.append(_chart("Gradient norm", (GRADIENT_NORM,)))
    charts += _quality(summaries, loss)
    if summaries.logged("throughput"):
        charts.append(_chart("Throughput", ("throughput",)))
    if not charts:
        charts += [_chart(key, (key,)) for key in sorted(summaries.keys) if summaries.logged(key)][:MAX_LINES]
    return tuple(charts)


def system_charts(summaries: SeriesSummaries) -> tuple[ChartSpec, ...]:
    """Returns the charts of what was sampled on the hosts."""
    charts = []
    for title, candidates, per in _SYSTEM_CHARTS:
        keys = tuple(key for key in candidates if key in summaries)
        if keys:
            maxima = [
                summary.maximum
                for key in keys
                for summary in summaries.sampled(key)
                if summary.maximum is not None
            ]
            percent = all(is_share(key, max(maxima, default=None)) for key in keys)
            charts.append(_chart(title, keys, per=per, percent=percent))
    return tuple(charts)


def _quality(summaries: SeriesSummaries, loss: str | None) -> list[ChartSpec]:
    logged = [key for key in summaries.keys if key != loss and summaries.logged(key)]
    losses = sorted(key for key in logged if is_loss(key) and is_evaluation(key))
    charts = [_chart("Evaluation loss", tuple(losses[:MAX_LINES]))] if losses else []
    for name in QUALITY:
        keys = sorted(key for key in logged if key.rpartition("/")[2].lower().endswith(name))
        if keys:
            maxima = [
                summary.maximum
                for key in keys
                for summary in summaries.logged(key)
                if summary.maximum is not None
            ]
            percent = name == "accuracy" and max(maxima, default=0.0) <= 1.0
            charts.append(_chart(name.capitalize(), tuple(keys[:MAX_LINES]), percent=percent))
    return charts[:MAX_EVALUATIONS]


def _chart(
    title: str,
    keys: tuple[str, ...],
    *,
    kind: Kind = "line",
    second_axis: tuple[str, ...] = (),
    percent: bool = False,
    per: Per = "none",
) -> ChartSpec:
    unit = unit_of(keys[0])
    return ChartSpec(title, keys, unit, kind, second_axis, kind == "stack" or unit == "bytes", percent, per)
