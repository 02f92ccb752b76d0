"""Recognises a loss that has left its course upwards and does not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.divergence import LASTING, LIMIT, Start, divergence, has_exploded
from stepscope.analysis.lasting_rise import lasting_rise
from stepscope.analysis.schedule_hints import batches_changed, first_loss, level_by_schedule
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import BATCH_SIZES, GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.analysis.lasting_rise import LastingRise
    from stepscope.schema.window import RankWindow, Window

CLIP = """\
loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
optimizer.step()"""

ROLL_BACK = """\
state = torch.load("{path}")            # the last checkpoint before step {step:,}
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])"""


@dataclass(frozen=True)
class Diverging(Detector):
    """Compares the newest losses with those before them, and with the first."""

    id: ClassVar[str] = "conv.diverging"
    title: ClassVar[str] = "The loss diverges"
    sentence: ClassVar[str] = (
        "the loss had come down, doubles within 60 steps beyond its own noise, and then grows above all it "
        "was before, or stays at 2.5 times that, or stays where it began for 100 losses; or it grows 30-fold "
        "within 100 steps"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (LOSS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (GRADIENT_NORM, LEARNING_RATE, *BATCH_SIZES)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 25
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ("conv.spike",)

    deviations: Annotated[float, Range(3)] = LIMIT
    """How far above the median, in spreads (median absolute deviations, as standard deviations)."""

    lasting: Annotated[int, Range(3)] = LASTING
    """How many losses in a row it takes."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at where the loss stands."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        chosen = rank.where(key, steady=False)
        losses, steps, times = rank.columns[key].values[chosen], rank.steps[chosen], rank.times[chosen]
        left = divergence(
            losses,
            steps,
            Start(first_loss(rank, key), is_in_window=rank.is_whole),
            limit=self.deviations,
            lasting=self.lasting,
            least_level=level_by_schedule(rank, key),
        )
        if left is None:
            course = rank.course.get(key)
            rise = course and lasting_rise(course, losses, steps, level_by_schedule(rank, key))
            if rise:
                return self._risen_before(rise, rank, window, key)
            return f"The loss is {number(float(losses[-1]))} and is not diverging."
        if not has_exploded(left) and batches_changed(rank, int(steps[left.begin])):
            return f"The loss has risen to {number(left.value)} since batches changed their size."
        first, last = int(steps[left.begin]), int(steps[-1])
        many = left.end - left.begin
        # The last loss is what lists and pages show; in much noise it alone may be no rise.
        newest = float(losses[-1]) if losses[-1] > left.level else left.value
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The loss has gone from {number(left.level)} to {number(newest)} "
            f"since step {first:,}, and does not come back.",
            detail="What is learnt from here on is mostly lost: the weights have left the region in which "
            "the loss was low. The learning rate is the first suspect, then the data of the steps before.",
            severity="critical",
            confidence=min(0.95, 0.7 + 0.01 * many),
            first_step=first,
            last_step=last,
            first_time=float(times[left.begin]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("loss before", number(left.level), "median"),
                Evidence("loss now", number(left.value), f"median of the newest {min(many, 20)}"),
                Evidence(
                    "distance", f"{number(left.deviations, 3)} spreads", f"{self.deviations:g} are asked for"
                ),
                Evidence("lasts for", f"{many:,} losses", f"{self.lasting} are asked for"),
                *_beside(rank, first),
            ),
            chart=Chart((key,), max(first - 200, int(steps[0])), last),
            ruled_out=(
                f"A spike: it has lasted for {many:,} losses.",
                "The schedule: " + _said_of_rate(rank, first),
            ),
            remedies=_remedies(first),
            tries=("lower the learning rate", "clip gradients", f"go back before step {first:,}"),
            how="The newest losses are compared with the median of those before them, in units of their "
            "median absolute deviation, for stretches of 5 losses up to nearly all; and with the first.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )

    def _risen_before(self, rise: LastingRise, rank: RankWindow, window: Window, key: str) -> Finding:
        """The finding on a loss that went up before the window, and is as high in all of it."""
        last = int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The loss has gone from {number(rise.level)} to {number(rise.value)} "
            f"at about step {rise.step:,}, and has not come back.",
            detail="What was learnt before is mostly lost: the weights have left the region in which the "
            "loss was low. The learning rate is the first suspect, then the data of the steps before.",
            severity="critical",
            confidence=0.9,
            first_step=rise.step,
            last_step=last,
            first_time=rise.time,
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("lowest loss", number(rise.level), "mean of a stretch of the run"),
                Evidence("loss now", number(rise.value), f"median of the newest {len(rank.steps):,} steps"),
                Evidence("lasts for", f"{last - rise.step:,} steps", "longer than the newest steps checked"),
            ),
            chart=Chart((key,), 0, last),
            ruled_out=(f"A spike: it has lasted for {last - rise.step:,} steps.",),
            remedies=_remedies(rise.step),
            tries=("lower the learning rate", "clip gradients", f"go back before step {rise.step:,}"),
            how="The newest losses are compared with the course of the whole run, in at most 128 stretches: "
            "its lowest, how quickly the loss rose from there, and whether it has fallen since.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )


def _remedies(first: int) -> tuple[Remedy, ...]:
    return (
        Remedy(
            f"Go back to a checkpoint from before step {first:,} with a third of the learning rate.",
            ROLL_BACK.format(path="checkpoint.pt", step=first)
            + '\nfor group in optimizer.param_groups:\n    group["lr"] /= 3',
            "PyTorch",
        ),
        Remedy("Clip gradients.", CLIP, "PyTorch"),
        Remedy("Clip gradients and warm up.", "trainer = Trainer(gradient_clip_val=1.0)", "Lightning"),
        Remedy(
            "Clip gradients and warm up.",
            "arguments = TrainingArguments(..., max_grad_norm=1.0, warmup_steps=500)",
            "Transformers",
        ),
    )


def _beside(rank: RankWindow, first: int) -> tuple[Evidence, ...]:
    """Gradient norms and rates before and since."""
    found = []
    for key, label in ((GRADIENT_NORM, "gradient norm"), (LEARNING_RATE, "learning rate")):
        if key in rank.columns:
            column = rank.columns[key]
            before = column.values[column.finite & (rank.steps < first)]
            since = column.values[column.finite & (rank.steps >= first)]
            if len(before) and len(since):
                usual = number(float(np.median(before)))
                found.append(Evidence(label, number(float(np.median(since))), f"before: {usual}"))
    return tuple(found)


def _said_of_rate(rank: RankWindow, first: int) -> str:
    if LEARNING_RATE not in rank.columns:
        return "no learning rate was recorded, but the loss is above what a restart would explain."
    column = rank.columns[LEARNING_RATE]
    before = column.values[column.finite & (rank.steps < first)]
    since = column.values[column.finite & (rank.steps >= first)]
    if len(before) and len(since) and since.max() > before[-1]:
        return "the learning rate was raised, but the loss is above where it began."
    return "the learning rate was not raised."
