"""Recognises steps that wait for data: the loader, not the model, sets the pace."""

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
from stepscope.analysis.loader_remedies import cause_of, remedies_for, tries_for
from stepscope.analysis.robust import block_edges, block_shares
from stepscope.analysis.steady import SHORTEST_S
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stepscope.schema.window import Floats, RankWindow, Window

HOST, DEVICE, DEVICE_STEP = "phase/data_seconds", "device/data_seconds", "device/step_seconds"
READY, CPU_RATIO = "loader/ready_batches", "host/cpu_ratio"
MICRO_STEPS, PROCESS_CPU = "micro_steps", "process/cpu_ratio"
GPU_MEMORY, GPU_BUSY = "gpu/process_memory_bytes", "gpu/utilization_ratio"

BLOCKS, MIN_IN_BLOCK = 10, 5
MIN_ON_DEVICE = 20
"""Steps that must have been timed on the GPU for its clock to be the one that counts."""


class _Waits(NamedTuple):
    """Seconds waited and seconds taken, step by step, on one clock."""

    clock: str
    waited: Floats
    taken: Floats
    shares: Floats
    """Of each block of steps."""

    @property
    def share(self) -> float:
        """That of a usual block: a few slow batches do not make it."""
        return float(np.median(self.shares))


@dataclass(frozen=True)
class ExposedWait(Detector):
    """Adds up the time that steps wait for data on the clock that counts: the GPU's where it was recorded."""

    id: ClassVar[str] = "input.exposed_wait"
    title: ClassVar[str] = "Steps wait for data"
    sentence: ClassVar[str] = (
        "waiting for data makes up a share of the step, in most stretches of the window; on the GPU's clock "
        "where steps were timed there, else on the host's"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((HOST, DEVICE), (STEP_SECONDS, DEVICE_STEP))
    reads: ClassVar[tuple[str, ...]] = (
        HOST, DEVICE, DEVICE_STEP, READY, CPU_RATIO, MICRO_STEPS, PROCESS_CPU, USABLE_CORES, GPU_MEMORY,
        GPU_BUSY,
    )  # fmt: skip
    events: ClassVar[tuple[str, ...]] = ("loader",)
    min_steps: ClassVar[int] = 30

    share: Annotated[float, Range(0.01, 1)] = 0.05
    """The share of the step from which waiting counts."""

    least_seconds: Annotated[float, Range(0)] = 0.001
    """A shorter wait for a batch is none: to take one from a worker takes about as long."""

    least_device_seconds: Annotated[float, Range(0)] = 0.0002
    """The same on a GPU's clock, on which taking a batch from a worker costs nothing."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Chooses the clock, and adds up."""
        waits = _waits(rank)
        if waits is None:
            return "Waiting and whole steps were not timed at the same steps."
        mean = float(waits.waited.mean())
        told = (
            f"Steps wait for data for {percent(waits.share)} of their time ({seconds(mean)} in a mean step)"
        )
        if waits.share < self.share or float(np.quantile(waits.shares, 0.25)) < 0.5 * self.share:
            return f"{told}; {percent(self.share)} in most stretches would count."
        least = self.least_seconds if waits.clock == "host" else self.least_device_seconds
        if mean < least * _batches_in_a_step(rank):
            return f"{told}; below {seconds(least)} for a batch there is nothing to be gained."
        if waits.clock == "host" and not _gpu_is_idle(rank, window, waits.share):
            return f"{told} on the host, but the GPU was busy meanwhile: the wait is hidden."
        return self._told(rank, window, waits)

    def _told(self, rank: RankWindow, window: Window, waits: _Waits) -> Finding:
        chosen = rank.where(STEP_SECONDS) if STEP_SECONDS in rank.columns else rank.steady
        step = float(waits.taken.mean())
        exposed = waits.share * step
        fetched = rank.aligned(HOST)[0] if HOST in rank.columns else ()
        batches = _batches_in_a_step(rank)
        fetch = (float(np.mean(fetched)) if len(fetched) else exposed) / batches
        loader = loader_of(window, rank.rank)
        times = BatchTimes(step / batches, exposed / batches, fetch, _idle(rank), _workers_busy(rank, window))
        plan = plan_for(times, loader, cores_for(window, rank))
        libraries = window.facts.get(rank.rank, {}).get("libraries", {})
        first, last = int(rank.steps[chosen][0]), int(rank.steps[chosen][-1])
        above = int((waits.shares >= self.share).sum())
        empty = _empty_queue(rank)
        clock = "the GPU's clock" if waits.clock == "device" else "the host's clock"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(waits.share)} of each step is spent waiting for data "
            f"({seconds(exposed)} of {seconds(step)}).",
            detail=cause_of(plan),
            severity=severity_of(waits.share),
            confidence=_confidence(waits, above, empty),
            share=waits.share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[chosen][0]),
            last_time=float(rank.times[chosen][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("wait in a step", seconds(exposed), f"on {clock}, in a step of {seconds(step)}"),
                Evidence("time to get a batch", seconds(fetch), "on the host"),
                Evidence(
                    "stretches that wait",
                    f"{above} of {len(waits.shares)}",
                    f"each {percent(self.share)} or more",
                ),
                *_loader_evidence(loader, plan),
                *(
                    ()
                    if empty is None
                    else (Evidence("no batch ready", percent(empty), "of all looks at the queue"),)
                ),
            ),
            chart=Chart(
                (HOST, STEP_SECONDS) if waits.clock == "host" else (DEVICE, DEVICE_STEP), first, last
            ),
            ruled_out=_ruled_out(rank, waits, above),
            remedies=remedies_for(plan, loader, libraries, has_gpu=waits.clock == "device"),
            tries=tries_for(plan, loader),
            estimate=plan.estimate,
            how=f"Seconds waited and taken were added up over {len(waits.waited):,} steps on {clock}, in "
            f"{len(waits.shares)} stretches; the share is that of the middle one. Workers: the seconds one "
            "takes for a batch, divided by the step without the wait.",
            refs=("https://pytorch.org/docs/stable/data.html#multi-process-data-loading",),
        )


