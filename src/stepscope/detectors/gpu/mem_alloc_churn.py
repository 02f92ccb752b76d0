"""Detects memory that is requested from the driver of the GPU, and returned to it, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.device_memory import SETUP_EVENT, uses_expandable_segments
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

ALLOCATIONS, RETURNS = "memory/device_allocs_total", "memory/device_frees_total"
RESERVED = "memory/reserved_bytes"

CALL_S = (1e-4, 3e-4, 1e-3)
"""What a call of the driver takes, at least, usually and at most; a return also waits for the GPU."""

BLOCKS = 4
"""The counters must rise in each of as many parts of the steps."""

KEEP = Remedy(
    "Do not empty the cache in the loop: the allocator uses freed memory again, and an empty cache is filled "
    "again by the driver.",
    "# remove torch.cuda.empty_cache() from the loop; once after an evaluation is enough",
    "PyTorch",
)
SEGMENTS = Remedy(
    "Let the allocator extend its blocks, so that tensors of other sizes fit into them.",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    "PyTorch",
)
SHAPES = Remedy(
    "Use fewer sizes of batches: pad lengths to a multiple of 64, or group samples of one length."
)


@dataclass(frozen=True)
class AllocatorChurn(Detector):
    """Compares the counters of the allocator between steady steps."""

    id: ClassVar[str] = "mem.alloc_churn"
    title: ClassVar[str] = "Memory of the GPU is allocated by the driver in every step"
    sentence: ClassVar[str] = (
        "after the warm-up, the allocator still requests memory from the driver and returns it, throughout "
        "the steps"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((ALLOCATIONS,), (RETURNS,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (RESERVED,)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 2 * BLOCKS
    is_optional: ClassVar[bool] = True

    per_step: Annotated[float, Range(0)] = 0.05
    """Minimum number of allocations by the driver in a mean step."""

    share: Annotated[float, Range(0, 1)] = 0.01
    """Minimum share of the time that these calls usually take."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines the steps after the warm-up; in the first quarter of them caches may still fill."""
        chosen = rank.where(ALLOCATIONS, RETURNS)
        chosen[: np.searchsorted(np.cumsum(chosen), chosen.sum() // 4)] = False
        allocations, returns = (rank.columns[key].values[chosen] for key in (ALLOCATIONS, RETURNS))
        steps = rank.steps[chosen]
        if len(steps) < 2 * BLOCKS:
            return TooLittleEvidence(f"Needs at least {3 * BLOCKS} readings of the allocator.")
        edges = np.linspace(0, len(steps) - 1, BLOCKS + 1).astype(int)
        gained = np.diff(allocations[edges]) / np.diff(steps[edges])
        returned = np.diff(returns[edges]) / np.diff(steps[edges])
        usual = f"The driver allocates memory {number(float(np.median(gained)), 2)} times in a step"
        if min(gained) < self.per_step:
            return f"{usual}, not throughout the steps; threshold: {self.per_step}."
        if min(returned) < 0.5 * self.per_step:
            return f"{usual} and does not take it back: the cache is still filling."
        calls = float(np.median(gained) + np.median(returned))
        step_s = float(rank.aligned(STEP_SECONDS)[0].mean())
        low, likely, high = (min(calls * call_s / step_s, 0.9) for call_s in CALL_S)
        if likely < self.share:
            return f"{usual}, which takes about {percent(likely)} of it."
        estimate = Estimate(low, likely, high)
        return self._finding(rank, window, (float(np.median(gained)), float(np.median(returned))), estimate)

    def _finding(
        self, rank: RankWindow, window: Window, rates: tuple[float, float], estimate: Estimate
    ) -> Finding:
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        allocations, returns = (number(rate, 2) for rate in rates)
        segments = () if uses_expandable_segments(rank, window) else (SEGMENTS,)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The driver of the GPU allocates memory {allocations} times in a step, and takes it "
            f"back {returns} times.",
            detail="The allocator should keep freed memory and use it again. It returns memory if the "
            "cache is "
            "emptied in the loop, or if sizes change so much that nothing fits. Each return waits for the "
            "GPU.",
            severity=severity_of(estimate.likely),
            confidence=0.85,
            share=estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    "allocations by the driver", f"{allocations} in a step", "of blocks, not of tensors"
                ),
                Evidence("returned to the driver", f"{returns} in a step"),
            ),
            chart=Chart((ALLOCATIONS, RETURNS, RESERVED), first, last),
            ruled_out=(
                "A cache that fills in the first steps: memory is also returned, and as often later.",
            ),
            remedies=(KEEP, *segments, SHAPES),
            tries=("no empty_cache() in the loop", *(["expandable segments"] if segments else [])),
            estimate=estimate,
            how="Differences of the allocator's counters in four parts of the steps. The time of a call is "
            "not measured: 0.1 to 1 ms, usually 0.3 ms.",
            refs=(
                "https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
            ),
        )
