"""Detects a GPU with much free memory whose compute units are mostly idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.gpu.device_memory import SETUP_EVENT, capacity_of, series_of
from stepscope.analysis.gpu.gpu_load import LOAD_EVENTS, LOAD_KEYS, load_of
from stepscope.analysis.memory_growth import DEVICE_LIMITS
from stepscope.analysis.phase_shares import device_shares
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.number_format import size
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import BATCH_SIZES, device_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

PEAK = "memory/peak_bytes"

LARGER = Remedy(
    "Use larger batches: they take about as long until the GPU is busy. Fewer optimizer steps then see the "
    "same data, so adapt the learning rate and its schedule, and compare the losses by samples."
)
WITHOUT_CHECKPOINTING = Remedy(
    "If activations are computed again in the backward pass to save memory, keep them: it is there."
)


@dataclass(frozen=True)
class MemoryHeadroom(Detector):
    """Compares the peak of the allocator with the memory of the GPU, where the GPU is not busy."""

    id: ClassVar[str] = "mem.headroom"
    title: ClassVar[str] = "Memory of the GPU is free for larger batches"
    sentence: ClassVar[str] = (
        "much of the GPU's memory was never used, most of its compute units are idle, and no step waits "
        "for data"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((PEAK,), (device_key("step"),))
    reads: ClassVar[tuple[str, ...]] = (*LOAD_KEYS, *DEVICE_LIMITS, *BATCH_SIZES)
    courses: ClassVar[tuple[str, ...]] = (PEAK,)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT, *LOAD_EVENTS)
    min_steps: ClassVar[int] = 8
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    used: Annotated[float, Range(0, 1)] = 0.6
    """Maximum share of the memory that the peak takes."""

    active: Annotated[float, Range(0, 1)] = 0.5
    """Maximum share of compute units that are active; of the time with a kernel where that is not read."""

    waits: Annotated[float, Range(0, 1)] = 0.1
    """Maximum share of the step in which the GPU waits for batches: larger ones come later."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks memory, load and waits."""
        capacity, (_, _, peaks) = capacity_of(rank, window), series_of(rank, PEAK, "maximum")
        load = load_of(rank, window)
        active = None if load is None else load.utilization if load.sm_active is None else load.sm_active
        if capacity is None or load is None or active is None:
            return TooLittleEvidence("Needs the size of the GPU's memory, its clock and its readings.")
        share = float(peaks.max()) / capacity
        if share >= self.used:
            return f"The peak takes {percent(share)} of the memory."
        if load.limits_steps or active >= self.active:
            return (
                f"The GPU is busy ({percent(active)}), although {percent(1 - share)} of its memory is free."
            )
        shares = device_shares(rank)
        waits = shares.get("data", 0.0) + shares.get("transfer", 0.0)
        if waits >= self.waits:
            return f"The GPU waits for batches {percent(waits)} of the time: larger ones would come later."
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        batch = rank.first_of(BATCH_SIZES)
        sizes = [] if batch is None else list(rank.aligned(batch)[0])
        unit = "tokens" if batch == "batch/tokens" else "samples"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(1 - share)} of the GPU's memory is free, and {percent(active)} of "
            f"{'its compute units' if load.sm_active is not None else 'the time'} is used.",
            detail="The kernels of these batches are too small for the GPU. With larger ones the same time "
            "trains more samples, if the training allows it.",
            severity="info",
            confidence=0.7,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("peak of tensors", size(float(peaks.max())), f"of {size(capacity)}"),
                *((Evidence("batch", f"{number(float(sizes[-1]))} {unit}"),) if len(sizes) else ()),
                *load.evidence,
            ),
            chart=Chart((PEAK,), first, last),
            ruled_out=("Waits for data: the GPU's clock shows none that is long.",),
            remedies=(LARGER, WITHOUT_CHECKPOINTING),
            tries=("larger batches",),
            how="The allocator's peak in the whole run, compared with the memory of the GPU; how many "
            "samples in a second larger batches would give is not estimated.",
        )
