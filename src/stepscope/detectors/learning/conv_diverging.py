"""Detects a loss that rises and does not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.loss.divergence import LASTING, LIMIT, Start, divergence, has_exploded
from stepscope.analysis.loss.lasting_rise import lasting_rise
from stepscope.analysis.loss.schedule_hints import batches_changed, first_loss, level_by_schedule
from stepscope.analysis.remedies import CLIPPING, remedies_in
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import BATCH_SIZES, GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepscope.analysis.loss.lasting_rise import LastingRise
    from stepscope.schema.window import RankWindow, Window

ROLL_BACK = """\
state = torch.load("{path}")            # the last checkpoint before step {step:,}
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])"""


@dataclass(frozen=True)
class Diverging(Detector):
    """Compares the newest losses with earlier ones and with the first."""

    id: ClassVar[str] = "conv.diverging"
    title: ClassVar[str] = "Loss diverges"
    sentence: ClassVar[str] = (
        "the loss had come down, then doubles within 60 steps beyond its own noise, and then keeps growing "
        "above all earlier losses, stays at 2.5 times their maximum, or stays near the first loss for 100 "
        "losses; or it grows 30-fold within 100 steps"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (LOSS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (GRADIENT_NORM, LEARNING_RATE, *BATCH_SIZES)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 25
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ("conv.spike",)

    deviations: Annotated[float, Range(3)] = LIMIT
    """Minimum distance above the median, in spreads (median absolute deviation times 1.4826)."""

    lasting: Annotated[int, Range(3)] = LASTING
    """How many losses in a row must be that far above it."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest losses, then the course of the whole run."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        chosen = rank.where(key, steady=False)
        losses, steps, times = rank.columns[key].values[chosen], rank.steps[chosen], rank.times[chosen]
        rise = divergence(
            losses,
            steps,
            Start(first_loss(rank, key), is_in_window=rank.is_whole),
            limit=self.deviations,
            lasting=self.lasting,
            least_level=level_by_schedule(rank, key),
        )
        if rise is None:
            course = rank.course.get(key)
            earlier = course and lasting_rise(course, losses, steps, level_by_schedule(rank, key))
            if earlier:
                return self._earlier_rise(earlier, rank, window, key)
            return f"Loss is {number(float(losses[-1]))} and is not diverging."
        if not has_exploded(rise) and batches_changed(rank, int(steps[rise.begin])):
            return f"Loss rose to {number(rise.value)} when the batch size changed."
        first, last = int(steps[rise.begin]), int(steps[-1])
        count = rise.end - rise.begin
        # Lists and pages show the last loss; a single noisy loss may be below the earlier level.
        newest = float(losses[-1]) if losses[-1] > rise.level else rise.value
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Loss rose from {number(rise.level)} to {number(newest)} since step {first:,} "
            "and has not come back.",
            detail="The weights have left the region of low loss, so further training is mostly wasted. The "
            "most likely cause is the learning rate, then the data of the steps before the rise.",
            severity="critical",
            confidence=min(0.95, 0.7 + 0.01 * count),
            first_step=first,
            last_step=last,
            first_time=float(times[rise.begin]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("loss before", number(rise.level), "median"),
                Evidence("loss now", number(rise.value), f"median of the newest {min(count, 20)}"),
                Evidence(
                    "distance", f"{number(rise.deviations, 3)} spreads", f"threshold: {self.deviations:g}"
                ),
                Evidence("lasts for", f"{count:,} losses", f"threshold: {self.lasting}"),
                *_changes(rank, first),
            ),
            chart=Chart((key,), max(first - 200, int(steps[0])), last),
            ruled_out=(
                f"A spike: it has lasted for {count:,} losses.",
                "The schedule: " + _schedule_ruled_out(rank, first),
            ),
            remedies=_remedies(first, window.libraries(rank.rank)),
            tries=("lower the learning rate", "clip gradients", f"go back before step {first:,}"),
            how="The newest losses, from 5 up to nearly all, are compared with the median of the losses "
            "before them, in units of their median absolute deviation, and with the first loss.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )

    def _earlier_rise(self, rise: LastingRise, rank: RankWindow, window: Window, key: str) -> Finding:
        """Returns the finding on a loss that rose before the window and stayed high in all of it."""
        last = int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Loss rose from {number(rise.level)} to {number(rise.value)} at about step "
            f"{rise.step:,} and has not come back.",
            detail="The weights have left the region of low loss, so what was learned before is mostly lost. "
            "The most likely cause is the learning rate, then the data of the steps before the rise.",
            severity="critical",
            confidence=0.9,
            first_step=rise.step,
            last_step=last,
            first_time=rise.time,
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("lowest loss", number(rise.level), "lowest mean of a part of the run"),
                Evidence("loss now", number(rise.value), f"median of the newest {len(rank.steps):,} steps"),
                Evidence("lasts for", f"{last - rise.step:,} steps", "longer than the newest steps checked"),
            ),
            chart=Chart((key,), 0, last),
            ruled_out=(f"A spike: it has lasted for {last - rise.step:,} steps.",),
            remedies=_remedies(rise.step, window.libraries(rank.rank)),
            tries=("lower the learning rate", "clip gradients", f"go back before step {rise.step:,}"),
            how="The newest losses are compared with the whole run, in at most 128 parts: its lowest mean, "
            "how quickly the loss rose from there, and whether it has fallen since.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )


def _remedies(first: int, libraries: Collection[str]) -> tuple[Remedy, ...]:
    return (
        Remedy(
            f"Go back to a checkpoint from before step {first:,} with a third of the learning rate.",
            ROLL_BACK.format(path="checkpoint.pt", step=first)
            + '\nfor group in optimizer.param_groups:\n    group["lr"] /= 3',
            "PyTorch",
        ),
        *remedies_in(libraries, "Clip gradients.", CLIPPING),
    )


def _changes(rank: RankWindow, first: int) -> tuple[Evidence, ...]:
    """Returns gradient norm and learning rate before and since a step."""
    evidence = []
    for key, label in ((GRADIENT_NORM, "gradient norm"), (LEARNING_RATE, "learning rate")):
        if key in rank.columns:
            column = rank.columns[key]
            before = column.values[column.finite & (rank.steps < first)]
            since = column.values[column.finite & (rank.steps >= first)]
            if len(before) and len(since):
                usual = number(float(np.median(before)))
                evidence.append(Evidence(label, number(float(np.median(since))), f"before: {usual}"))
    return tuple(evidence)


def _schedule_ruled_out(rank: RankWindow, first: int) -> str:
    if LEARNING_RATE not in rank.columns:
        return "no learning rate is recorded, but the loss is higher than a restart would explain."
    column = rank.columns[LEARNING_RATE]
    before = column.values[column.finite & (rank.steps < first)]
    since = column.values[column.finite & (rank.steps >= first)]
    if len(before) and len(since) and since.max() > before[-1]:
        return "the learning rate was raised, but the loss is above its first value."
    return "the learning rate was not raised."
