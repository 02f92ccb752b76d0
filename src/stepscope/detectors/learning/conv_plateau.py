"""Detects a loss that has never fallen: it stays at chance, or the weights hardly change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.layer_gradients import UNCHANGED, UPDATE_RATIO, largest_change
from stepscope.analysis.loss.progress import FALLEN, fallen_share
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Floats, RankWindow, Window

SETUP_EVENT = "census"

PARTS = 5
"""The loss has to be at chance in each of this many parts of the run, without its first steps."""

BELOW, ABOVE = 0.01, 0.08
"""A loss is at chance from this share below it to the other share above it."""

LEARNS, DEVIATIONS = 0.004, 2.0
"""A model that learns slowly has a loss below chance by this share: the mean of the newest losses, less so
many standard errors."""

MOVED_FAR = 0.5
"""All updates together must be at least this share of the weights: else it is too early to say."""

FIRST_STEPS = 20

STEPS_PER_CLASS = 5
"""With many classes, a loss leaves the level of chance later: at least this many steps for each."""

MIN_CLASSES = 3
"""With two classes, the level of chance is also that of a discriminator that is in balance."""

RISING = 1.2
"""A learning rate that has grown by this factor in the second half of the run is in its warm-up."""

OVERFIT_ONE = """\
x, y = next(iter(loader))
for _ in range(200):                      # one batch: the loss must go to nearly 0
    loss = loss_of(model(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item(), y[:10])            # and look at x and y together"""

RAISED = 'for group in optimizer.param_groups:\n    group["lr"] *= 100'


class _Cause(NamedTuple):
    """Why a flat loss is a problem."""

    headline: str
    detail: str
    evidence: Evidence
    remedies: tuple[Remedy, ...]
    tries: tuple[str, ...]


@dataclass(frozen=True)
class LossPlateau(Detector):
    """Compares the loss with its first value and with that of guessing, and checks if weights change."""

    id: ClassVar[str] = "conv.plateau"
    title: ClassVar[str] = "Loss does not fall"
    sentence: ClassVar[str] = (
        "the loss has not fallen since the first step, and is at log(classes) all the time although the "
        "weights have moved, or the updates are so small that the weights cannot have changed"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (LOSS_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (LEARNING_RATE, UPDATE_RATIO)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 50
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False

    steps: Annotated[int, Range(50)] = 250
    """Minimum number of losses."""

    moved: Annotated[float, Range(1e-6, 0.1)] = UNCHANGED
    """The weights cannot have changed if all updates together are below this share of them."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks whether the loss has fallen, then what is known about it."""
        key = rank.first_of(LOSS_KEYS) or LOSS_KEYS[0]
        fallen = fallen_share(rank)
        if fallen is None:
            return TooLittleEvidence("Needs more losses.")
        if fallen >= FALLEN:
            return f"Loss has fallen by {percent(fallen)} since the first steps."
        losses = _losses(rank, key)
        length = int(rank.steps[-1]) + 1
        if len(losses) < self.steps or (not rank.is_whole and key not in rank.course):
            return f"Loss has not fallen clearly in its first {len(losses):,} values."
        setups = window.events_of(SETUP_EVENT, rank.rank)
        fields = setups[-1].fields if setups else {}
        why_not = _explained(rank, fields)
        if why_not:
            return why_not
        classes = fields.get("output_features")
        cause = None
        if isinstance(classes, int) and classes >= MIN_CLASSES and length >= STEPS_PER_CLASS * classes:
            (newest,) = rank.aligned(key, steady=False)
            has_moved = _usual_update(rank) * length >= MOVED_FAR
            if has_moved:
                cause = self._at_chance(losses, newest[-max(2 * len(newest) // PARTS, 1) :], classes)
        cause = cause or self._without_effect(rank, length)
        if cause is None:
            return "Loss has not fallen; nothing recorded says that it should have."
        return self._finding(rank, window, key, cause, fallen)

    def _at_chance(self, losses: Floats, newest: Floats, classes: int) -> _Cause | None:
        level = float(np.log(classes))
        means = np.array([part.mean() for part in np.array_split(losses, PARTS)])
        if means.min() < (1 - BELOW) * level or means.max() > (1 + ABOVE) * level:
            return None
        error = float(newest.std()) / np.sqrt(len(newest))
        if float(newest.mean()) - DEVIATIONS * error < (1 - LEARNS) * level:
            return None
        return _Cause(
            headline=f"Loss stays at {number(float(means[-1]), 3)}, the value of guessing among {classes} "
            "classes.",
            detail=f"A model that gives each of {classes} classes the same probability has a cross-entropy "
            f"of log({classes}) = {number(level)}. The outputs do not depend on the inputs in a way that "
            "helps: labels do not belong to the samples, the inputs carry no information, or the learning "
            "rate does not suit the model.",
            evidence=Evidence("value of guessing", number(level), f"log of {classes} outputs"),
            remedies=(
                Remedy(
                    "Check that labels and samples belong together: a model that works learns a single batch "
                    "by heart.",
                    OVERFIT_ONE,
                    "PyTorch",
                ),
                Remedy("Try a learning rate ten times lower, and one ten times higher, for 200 steps each."),
            ),
            tries=("check labels and inputs", "overfit a single batch", "other learning rates"),
        )

    def _without_effect(self, rank: RankWindow, length: int) -> _Cause | None:
        together = largest_change(rank)
        if together is None or together >= self.moved:
            return None
        return _Cause(
            headline=f"Loss has not fallen: {length:,} steps have changed the weights by less than "
            f"{number(100 * max(together, 1e-4), 1)}%.",
            detail="The updates are too small to learn anything in a run of this length. The learning rate "
            "is too low, or the gradients are.",
            evidence=Evidence(
                "largest update", f"{number(together / length, 2)} of the weights", "in one step"
            ),
            remedies=(Remedy("Raise the learning rate by a factor of 100, and watch the loss.", RAISED),),
            tries=("raise the learning rate",),
        )

    def _finding(self, rank: RankWindow, window: Window, key: str, cause: _Cause, fallen: float) -> Finding:
        rates = rank.columns.get(LEARNING_RATE)
        rate = None if rates is None else float(rates.values[rates.finite][-1])
        change = f"{percent(abs(fallen))} {'lower' if fallen > 0 else 'higher'}"
        return Finding(
            id=self.id,
            title=self.title,
            headline=cause.headline,
            detail=cause.detail,
            severity="warning",
            confidence=0.75,
            first_step=int(rank.steps[0]) if rank.is_whole else 0,
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("loss since the first steps", change, f"fallen: {percent(FALLEN)} lower"),
                cause.evidence,
                *((Evidence("learning rate", number(rate)),) if rate is not None else ()),
            ),
            chart=Chart((key,), 0, int(rank.steps[-1])),
            ruled_out=(
                "A slow beginning: the loss is flat in all parts of the run, and not below its first level.",
                *(("A warm-up: the learning rate does not rise.",) if rate is not None else ()),
            ),
            remedies=cause.remedies,
            tries=cause.tries,
            how="The newest losses are compared with the first, and with the logarithm of the number of "
            "outputs of the model's last linear layer.",
        )


def _usual_update(rank: RankWindow) -> float:
    """Returns by which share a step usually changes the weights; 0 if it is not known."""
    column = rank.columns.get(UPDATE_RATIO)
    return (
        float(np.median(column.values[column.finite])) if column is not None and column.finite.any() else 0.0
    )


def _losses(rank: RankWindow, key: str) -> Floats:
    """Returns the losses after the first steps; of a long run, the means of its parts."""
    (losses,) = rank.aligned(key, steady=False)
    if rank.is_whole:
        return losses[FIRST_STEPS:]
    course = rank.course.get(key)
    if course is None or not len(course):
        return losses
    means = np.where(np.isfinite(course.mean), course.mean, np.inf)
    # Each part counts as much as the newest losses, which are far more numbers.
    return np.repeat(means, max(len(losses) // max(len(means), 1), 1))


def _explained(rank: RankWindow, fields: Mapping[str, Any]) -> str:
    """Returns why the loss may be flat for another reason; empty if there is none."""
    not_updated = fields.get("not_updated")
    if isinstance(not_updated, dict) and not_updated.get("tensors"):
        return "Loss has not fallen, but parameters are in no optimizer."
    if LEARNING_RATE not in rank.columns:
        return ""
    (rates,) = rank.aligned(LEARNING_RATE, steady=False)
    if not len(rates):
        return ""
    if abs(float(rates[-1])) <= 1e-4 * float(np.abs(rates).max()):
        return "Loss has not fallen, but the learning rate is nearly zero."
    if float(rates[-1]) > RISING * float(rates[len(rates) // 2]):
        return "Loss has not fallen yet: the learning rate is still rising."
    return ""
