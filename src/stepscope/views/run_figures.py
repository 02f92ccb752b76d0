"""Finds the figures that a list shows for each run, from summaries and rollups; no series is read whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.number_format import NonFinite, nonfinite
from stepscope.schema.run import LIVE
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.json_values import bucket_levels, finite, finites
from stepscope.views.machine.gpu_names import PROCESS_KEYS, label_of, own_gpus
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.overview.wall_time import SHARE_TEXTS, large_share_of
from stepscope.views.run_setup import setup_of
from stepscope.views.steps.step_rate import recent_step_rate, whole_run_step_rate
from stepscope.views.steps.workload import STEP_KEYS

if TYPE_CHECKING:
    from stepscope.analysis.large_shares import LargeShare
    from stepscope.reading import Run
    from stepscope.schema.series import Buckets
    from stepscope.store.base import SeriesSummary
    from stepscope.views.json_values import Scalar
    from stepscope.views.metrics.series_summaries import HostDevice

SPARKS = 40
UTILIZATION = "gpu/utilization_ratio"
WAITS = (("device/data_seconds", "device/step_seconds"), ("phase/data_seconds", "step_seconds"))
"""Pairs of wait for data and step time; device times, if they were recorded, come before host times."""

PEAKS = (
    "memory/peak_bytes",
    "memory/allocated_bytes",
    "gpu/process_memory_bytes",
    "gpu/memory_used_bytes",
    "process/rss_bytes",
)
"""Keys of memory, in order of preference: of the allocator, of the GPUs, of the processes."""

KEYS = tuple(
    dict.fromkeys(
        (
            *STEP_KEYS,
            *(key for pair in WAITS for key in pair),
            UTILIZATION,
            *PROCESS_KEYS,
            *PEAKS,
            *SHARE_TEXTS,
        )
    )
)


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run; None for what is not known."""

    step: int | None
    total_steps: int | None
    points: int
    """The number of points of the key that is logged once a step."""
    steps_per_second: float | None
    loss_key: str | None
    loss_last: float | None
    loss_best: float | None
    loss_nonfinite: NonFinite | None
    """NaN, ∞ or -∞ if the last loss is that; None if it is a number."""
    nonfinite_losses: int
    data_wait_ratio: float | None
    gpu_mean_ratio: float | None
    gpu_worst_ratio: float | None
    gpu_worst: str | None
    peak_memory_bytes: float | None
    config: dict[str, Scalar]
    spark: tuple[float | None, ...]
    large_share: LargeShare | None
    """What takes a large share of the wall time besides training, if anything does."""


def figures_of(run: Run) -> RunFigures:
    """Returns the current figures of a run."""
    summaries = SeriesSummaries(run.summaries(KEYS))
    if summaries.loss_key() is None:
        # The run uses its own key names, so all keys are needed.
        summaries = SeriesSummaries(run.summaries())
    step_key, loss_key = summaries.step_key(), summaries.loss_key()
    series = summaries.by_first_rank(step_key) if step_key is not None else []
    losses = summaries.by_first_rank(loss_key) if loss_key is not None else []
    buckets = _buckets(run, losses or series)
    best = summaries.with_minimum(loss_key) if loss_key is not None else None
    setup = setup_of(run)
    gpus = _Gpus(run, summaries)
    mean, worst, name = gpus.utilization()
    return RunFigures(
        step=_last_step(summaries, step_key, loss_key),
        total_steps=setup.total_steps,
        points=sum(summary.points for summary in series),
        steps_per_second=_steps_per_second(run, series, buckets),
        loss_key=loss_key,
        loss_last=finite(losses[-1].last) if losses else None,
        loss_best=None if best is None else best.minimum,
        loss_nonfinite=_nonfinite(losses[-1]) if losses else None,
        nonfinite_losses=sum(summary.nonfinite for summary in losses),
        data_wait_ratio=data_wait(summaries),
        gpu_mean_ratio=mean,
        gpu_worst_ratio=worst,
        gpu_worst=name,
        peak_memory_bytes=_peak(summaries, gpus),
        config=setup.flat,
        spark=spark_of(buckets) if losses and buckets is not None else (),
        large_share=large_share_of(run, summaries),
    )


