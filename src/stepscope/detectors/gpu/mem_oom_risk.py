"""Detects that the memory of a GPU is full, or will be before the run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.gpu.device_memory import (
    SETUP_EVENT,
    capacity_of,
    series_of,
    urgency,
    uses_expandable_segments,
)
from stepscope.analysis.memory_growth import ALLOCATED, DEVICE_LIMITS, MIN_READINGS, growth_of
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.number_format import duration, size
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from stepscope.analysis.memory_growth import Growth
    from stepscope.schema.finding import Severity
    from stepscope.schema.window import RankWindow, Window

PEAK, RESERVED, SPLIT = "memory/peak_bytes", "memory/reserved_bytes", "memory/inactive_split_bytes"
RETRIES, FAILURES = "memory/alloc_retries_total", "memory/ooms_total"

FRAGMENTED = 0.2
"""Memory is fragmented if this share of what is reserved is in free parts of blocks."""

RELEASE = Remedy(
    "Memory of tensors grows: keep no tensors that have a graph, and release what is not needed.",
    "total += loss.item()                       # or loss.detach()",
    "PyTorch",
)
SEGMENTS = Remedy(
    "Let the allocator extend its blocks, which avoids free parts that are too small to be used.",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    "PyTorch",
)
SMALLER = Remedy(
    "Use smaller batches and accumulate their gradients: the optimizer steps are the same.",
    "(loss_of(model(x), y) / 2).backward()      # x, y: half of a batch\n"
    "if number % 2 == 1:\n"
    "    optimizer.step()\n"
    "    optimizer.zero_grad()",
    "PyTorch",
)
CHECKPOINTING = Remedy(
    "Compute activations again in the backward pass instead of keeping them.",
    "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    "PyTorch",
)
LIMIT_LENGTH = Remedy("Limit the size of the largest batches: by tokens instead of samples, or by length.")


class _Risk(NamedTuple):
    """Why the training may run out of memory."""

    headline: str
    detail: str
    severity: Severity
    confidence: float
    first_step: int
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    how: str


@dataclass(frozen=True)
class OutOfMemoryRisk(Detector):
    """Counts allocations that had to empty the cache, and extends the growth of the peak to the end."""

    id: ClassVar[str] = "mem.oom_risk"
    title: ClassVar[str] = "The memory of the GPU is nearly full"
    sentence: ClassVar[str] = (
        "after the warm-up an allocation succeeded only when the cache was emptied, or failed; or the peak "
        "grows steadily and will be nearly full before the end, or after as long again if that is not known"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((PEAK, RETRIES),)
    reads: ClassVar[tuple[str, ...]] = (ALLOCATED, RESERVED, SPLIT, FAILURES, *DEVICE_LIMITS)
    courses: ClassVar[tuple[str, ...]] = (PEAK, ALLOCATED)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 3
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("mem.leak", "mem.retention", "mem.alloc_churn")

    full: Annotated[float, Range(0.5, 1)] = 0.95
    """The share of the GPU's memory at which it counts as full."""

    growth: Annotated[float, Range(0, 1)] = 0.02
    """Minimum growth of the peak while it was observed, as a share of the GPU's memory."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at the counters first, then at the peak."""
        risk = self._retried(rank, window) or self._forecast(rank, window)
        if isinstance(risk, str):
            return risk
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=risk.headline,
            detail=risk.detail,
            severity=risk.severity,
            confidence=risk.confidence,
            first_step=risk.first_step,
            last_step=last,
            first_time=float(rank.times[np.searchsorted(rank.steps, risk.first_step)]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=risk.evidence,
            chart=Chart(tuple(key for key in (PEAK, RESERVED, RETRIES) if key in rank.columns), first, last),
            ruled_out=("Memory that is high and stays as it is: that is no risk.",),
            remedies=risk.remedies,
            tries=("smaller batches with accumulation", "activation checkpointing"),
            how=risk.how,
            refs=("https://pytorch.org/docs/stable/notes/cuda.html#memory-management",),
        )

    def _retried(self, rank: RankWindow, window: Window) -> _Risk | None:
        """Returns the risk of allocations that failed, or had to be repeated."""
        retries, failures = _rises(rank, RETRIES), _rises(rank, FAILURES)
        risen = [rises for rises in (retries, failures) if rises is not None and rises.risen > 0]
        if not risen:
            return None
        worst = risen[-1]
        capacity = capacity_of(rank, window)
        reserved = _newest(rank, RESERVED)
        share = 0.0 if not reserved else (_newest(rank, SPLIT) or 0.0) / reserved
        is_growing = _growth(rank, ALLOCATED).goes_on
        remedies: tuple[Remedy, ...] = (SMALLER, CHECKPOINTING)
        if share >= FRAGMENTED and not uses_expandable_segments(rank, window):
            remedies = (SEGMENTS, *remedies)
        if is_growing:
            remedies = (RELEASE, *remedies)
        times = "1 time" if worst.risen == 1 else f"{worst.risen:,} times"
        is_failure = worst is failures
        what = "failed" if is_failure else "succeeded only after the cache was emptied"
        evidence = [
            Evidence("allocations that had to be repeated", times, f"first by step {worst.first_step:,}")
        ]
        if reserved:
            of = "" if capacity is None else f"of {size(capacity)}"
            evidence.append(Evidence("reserved", size(reserved), of))
            evidence.append(Evidence("free parts of blocks", percent(share), "of what is reserved"))
        return _Risk(
            headline=f"An allocation on the GPU {what}, {times} in {worst.steps:,} steps.",
            detail="No memory was left: the next larger batch may end the training with an out of memory "
            "error."
            + ("" if is_failure else " Each retry waits for the GPU and returns the cache to the driver."),
            severity="critical" if is_failure else "warning",
            confidence=0.95,
            first_step=worst.first_step,
            evidence=tuple(evidence),
            remedies=remedies,
            how="PyTorch's allocator counts allocations that it has to repeat after it has emptied its "
            "cache. Those of the warm-up are left out.",
        )

    def _forecast(self, rank: RankWindow, window: Window) -> _Risk | str:
        """Returns the risk of a peak that grows."""
        steps, times, values = series_of(rank, PEAK, "maximum")
        capacity = capacity_of(rank, window)
        if capacity is None:
            return TooLittleEvidence("Needs the size of the GPU's memory.")
        if len(values) < MIN_READINGS:
            return f"No allocation had to be repeated; {len(values)} readings of the peak."
        share = float(values.max()) / capacity
        passed = f"The peak is {percent(share)} of the memory, and no allocation had to be repeated."
        growth = growth_of(times, values, steps)
        per_s = growth.per_hour.value / 3600 if growth.per_hour is not None and growth.goes_on else 0.0
        if per_s <= 0 or per_s * growth.seconds < self.growth * capacity:
            return passed
        if _growth(rank, ALLOCATED).goes_on:
            return f"{passed} What tensors use after a step grows; that is examined for a leak."
        left_s = max(self.full * capacity - growth.level_bytes, 0.0) / per_s
        if left_s > (growth.seconds if window.remaining_s is None else window.remaining_s):
            return f"{passed} It grows, but will not be full before the run ends."
        gain = f"{size(per_s * 3600)} per hour"
        return _Risk(
            headline=f"The peak of the GPU's memory grows by {gain} and will reach {percent(self.full)} of "
            f"{size(capacity)} in {duration(left_s)}.",
            detail="What remains after a step does not grow, so batches need more and more memory: they "
            "become longer or larger. Then the training ends with an out of memory error.",
            severity=urgency(left_s, growth.seconds),
            confidence=0.8,
            first_step=int(rank.steps[0]),
            evidence=(
                Evidence("growth of the peak", gain, f"observed for {duration(growth.seconds)}"),
                Evidence("peak", size(growth.level_bytes), f"{percent(share)} of {size(capacity)}"),
            ),
            remedies=(LIMIT_LENGTH, SMALLER, CHECKPOINTING),
            how="Theil-Sen line through the readings of the allocator's peak, compared with the memory of "
            "the GPU and the time that the run will still take.",
        )


class _Rises(NamedTuple):
    """By how much a counter rose."""

    risen: int
    steps: int
    """In how many steps."""
    first_step: int


def _rises(rank: RankWindow, key: str) -> _Rises | None:
    """Returns by how much a counter rose in steady steps; None if it was read too rarely."""
    if key not in rank.columns:
        return None
    chosen = rank.where(key)
    values, steps = rank.columns[key].values[chosen], rank.steps[chosen]
    if len(values) < 2:
        return None
    rises = np.maximum(np.diff(values), 0)
    first = int(steps[1:][rises > 0][0]) if rises.any() else 0
    return _Rises(int(rises.sum()), int(steps[-1] - steps[0]), first)


def _newest(rank: RankWindow, key: str) -> float | None:
    if key not in rank.columns:
        return None
    (values,) = rank.aligned(key, steady=False)
    return float(values[-1]) if len(values) else None


def _growth(rank: RankWindow, key: str) -> Growth:
    steps, times, values = series_of(rank, key, "minimum")
    return growth_of(times, values, steps)
