"""Detects a loss scaler that skips many optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.half_precision import BF16, SETUP_EVENT, SKIPPED, is_half
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.keys import LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

WITHOUT_SCALER = """\
loss.backward()          # instead of scaler.scale(loss).backward()
optimizer.step()         # instead of scaler.step(optimizer); scaler.update()"""

NO_SCALER = Remedy(
    "Train without a scaler: neither parameters nor autocast use float16, so gradients need no scale.",
    WITHOUT_SCALER,
    "PyTorch",
)


@dataclass(frozen=True)
class LossScaler(Detector):
    """Counts the steps that a loss scaler skipped because gradients had overflowed."""

    id: ClassVar[str] = "amp.scaler"
    title: ClassVar[str] = "The loss scaler skips many steps"
    sentence: ClassVar[str] = (
        "a loss scaler skipped several optimizer steps and a share of all of them, without the first ones"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (SKIPPED,)
    reads: ClassVar[tuple[str, ...]] = LOSS_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False  # all ranks skip the same steps
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.001, 1)] = 0.05
    """Minimum share of steps that were skipped."""

    skipped: Annotated[int, Range(2)] = 10
    """Minimum number of steps that were skipped."""

    first_steps: Annotated[int, Range(0)] = 50
    """The first steps are left out: a scaler starts with a scale that is too high."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Divides the number of skipped steps by the number of steps."""
        key = rank.first_of(SKIPPED) or SKIPPED[0]
        begin = self.first_steps if rank.is_whole else 0
        steps, times = rank.steps[begin:], rank.times[begin:]
        if len(steps) < 2 * self.skipped:
            return TooLittleEvidence(f"Needs at least {begin + 2 * self.skipped} steps.")
        is_skipped = np.nan_to_num(rank.columns[key].values[begin:]) > 0
        count = int(is_skipped.sum())
        share = count / len(steps)
        if count < self.skipped or share < self.share:
            return f"A loss scaler skipped {count:,} of {len(steps):,} steps."
        loss = rank.first_of(LOSS_KEYS)
        is_needed = is_half(rank, window)
        cause = "Gradients overflow in float16" if is_needed else "Scaled gradients overflow"
        first, last = int(steps[is_skipped][0]), int(steps[is_skipped][-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The loss scaler skipped {percent(share)} of the steps ({count:,} of {len(steps):,}).",
            detail=f"{cause}, and a step with such gradients does not change the weights. A scaler tries a "
            "higher scale about once in 2,000 steps; more overflows come from the loss or the gradients.",
            severity="warning",
            confidence=min(0.95, 0.8 + 0.005 * count),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(times[is_skipped][0]),
            last_time=float(times[is_skipped][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    "skipped steps", f"{count:,} of {len(steps):,}", f"threshold: {percent(self.share)}"
                ),
                Evidence("last one", f"step {last:,}", f"first one: step {first:,}"),
            ),
            chart=Chart((key, *((loss,) if loss else ())), int(steps[0]), int(steps[-1])),
            ruled_out=("The search for a scale in the first steps: they are left out.",)
            if begin
            else ("The search for a scale in the first steps: these are later ones.",),
            remedies=_remedies(window, rank.rank) if is_needed else (NO_SCALER,),
            tries=("use bfloat16", "compute the loss in 32 bits", "lower the learning rate")
            if is_needed
            else ("train without a loss scaler",),
            estimate=Estimate(0.0, share, share, "the steps"),
            how="A step counts as skipped if the scaler did not call the optimizer.",
            refs=("https://pytorch.org/docs/stable/notes/amp_examples.html",),
        )


def _remedies(window: Window, rank: int) -> tuple[Remedy, ...]:
    return (
        *remedies_in(
            window.libraries(rank), "Use bfloat16, which does not overflow, without a scaler.", BF16
        ),
        Remedy("Or compute the part of the loss that overflows in 32 bits."),
    )
