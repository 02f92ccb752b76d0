"""Recognises a loss that jumped up and came back: a bad batch, or a step that was too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.excursions import spikes
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.analysis.excursions import Excursion
    from stepscope.schema.window import Ints, RankWindow, Window

CLIP = """\
loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
optimizer.step()"""

LIGHTNING = "trainer = Trainer(gradient_clip_val=1.0)"
TRANSFORMERS = "arguments = TrainingArguments(..., max_grad_norm=1.0)"

SKIP = """\
if loss.detach() > 5 * usual:          # usual: a running median of the loss
    print("left out:", step, sample_ids)  # look at what these samples are
    continue"""

FAR_ABOVE = 5.0
"""A loss at so many times the mean around it is mentioned although its neighbours were not looked at."""


@dataclass(frozen=True)
class LossSpike(Detector):
    """Compares each loss with those before it."""

    id: ClassVar[str] = "conv.spike"
    title: ClassVar[str] = "The loss spiked"
    sentence: ClassVar[str] = (
        "a loss lies far above the median of the 50 before it, at twice of it or more, beyond what the run's "
        "own noise reaches, and the loss has come back within 25"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (LOSS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (GRADIENT_NORM, LEARNING_RATE)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 50
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False

    deviations: Annotated[float, Range(3)] = 6.0
    """How far above the median, in spreads (median absolute deviations, as standard deviations)."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for spikes that have passed."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        chosen = rank.where(key, steady=False)
        losses, steps, times = rank.columns[key].values[chosen], rank.steps[chosen], rank.times[chosen]
        found = spikes(losses, self.deviations)
        if not found:
            return f"No loss spikes{_before_the_window(rank, key)}."
        worst = max(found, key=lambda one: one.deviations)
        peak, first, last = int(steps[worst.peak]), int(steps[worst.begin]), int(steps[worst.end - 1])
        lasted = worst.end - worst.begin
        several = f"; {len(found)} such spikes in {len(losses):,} losses" if len(found) > 1 else ""
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The loss jumped from {number(worst.level)} to {number(worst.value)} "
            f"at step {peak:,}, and came back{several}.",
            detail="A spike that passes is mostly one bad batch, or one step that was too large. Each may "
            "cost what was learnt shortly before; the next may not pass.",
            severity="notice" if len(found) < 3 else "warning",
            confidence=min(0.95, 0.6 + 0.01 * worst.deviations),
            first_step=first,
            last_step=last,
            first_time=float(times[worst.begin]),
            last_time=float(times[worst.end - 1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("loss before", number(worst.level), "median of the losses before it"),
                Evidence("greatest loss", number(worst.value), f"at step {peak:,}"),
                Evidence(
                    "distance", f"{number(worst.deviations, 3)} spreads", f"{self.deviations:g} are asked for"
                ),
                Evidence("lasted", f"{lasted} loss{'es' if lasted > 1 else ''}"),
                *_around(rank, steps, worst),
            ),
            chart=Chart((key,), max(first - 200, int(steps[0])), min(last + 200, int(steps[-1]))),
            ruled_out=(
                "Divergence: the loss is back at its course.",
                "Noise: by the tail of the run's other losses, none would lie so far out in 1,000 windows.",
            ),
            remedies=(
                Remedy("Clip gradients, so that one batch cannot move the weights far.", CLIP, "PyTorch"),
                Remedy("The same for Lightning.", LIGHTNING, "Lightning"),
                Remedy("The same for the Trainer of Transformers.", TRANSFORMERS, "Transformers"),
                Remedy("Find the samples of that step, and leave such a batch out.", SKIP),
            ),
            tries=("clip gradients", f"look at the batch of step {peak:,}"),
            how="Each loss is compared with the median of the 50 before it, in units of their median "
            "absolute deviation. The greatest fiftieth of the others tells how far noise reaches (Hill).",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )


def _before_the_window(rank: RankWindow, key: str) -> str:
    """The greatest loss before the steps that were checked, where it is far above those near it."""
    course = rank.course.get(key)
    if course is None:
        return ""
    earlier = np.flatnonzero(course.starts + course.width <= rank.steps[0])[1:]  # the first has the start
    if len(earlier) < 3:
        return ""
    usual = np.maximum(course.mean[earlier - 1], course.mean[earlier + 1 - (earlier + 1 == len(course))])
    apart = course.maximum[earlier] / np.where(usual > 0, usual, np.inf)
    worst = int(np.argmax(apart))
    if not apart[worst] >= FAR_ABOVE:
        return ""
    place = earlier[worst]
    peak = number(float(course.maximum[place]))
    return f", but before them the loss was {peak} near step {int(course.starts[place]):,}"


def _around(rank: RankWindow, steps: Ints, spike: Excursion) -> tuple[Evidence, ...]:
    """What else is known of the steps around a spike."""
    found = []
    first, last = steps[max(spike.begin - 1, 0)], steps[spike.end - 1]
    inside = (rank.steps >= first) & (rank.steps <= last)
    if GRADIENT_NORM in rank.columns:
        norms = rank.columns[GRADIENT_NORM]
        seen, others = norms.values[norms.finite & inside], norms.values[norms.finite & ~inside]
        if len(seen) and len(others):
            usual = number(float(np.median(others)))
            found.append(Evidence("gradient norm", number(float(seen.max())), f"usually {usual}"))
    if LEARNING_RATE in rank.columns:
        rates = rank.columns[LEARNING_RATE]
        seen = rates.values[rates.finite & (rank.steps <= last)]
        if len(seen):
            found.append(Evidence("learning rate", number(float(seen[-1]))))
    return tuple(found)
