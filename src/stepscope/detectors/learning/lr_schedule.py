"""Detects a learning rate that is zero, or so low that the training no longer learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding
from stepscope.schema.keys import LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.schema.finding import Remedy
    from stepscope.schema.window import RankWindow, Window

MIN_READINGS = 5

NOTHING = 1e-8
"""A share of the highest rate whose updates are lost in the rounding of 32-bit weights."""

PLANNED = """\
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(loader))
...
optimizer.step()
scheduler.step()     # once a step, because T_max counts steps"""


@dataclass(frozen=True)
class LearningRateSchedule(Detector):
    """Compares the newest learning rates with the highest of the run."""

    id: ClassVar[str] = "lr.schedule"
    title: ClassVar[str] = "The learning rate is too low to learn"
    sentence: ClassVar[str] = (
        "the newest learning rates are zero, or far below the highest one for a large part of the run"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((LEARNING_RATE,),)
    reads: ClassVar[tuple[str, ...]] = LOSS_KEYS
    courses: ClassVar[tuple[str, ...]] = (LEARNING_RATE,)
    min_steps: ClassVar[int] = MIN_READINGS
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    steps: Annotated[int, Range(2)] = 20
    """Minimum number of steps with a rate of zero."""

    zero_share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of the run with a rate of zero: many schedules end with it."""

    ratio: Annotated[float, Range(1e-9, 0.1)] = 1e-4
    """A rate below this share of the highest one is low."""

    low_share: Annotated[float, Range(0.01, 1)] = 0.3
    """Minimum share of the run with a low rate."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for the step from which on the rate is zero or low."""
        chosen = rank.where(LEARNING_RATE, steady=False)
        rates, steps = np.abs(rank.columns[LEARNING_RATE].values[chosen]), rank.steps[chosen]
        course = rank.course.get(LEARNING_RATE)
        starts, maxima = (
            (steps, rates)
            if course is None or not len(course)
            else (course.starts // course.ticks, np.abs(course.maximum))
        )
        highest = float(max(np.nanmax(maxima), rates.max()))
        length = int(steps[-1]) - int(starts[0]) + 1
        for limit, least_share in ((0.0, self.zero_share), (self.ratio * highest, self.low_share)):
            since = _lasts_since(rates <= limit, steps)
            if since == steps[0]:  # it may have begun before the window
                since = min(_lasts_since(maxima <= limit, starts), since)
            count = int(steps[-1]) - since + 1
            is_known = int((steps >= since).sum()) >= MIN_READINGS
            if is_known and count >= max(self.steps, least_share * length):
                return self._finding(rank, window, since, count / length, highest)
        return f"Learning rate is {number(float(rates[-1]))}; the highest was {number(highest)}."

    def _finding(self, rank: RankWindow, window: Window, since: int, share: float, highest: float) -> Finding:
        chosen = rank.where(LEARNING_RATE, steady=False)
        steps, times = rank.steps[chosen], rank.times[chosen]
        last, newest = int(steps[-1]), abs(float(rank.columns[LEARNING_RATE].values[chosen][-1]))
        has_no_effect = newest <= NOTHING * highest
        low = (
            "zero" if newest == 0 else f"{number(newest)}, {number(newest / highest, 2)} of its highest value"
        )
        loss = rank.first_of(LOSS_KEYS)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The learning rate is {low}, since step {since:,}.",
            detail=("No step changes the weights" if has_no_effect else "Steps hardly change the weights")
            + ". Most often the scheduler is stepped more often than it was planned for, as once a batch "
            "with a length in epochs, or the training goes on after its schedule has ended.",
            severity="warning" if has_no_effect else "notice",
            confidence=0.95 if has_no_effect else 0.8,
            share=None,
            first_step=since,
            last_step=last,
            first_time=float(times[steps >= since][0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("learning rate now", number(newest), f"highest: {number(highest)}"),
                Evidence("steps with it", f"{last - since + 1:,}", f"{percent(share)} of the run"),
            ),
            chart=Chart((LEARNING_RATE, *((loss,) if loss else ()))),
            ruled_out=("The end of a schedule: it lasts for a larger part of the run.",),
            remedies=_remedies(window, rank.rank),
            tries=("plan the schedule for the number of steps", "step the scheduler once an epoch"),
            how="The newest recorded learning rates are compared with the highest one since the segment "
            "began.",
            refs=("https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",),
        )


def _lasts_since(is_low: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
    """Returns the first step from which on all rates are low; after the last if the newest is not."""
    highs = np.flatnonzero(~is_low)
    begin = int(highs[-1]) + 1 if len(highs) else 0
    return int(steps[begin]) if begin < len(steps) else int(steps[-1]) + 1


def _remedies(window: Window, rank: int) -> tuple[Remedy, ...]:
    return remedies_in(
        window.libraries(rank),
        "Plan the schedule for as many steps as the scheduler is stepped, or step it once an epoch.",
        {
            "torch": PLANNED,
            "lightning": 'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, '
            '"interval": "step"}}  # or "epoch"',
            "transformers": 'arguments = TrainingArguments(..., lr_scheduler_type="cosine", max_steps=steps)',
        },
    )