def _last_step(summaries: SeriesSummaries, *keys: str | None) -> int | None:
    """Returns the newest step of any rank since the last start.

    It uses the loss as well: step times are written in groups, so a killed process loses the last of them.
    """
    steps = []
    for key in keys:
        logged = summaries.logged(key) if key is not None else []
        steps += [
            summary.last_step for summary in logged if summary.source.segment == logged[-1].source.segment
        ]
    return max((step for step in steps if step is not None), default=None)


def _nonfinite(series: SeriesSummary) -> NonFinite | None:
    """Returns the text of the last value if it is not finite; the store has None for NaN."""
    last = math.nan if series.last is None else series.last
    return None if math.isfinite(last) or not series.points else nonfinite(last)


def data_wait(summaries: SeriesSummaries) -> float | None:
    """Returns the share of step time spent waiting for data; None if it was not timed."""
    for wait, step in WAITS:
        wait_seconds, wait_count = summaries.total(wait)
        step_seconds, step_count = summaries.total(step)
        if not wait_count or not step_count or step_seconds <= 0:
            continue
        if step == "step_seconds" and wait_count < 0.9 * step_count:
            # Only some of the steps were timed: their mean stands for all.
            return finite(min((wait_seconds / wait_count) / (step_seconds / step_count), 1.0))
        return finite(min(wait_seconds / step_seconds, 1.0))
    return None


def spark_of(buckets: Buckets) -> tuple[float | None, ...]:
    """Returns the mean of each bucket from the first to the last; None where nothing was logged."""
    if not len(buckets):
        return ()
    positions = (buckets.starts - buckets.starts[0]) // buckets.width
    heights = np.full(int(positions[-1]) + 1, np.nan)
    heights[positions] = bucket_levels(buckets)
    return finites(heights.tolist())


def _buckets(run: Run, series: list[SeriesSummary]) -> Buckets | None:
    if not series:
        return None
    source = series[-1].source
    return run.buckets(series[-1].key, SPARKS, rank=source.rank, device=source.device, axis="step")


def _steps_per_second(run: Run, series: list[SeriesSummary], buckets: Buckets | None) -> float | None:
    if not series or buckets is None:
        return None
    if run.status == "stalled":
        return 0.0
    if run.status in LIVE:
        newest = series[-1]
        return finite(recent_step_rate(run, newest, newest.mean if newest.key == "step_seconds" else None))
    return finite(whole_run_step_rate(series, buckets, run.segments))


class _Gpus:
    """The GPUs that count for a run; their facts are read only if there are GPU metrics."""

    def __init__(self, run: Run, summaries: SeriesSummaries) -> None:
        self._summaries = summaries
        has_any = UTILIZATION in summaries or "gpu/memory_used_bytes" in summaries
        self._facts = known_gpus(run) if has_any else {}
        self._own = own_gpus(run, summaries, self._facts) if has_any else set()

    def utilization(self) -> tuple[float | None, float | None, str | None]:
        """Returns the mean over all GPUs, that of the least busy one, and its name."""
        means = self.keep_own(self._summaries.mean_by_device(UTILIZATION))
        if not means:
            return None, None, None
        worst = min(means, key=lambda host_device: (means[host_device], host_device))
        name = label_of(worst, self._facts, several_hosts=len({host for host, _ in means}) > 1)
        return sum(means.values()) / len(means), means[worst], name

    def keep_own(self, by_device: dict[HostDevice, float]) -> dict[HostDevice, float]:
        """Returns the values of the run's GPUs; of all devices if none is known to be its own."""
        devices = {host_device: value for host_device, value in by_device.items() if host_device[1]}
        return {
            host_device: value for host_device, value in devices.items() if host_device in self._own
        } or devices


def _peak(summaries: SeriesSummaries, gpus: _Gpus) -> float | None:
    for key in PEAKS:
        peaks = summaries.max_by_device(key)
        if key == "gpu/memory_used_bytes":
            peaks = gpus.keep_own(peaks)
        if peaks:
            return finite(max(peaks.values()))
    return None
