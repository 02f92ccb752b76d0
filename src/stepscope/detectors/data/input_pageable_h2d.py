"""Detects a GPU that waits while batches are copied to it from memory that is not pinned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.loader_plan import loader_of
from stepscope.analysis.phase_shares import device_shares
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import device_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

COPY, STEP = device_key("transfer"), device_key("step")


@dataclass(frozen=True)
class PageableCopies(Detector):
    """Sums the time of copies to the GPU on its own clock, if the loader does not pin its batches."""

    id: ClassVar[str] = "input.pageable_h2d"
    title: ClassVar[str] = "Batches are copied to the GPU from memory that is not pinned"
    sentence: ClassVar[str] = (
        "the loader does not pin the memory of its batches, and copying them to the GPU takes a share of the "
        "step on the GPU's clock"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((COPY,), (STEP,))
    events: ClassVar[tuple[str, ...]] = ("loader",)
    min_steps: ClassVar[int] = 20
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of the step."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the copies with the steps that were timed on the GPU."""
        share = device_shares(rank).get("transfer")
        loader = loader_of(window, rank.rank)
        if share is None or loader is None or not isinstance(loader.get("pin_memory"), bool):
            return TooLittleEvidence("Needs the settings of the loader, and steps timed on the GPU.")
        measured = f"Copies to the GPU take {percent(share)} of the step"
        if share < self.share:
            return f"{measured}; threshold: {percent(self.share)}."
        if loader["pin_memory"]:
            return f"{measured}, from pinned memory."
        copies, steps = rank.aligned(COPY, STEP)
        chosen = rank.where(COPY, STEP)
        numbers, times = rank.steps[chosen], rank.times[chosen]
        workers = loader.get("num_workers") or 0
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Copying batches to the GPU takes {percent(share)} of the step "
            f"({seconds(float(copies.mean()))} of {seconds(float(steps.mean()))}), from pageable memory.",
            detail="The driver copies such memory in pieces through a buffer of its own, and the host waits. "
            "From pinned memory, the GPU copies by itself while the host goes on.",
            severity=severity_of(0.6 * share),
            confidence=min(0.9, 0.7 + 0.002 * len(copies)),
            share=share,
            first_step=int(numbers[0]),
            last_step=int(numbers[-1]),
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("copies in a step", seconds(float(copies.mean())), "on the GPU's clock"),
                Evidence("pin_memory", "False", f"num_workers={workers}"),
            ),
            chart=Chart((COPY, STEP), int(numbers[0]), int(numbers[-1])),
            ruled_out=("A copy that the GPU's work hides: it is timed on the GPU's own clock.",),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Have the loader pin its batches, and do not wait for the copy.",
                {
                    "torch": f"loader = DataLoader(dataset, ..., num_workers={workers}, pin_memory=True)\n"
                    "x = x.to(device, non_blocking=True)",
                    "lightning": f"DataLoader(dataset, ..., num_workers={workers}, pin_memory=True)",
                    "transformers": "arguments = TrainingArguments(..., dataloader_pin_memory=True)",
                },
            ),
            tries=("pin_memory=True", "non_blocking=True"),
            estimate=Estimate(0.3 * share, 0.6 * share, share),
            how=f"Copies and steps of {len(copies):,} steps were summed on the GPU's clock.",
        )
