"""Detects steps that wait for data: the loader is slower than the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.loader_plan import (
    USABLE_CORES,
    BatchTimes,
    LoaderPlan,
    cores_for,
    loader_of,
    plan_for,
)
from stepscope.analysis.remedies import cause_of, loader_remedies, loader_tries
from stepscope.analysis.robust import block_edges, block_shares
from stepscope.analysis.stack_samples import line_in
from stepscope.analysis.steady import SHORTEST_S
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STACKS_EVENT, STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stepscope.schema.window import Floats, RankWindow, Window

HOST, DEVICE, DEVICE_STEP = "phase/data_seconds", "device/data_seconds", "device/step_seconds"
READY, CPU_RATIO = "loader/ready_batches", "host/cpu_ratio"
MICRO_STEPS, PROCESS_CPU = "micro_steps", "process/cpu_ratio"
GPU_MEMORY, GPU_BUSY = "gpu/process_memory_bytes", "gpu/utilization_ratio"

BLOCKS, MIN_IN_BLOCK = 10, 5
MIN_CHECKS = 3
"""Minimum number of checks of the queue to call it full."""

MIN_ON_DEVICE = 20
"""Minimum number of steps timed on the GPU for its clock to be used instead of the host's."""


READY_IN_TIME = (
    "The queue of the loader was full at each check: workers make batches in time, and what takes long is to "
    "take them from the workers. More workers will not help."
)
CHEAPER_TO_TAKE = (
    Remedy("Return a few large tensors for each batch: each tensor is handed over by itself."),
    Remedy(
        "If samples are cheap to make, let the training thread make them.",
        "loader = DataLoader(dataset, num_workers=0)",
        "PyTorch",
    ),
)
TAKING = 0.049
"""A wait for batches that are ready is a notice at most: it is hardly known how much of it can be saved."""


class _Waits(NamedTuple):
    """Seconds waited and total seconds of each step, on one clock."""

    clock: str
    waited: Floats
    taken: Floats
    shares: Floats
    """Share of time waited, for each block of steps."""

    @property
    def share(self) -> float:
        """Median share of the blocks; a few slow batches do not change it."""
        return float(np.median(self.shares))


