"""Detects overfitting: validation gets worse while training gets better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.loss.schedule_hints import first_loss
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.trends import slope_of
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, RankWindow, Window

VALIDATION_KEYS = (
    "val_loss", "val/loss", "eval_loss", "eval/loss", "validation_loss", "validation/loss", "valid_loss",
    "valid/loss",
)  # fmt: skip
ACCURACY_KEYS = (
    "val_accuracy", "val/accuracy", "val_acc", "val/acc", "eval_accuracy", "eval/accuracy",
    "validation_accuracy", "validation/accuracy",
)  # fmt: skip

SINCE_BEST = 5
"""Minimum number of validations after the best one."""

MAX_VALIDATIONS = 200

NEWEST = 3
"""The current validation loss is the median of this many."""

LEARNED, NOT_LEARNED = 0.05, 0.3
"""Training data are known by heart if their loss is below the one share of the validation loss while that is
above the other share of the first loss."""

WORSE = 0.02
"""The least rise from the best validation in that case."""

BEST = """\
if val_loss < best:
    best, patience = val_loss, 0
    torch.save(model.state_dict(), "best.pt")
elif (patience := patience + 1) >= 5:
    break"""

CALLBACKS = """\
trainer = Trainer(callbacks=[EarlyStopping("val_loss", patience=5), ModelCheckpoint(monitor="val_loss")])"""

ARGUMENTS = """\
arguments = TrainingArguments(..., eval_strategy="steps", load_best_model_at_end=True,
    metric_for_best_model="eval_loss")
trainer = Trainer(..., args=arguments, callbacks=[EarlyStoppingCallback(early_stopping_patience=5)])"""


class _Course(NamedTuple):
    steps: Floats
    values: Floats


@dataclass(frozen=True)
class Overfitting(Detector):
    """Compares the course of the validation loss with that of the training loss."""

    id: ClassVar[str] = "conv.overfit"
    title: ClassVar[str] = "The model overfits"
    sentence: ClassVar[str] = (
        "the validation loss has risen since its best value, by at least 10% and more than its noise, while "
        "the training loss fell; or training data are known by heart and validation has stopped to improve"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = (VALIDATION_KEYS,)
    reads: ClassVar[tuple[str, ...]] = (*LOSS_KEYS, *ACCURACY_KEYS)
    courses: ClassVar[tuple[str, ...]] = (*VALIDATION_KEYS, *LOSS_KEYS, *ACCURACY_KEYS)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    rise: Annotated[float, Range(0.01)] = 0.1
    """Minimum rise of the validation loss since its best value, as a share of it."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks for the best validation, and at what followed."""
        key = rank.first_of(VALIDATION_KEYS) or VALIDATION_KEYS[0]
        loss = rank.first_of(LOSS_KEYS)
        validation = _course(rank, key)
        if loss is None or len(validation.values) < SINCE_BEST + 1:
            return TooLittleEvidence(f"Needs a training loss and {SINCE_BEST + 1} validations.")
        best = int(np.argmin(validation.values))
        since = len(validation.values) - 1 - best
        lowest, newest = float(validation.values[best]), float(np.median(validation.values[-NEWEST:]))
        if since < SINCE_BEST or lowest <= 0:
            return f"Validation loss is {number(newest)}, its lowest value {number(lowest)}."
        training = _course(rank, loss)
        begin, end = _level(training, validation.steps[best]), _level(training, training.steps[-1])
        if _is_accuracy_improving(rank, validation.steps[best]):
            return "Validation loss is above its lowest value, but the accuracy still improves."
        worse = (newest - lowest) / lowest
        is_rising = worse >= self.rise and end < begin and _rises(validation, best)
        is_by_heart = (
            worse >= WORSE and end <= LEARNED * newest and newest >= NOT_LEARNED * first_loss(rank, loss)
        )
        if not is_rising and not is_by_heart:
            return f"Validation loss is {number(newest)}, {percent(worse)} above its lowest value."
        at = int(validation.steps[best])
        return self._finding(rank, window, (key, loss), (lowest, newest), (at, since), (begin, end))

    def _finding(
        self,
        rank: RankWindow,
        window: Window,
        keys: tuple[str, str],
        validation: tuple[float, float],
        best: tuple[int, int],
        training: tuple[float, float],
    ) -> Finding:
        (lowest, newest), (step, since), (begin, end) = validation, best, training
        worse = (newest - lowest) / lowest
        place = min(int(np.searchsorted(rank.steps, step)), len(rank.steps) - 1)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Validation loss has risen by {percent(worse)} since step {step:,}, to "
            f"{number(newest)}; training loss is {number(end)}.",
            detail="The model learns its training data by heart. Steps after the best validation make it "
            "worse on new data: use the weights of that step, and stop earlier or regularise.",
            severity="warning",
            confidence=0.9,
            first_step=step,
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[place]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("best validation loss", number(lowest), f"at step {step:,}"),
                Evidence("validation loss now", number(newest), f"median of the newest {NEWEST}"),
                Evidence("validations since the best", f"{since:,}", "none of them was better"),
                Evidence("training loss now", number(end), f"around step {step:,}: {number(begin)}"),
            ),
            chart=Chart(keys, 0, int(rank.steps[-1])),
            ruled_out=(
                "Divergence: the training loss is low.",
                "Noise of single validations: none was better since.",
            ),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank),
                    "Keep the weights of the best validation, and stop when it no longer improves.",
                    {"torch": BEST, "lightning": CALLBACKS, "transformers": ARGUMENTS},
                ),
                Remedy("Train on more data, or on augmented data."),
                Remedy("Regularise: weight decay, dropout, or a smaller model."),
            ),
            tries=(f"use the weights of step {step:,}", "stop early", "more data or augmentation"),
            how="The newest validation losses are compared with the best one of the run, and the training "
            "loss now with that around the best validation.",
        )


def _course(rank: RankWindow, key: str) -> _Course:
    """Returns a key since the beginning of the segment; of a long run, the means of its parts."""
    course = rank.course.get(key)
    if course is not None and len(course):
        chosen = np.isfinite(course.mean)
        return _Course(course.starts[chosen].astype(np.float64), course.mean[chosen])
    chosen = rank.where(key, steady=False)
    return _Course(rank.steps[chosen].astype(np.float64), rank.columns[key].values[chosen])


def _level(course: _Course, step: float) -> float:
    """Returns the median of the twentieth of a course that ends at a step, five values at least."""
    end = max(int(np.searchsorted(course.steps, step, "right")), 1)
    return float(np.median(course.values[max(end - max(len(course.values) // 20, 5), 0) : end]))


def _rises(validation: _Course, best: int) -> bool:
    """Whether the validation loss has risen since its best value for certain, and still is as high."""
    steps, values = validation.steps[best:], validation.values[best:]
    thin = slice(None, None, max(len(values) // MAX_VALIDATIONS, 1))
    slope = slope_of(steps[thin], values[thin], 0.95)
    if slope is None or slope.low <= 0:
        return False
    return float(np.median(values[-NEWEST:])) >= float(np.median(values))


def _is_accuracy_improving(rank: RankWindow, step: float) -> bool:
    key = rank.first_of(ACCURACY_KEYS)
    if key is None:
        return False
    accuracy = _course(rank, key)
    since = accuracy.values[accuracy.steps > step]
    before = accuracy.values[accuracy.steps <= step]
    return bool(len(since) >= NEWEST and len(before) and np.median(since[-NEWEST:]) > before.max())
