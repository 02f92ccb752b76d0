"""Detects a loss that jumped up and came back: a bad batch, or an update that was too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.loss.excursions import spikes
from stepscope.analysis.remedies import CLIPPING, remedies_in
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.analysis.loss.excursions import Excursion
    from stepscope.schema.window import Ints, RankWindow, Window

SKIP = """\
if loss.detach() > 5 * usual:          # usual: a running median of the loss
    print("skipped:", step, sample_ids)  # inspect these samples
    continue"""

FAR_ABOVE = 5.0
"""A loss before the window is mentioned if it is this factor above the means around it."""


@dataclass(frozen=True)
class LossSpike(Detector):
    """Compares each loss with the losses before it."""

    id: ClassVar[str] = "conv.spike"
    title: ClassVar[str] = "Loss spiked"
    sentence: ClassVar[str] = (
        "a loss is far above the median of the 50 losses before it, at least twice as high and beyond the "
        "run's own noise, and the loss has come back within 25 losses"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (LOSS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (GRADIENT_NORM, LEARNING_RATE)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 50
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False

    deviations: Annotated[float, Range(3)] = 6.0
    """Minimum distance above the median, in spreads (median absolute deviation times 1.4826)."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for spikes that are over."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        chosen = rank.where(key, steady=False)
        losses, steps, times = rank.columns[key].values[chosen], rank.steps[chosen], rank.times[chosen]
        excursions = spikes(losses, self.deviations)
        if not excursions:
            return f"No loss spikes{_before_the_window(rank, key)}."
        worst = max(excursions, key=lambda excursion: excursion.deviations)
        peak, first, last = int(steps[worst.peak]), int(steps[worst.begin]), int(steps[worst.end - 1])
        lasted = worst.end - worst.begin
        count = len(excursions)
        several = f"; {count} such spikes in {len(losses):,} losses" if count > 1 else ""
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Loss jumped from {number(worst.level)} to {number(worst.value)} at step {peak:,} "
            f"and came back{several}.",
            detail="A spike usually comes from one bad batch or one update that was too large. It can undo "
            "recent progress, and the loss may not recover from the next one.",
            severity="notice" if count < 3 else "warning",
            confidence=min(0.95, 0.6 + 0.01 * worst.deviations),
            first_step=first,
            last_step=last,
            first_time=float(times[worst.begin]),
            last_time=float(times[worst.end - 1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("loss before", number(worst.level), "median of the losses before it"),
                Evidence("highest loss", number(worst.value), f"at step {peak:,}"),
                Evidence(
                    "distance", f"{number(worst.deviations, 3)} spreads", f"threshold: {self.deviations:g}"
                ),
                Evidence("lasted", f"{lasted} loss{'es' if lasted > 1 else ''}"),
                *_around(rank, steps, worst),
            ),
            chart=Chart((key,), max(first - 200, int(steps[0])), min(last + 200, int(steps[-1]))),
            ruled_out=(
                "Divergence: the loss has come back.",
                "Noise: the run's other losses would produce such a value in fewer than 1 of 1,000 windows.",
            ),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank),
                    "Clip gradients, so that one batch cannot move the weights far.",
                    CLIPPING,
                ),
                Remedy("Find the samples of that step, and skip such batches.", SKIP),
            ),
            tries=("clip gradients", f"look at the batch of step {peak:,}"),
            how="Each loss is compared with the median of the 50 before it, in units of their median "
            "absolute deviation. The range of noise is estimated from the highest 2% of the other losses "
            "(Hill's estimator).",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )


def _before_the_window(rank: RankWindow, key: str) -> str:
    """Mentions the highest loss before the checked steps, if it is far above its neighbours."""
    course = rank.course.get(key)
    if course is None:
        return ""
    earlier = np.flatnonzero(course.starts + course.width <= rank.steps[0])[1:]  # without the first losses
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
    """Returns gradient norm and learning rate around a spike."""
    evidence = []
    first, last = steps[max(spike.begin - 1, 0)], steps[spike.end - 1]
    inside = (rank.steps >= first) & (rank.steps <= last)
    if GRADIENT_NORM in rank.columns:
        norms = rank.columns[GRADIENT_NORM]
        in_spike, others = norms.values[norms.finite & inside], norms.values[norms.finite & ~inside]
        if len(in_spike) and len(others):
            usual = number(float(np.median(others)))
            evidence.append(Evidence("gradient norm", number(float(in_spike.max())), f"usually {usual}"))
    if LEARNING_RATE in rank.columns:
        column = rank.columns[LEARNING_RATE]
        rates = column.values[column.finite & (rank.steps <= last)]
        if len(rates):
            evidence.append(Evidence("learning rate", number(float(rates[-1]))))
    return tuple(evidence)