@dataclass(frozen=True)
class ExposedWait(Detector):
    """Sums the time that steps wait for data, on the GPU's clock if steps were timed there."""

    id: ClassVar[str] = "input.exposed_wait"
    title: ClassVar[str] = "Steps wait for data"
    sentence: ClassVar[str] = (
        "waiting for data takes a share of the step in most blocks of steps; on the GPU's clock if steps "
        "were timed there, otherwise on the host's"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((HOST, DEVICE), (STEP_SECONDS, DEVICE_STEP))
    reads: ClassVar[tuple[str, ...]] = (
        HOST, DEVICE, DEVICE_STEP, READY, CPU_RATIO, MICRO_STEPS, PROCESS_CPU, USABLE_CORES, GPU_MEMORY,
        GPU_BUSY,
    )  # fmt: skip
    events: ClassVar[tuple[str, ...]] = ("loader", STACKS_EVENT)
    min_steps: ClassVar[int] = 30

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """Minimum share of the step that is waiting."""

    least_seconds: Annotated[float, Range(0)] = 0.001
    """Minimum wait for a batch on the host's clock: taking a batch from a worker takes about this long."""

    least_device_seconds: Annotated[float, Range(0)] = 0.0002
    """Minimum wait for a batch on the GPU's clock, where taking a batch from a worker costs nothing."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Chooses the clock and sums the waits."""
        waits = _waits(rank)
        if waits is None:
            return "Data waits and step times were not recorded in the same steps."
        mean = float(waits.waited.mean())
        measured = f"Steps wait for data {percent(waits.share)} of the time ({seconds(mean)} in a mean step)"
        if waits.share < self.share or float(np.quantile(waits.shares, 0.25)) < 0.5 * self.share:
            return f"{measured}; threshold: {percent(self.share)} in most windows."
        least = self.least_seconds if waits.clock == "host" else self.least_device_seconds
        if mean < least * _batches_in_a_step(rank):
            return f"{measured}; a wait below {seconds(least)} for a batch cannot be improved."
        if waits.clock == "host" and not _gpu_is_idle(rank, window, waits.share):
            return f"{measured} on the host, but the GPU was busy meanwhile, so the wait costs nothing."
        return self._finding(rank, window, waits)

    def _finding(self, rank: RankWindow, window: Window, waits: _Waits) -> Finding:
        chosen = rank.where(STEP_SECONDS) if STEP_SECONDS in rank.columns else rank.steady
        step = float(waits.taken.mean())
        exposed = waits.share * step
        fetched = rank.aligned(HOST)[0] if HOST in rank.columns else ()
        batches = _batches_in_a_step(rank)
        fetch = (float(np.mean(fetched)) if len(fetched) else exposed) / batches
        loader = loader_of(window, rank.rank)
        times = BatchTimes(step / batches, exposed / batches, fetch, _idle(rank), _workers_busy(rank, window))
        plan = plan_for(times, loader, cores_for(window, rank))
        first, last = int(rank.steps[chosen][0]), int(rank.steps[chosen][-1])
        above = int((waits.shares >= self.share).sum())
        is_ready = plan.fewer is None and _is_queue_full(rank, loader)
        empty = _empty_queue(rank)
        # With workers, the training thread only waits for them.
        line = None if plan.workers else line_in(window, rank.rank, "data")
        clock = "the GPU's clock" if waits.clock == "device" else "the host's clock"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(waits.share)} of each step is spent waiting for data "
            f"({seconds(exposed)} of {seconds(step)}).",
            detail=READY_IN_TIME if is_ready else cause_of(plan),
            severity=severity_of(min(waits.share, TAKING) if is_ready else waits.share),
            confidence=_confidence(waits, above, empty),
            share=waits.share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[chosen][0]),
            last_time=float(rank.times[chosen][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            where="" if line is None else line.place,
            evidence=(
                Evidence("wait in a step", seconds(exposed), f"on {clock}, in a step of {seconds(step)}"),
                Evidence("time to get a batch", seconds(fetch), "on the host"),
                Evidence(
                    "windows waiting",
                    f"{above} of {len(waits.shares)}",
                    f"{percent(self.share)} or more of each",
                ),
                *_loader_evidence(loader, plan),
                *(() if line is None else (line.evidence(),)),
                *(
                    ()
                    if empty is None
                    else (Evidence("no batch ready", percent(empty), "of all checks of the queue"),)
                ),
            ),
            chart=Chart(
                (HOST, STEP_SECONDS) if waits.clock == "host" else (DEVICE, DEVICE_STEP), first, last
            ),
            ruled_out=_ruled_out(rank, waits, above),
            remedies=CHEAPER_TO_TAKE
            if is_ready
            else loader_remedies(plan, loader, window.libraries(rank.rank), has_gpu=waits.clock == "device"),
            tries=("fewer, larger tensors in a batch", "num_workers=0")
            if is_ready
            else loader_tries(plan, loader),
            estimate=Estimate(0.0, 0.5 * waits.share, waits.share) if is_ready else plan.estimate,
            how=f"Waits and step times of {len(waits.waited):,} steps were summed on {clock}, in "
            f"{len(waits.shares)} windows; the share is the median of the windows. Number of workers: the "
            "time of one worker for a batch, divided by the time of a step without the wait.",
            refs=("https://pytorch.org/docs/stable/data.html#multi-process-data-loading",),
        )


def _waits(rank: RankWindow) -> _Waits | None:
    """Returns the waits on the GPU's clock if enough steps were timed there, otherwise on the host's."""
    for clock, waited_key, taken_key, least in (
        ("device", DEVICE, DEVICE_STEP, MIN_ON_DEVICE),
        ("host", HOST, STEP_SECONDS, 2 * MIN_IN_BLOCK),
    ):
        if rank.has(waited_key, taken_key):
            chosen = rank.where(waited_key, taken_key) & (rank.columns[taken_key].values > SHORTEST_S)
            waited, taken = rank.columns[waited_key].values[chosen], rank.columns[taken_key].values[chosen]
            if len(waited) >= least:
                edges = block_edges(len(waited), BLOCKS, MIN_IN_BLOCK)
                return _Waits(clock, waited, taken, block_shares(waited, taken, edges))
    return None


def _batches_in_a_step(rank: RankWindow) -> float:
    """Returns the number of batches in a median step: more than one if gradients are accumulated."""
    if MICRO_STEPS not in rank.columns:
        return 1.0
    (batches,) = rank.aligned(MICRO_STEPS)
    return max(float(np.median(batches)), 1.0) if len(batches) else 1.0


def _gpu_is_idle(rank: RankWindow, window: Window, share: float) -> bool:
    """Whether a wait on the host's clock costs time: no GPU is in use, or the GPU is idle about as often."""
    if not any(figures.values.max() > 0 for figures in window.figures(GPU_MEMORY, rank.host, rank.rank)):
        return True
    busy = [float(figures.values.mean()) for figures in window.figures(GPU_BUSY, rank.host)]
    return bool(busy) and min(busy) <= 1 - 0.5 * share


def _idle(rank: RankWindow) -> float | None:
    """Returns the share of time in which the training thread was not on a processor."""
    if CPU_RATIO not in rank.columns:
        return None
    (busy,) = rank.aligned(CPU_RATIO, steady=False)
    return max(1.0 - float(np.median(busy)), 0.0) if len(busy) else None


def _workers_busy(rank: RankWindow, window: Window) -> float | None:
    """Returns the share of time in which a mean loader worker was on a processor."""
    busy = [
        float(figures.values.mean())
        for figures in window.figures(PROCESS_CPU, rank.host, rank.rank)
        if figures.device.startswith("loader-")
    ]
    return float(np.mean(busy)) if busy else None


def _empty_queue(rank: RankWindow) -> float | None:
    """Returns how often no batch was ready; None if the loader has no queue."""
    if READY not in rank.columns:
        return None
    (ready,) = rank.aligned(READY)
    return float((ready < 1).mean()) if len(ready) >= 5 else None


def _is_queue_full(rank: RankWindow, loader: Mapping[str, Any] | None) -> bool:
    """Whether workers had made as many batches as they may at each check of the queue."""
    if READY not in rank.columns or loader is None:
        return False
    (ready,) = rank.aligned(READY, steady=False)
    capacity = (loader.get("num_workers") or 0) * (loader.get("prefetch_factor") or 0)
    return len(ready) >= MIN_CHECKS and capacity > 0 and bool((ready >= capacity).all())


def _confidence(waits: _Waits, above: int, empty: float | None) -> float:
    """Combines how far the blocks agree, the number of steps, and whether the queue was empty as well."""
    agreement = above / len(waits.shares)
    amount = len(waits.waited) / (len(waits.waited) + 20)
    queue = 1.0 if empty is None or empty >= 0.5 else 0.6
    return round(min(0.97, agreement * amount * queue), 3)


def _loader_evidence(loader: Mapping[str, Any] | None, plan: LoaderPlan) -> tuple[Evidence, ...]:
    if loader is None or plan.workers is None:
        return ()
    cores = "an unknown number of" if plan.cores is None else str(plan.cores)
    evidence = [Evidence("workers", str(plan.workers), f"on {cores} processors for this rank")]
    if plan.batch_seconds is not None:
        evidence.append(Evidence("work in a batch", seconds(plan.batch_seconds), "of one worker"))
    return tuple(evidence)


def _ruled_out(rank: RankWindow, waits: _Waits, above: int) -> tuple[str, ...]:
    causes = [f"A few slow batches: {above} of {len(waits.shares)} windows were waiting."]
    if rank.warm_up:
        causes.append(f"The warm-up: its {_count(rank.warm_up, 'step')} left out.")
    if rank.compiled:
        causes.append(f"Compilation: {_count(rank.compiled, 'step')} left out.")
    if waits.clock == "device":
        causes.append("A wait that the GPU's work hides: the GPU itself was idle.")
    return tuple(causes)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun} is" if number == 1 else f"{number:,} {noun}s are"