def _waits(rank: RankWindow) -> _Waits | None:
    """On the GPU's clock where enough steps were timed there, else on the host's."""
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
    """How many batches a usual step takes: several where gradients are accumulated."""
    if MICRO_STEPS not in rank.columns:
        return 1.0
    (batches,) = rank.aligned(MICRO_STEPS)
    return max(float(np.median(batches)), 1.0) if len(batches) else 1.0


def _gpu_is_idle(rank: RankWindow, window: Window, share: float) -> bool:
    """Whether the host's clock may be believed: there is no GPU in use, or it is idle about as often."""
    if not any(one.values.max() > 0 for one in window.figures(GPU_MEMORY, rank.host, rank.rank)):
        return True
    busy = [float(one.values.mean()) for one in window.figures(GPU_BUSY, rank.host)]
    return bool(busy) and min(busy) <= 1 - 0.5 * share


def _idle(rank: RankWindow) -> float | None:
    """The share of time in which the training thread was not on a processor."""
    if CPU_RATIO not in rank.columns:
        return None
    (busy,) = rank.aligned(CPU_RATIO, steady=False)
    return max(1.0 - float(np.median(busy)), 0.0) if len(busy) else None


def _workers_busy(rank: RankWindow, window: Window) -> float | None:
    """The share of time in which a mean worker of the loader was on a processor."""
    busy = [
        float(figures.values.mean())
        for figures in window.figures(PROCESS_CPU, rank.host, rank.rank)
        if figures.device.startswith("loader-")
    ]
    return float(np.mean(busy)) if busy else None


def _empty_queue(rank: RankWindow) -> float | None:
    """How often no batch lay ready; None where the loader has no queue."""
    if READY not in rank.columns:
        return None
    (ready,) = rank.aligned(READY)
    return float((ready < 1).mean()) if len(ready) >= 5 else None


def _confidence(waits: _Waits, above: int, empty: float | None) -> float:
    """How far the stretches agree, how many steps there are, and whether the queue tells the same."""
    agreement = above / len(waits.shares)
    amount = len(waits.waited) / (len(waits.waited) + 20)
    queue = 1.0 if empty is None or empty >= 0.5 else 0.6
    return round(min(0.97, agreement * amount * queue), 3)


def _loader_evidence(loader: Mapping[str, Any] | None, plan: LoaderPlan) -> tuple[Evidence, ...]:
    if loader is None or plan.workers is None:
        return ()
    cores = "an unknown number of" if plan.cores is None else str(plan.cores)
    found = [Evidence("workers", str(plan.workers), f"on {cores} processors for this rank")]
    if plan.batch_seconds is not None:
        found.append(Evidence("work in a batch", seconds(plan.batch_seconds), "of one worker"))
    return tuple(found)


def _ruled_out(rank: RankWindow, waits: _Waits, above: int) -> tuple[str, ...]:
    found = [f"A few slow batches: {above} of {len(waits.shares)} stretches of the window wait."]
    if rank.warm_up:
        found.append(f"The warm-up: the first {rank.warm_up} steps are left out.")
    if rank.compiled:
        found.append(f"Compilation: {rank.compiled} steps with some are left out.")
    if waits.clock == "device":
        found.append("A wait that is hidden behind the GPU's work: it was the GPU that had nothing to do.")
    return tuple(found)
