"""Detects a loss or a gradient norm that is NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.half_precision import BF16, SETUP_EVENT, SKIPPED, is_half
from stepscope.analysis.loss.loss_origin import LOSS_EVENT, origin_in
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepscope.analysis.loss.loss_origin import LossOrigin
    from stepscope.schema.record import Event
    from stepscope.schema.window import Flags, RankWindow, Window

GRADIENT_EVENT = "gradient_not_finite"

EARLY_STEPS = 10
"""In this many steps the weights are still close to the initialisation: no checkpoint to go back to."""

EXPLODED = 1e3
"""The loss exploded before it became NaN if its last finite value is this factor above the median."""

GUARD = """\
if not torch.isfinite(loss):
    optimizer.zero_grad(set_to_none=True)
    continue                               # and inspect this batch"""

CLIP = """\
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # between backward() and optimizer.step()"""

TOO_HIGH = 10.0
"""A first loss of usual size that grows by this factor was fine before the weights were updated."""

MAX_FIRST_LOSS = 1e4

SCALE = """\
x = (x - x.mean(0)) / (x.std(0) + 1e-6)    # inputs of mean 0 and spread 1"""

ANOMALY = """\
with torch.autograd.detect_anomaly():      # slow: for the steps before this one only
    loss = loss_of(model(x), y)
    loss.backward()"""


@dataclass(frozen=True)
class NotFinite(Detector):
    """Looks for losses and gradient norms that are not finite."""

    id: ClassVar[str] = "num.nonfinite"
    title: ClassVar[str] = "Loss or gradients are not finite"
    sentence: ClassVar[str] = (
        "a loss is NaN or infinite; or several gradient norms in a row are, except in the first 30 steps of "
        "a run and in steps that a loss scaler skipped"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((*LOSS_KEYS, GRADIENT_NORM),)
    reads: ClassVar[tuple[str, ...]] = (LEARNING_RATE, *SKIPPED)
    events: ClassVar[tuple[str, ...]] = (GRADIENT_EVENT, LOSS_EVENT, SETUP_EVENT)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    in_finite_values: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ("conv.diverging", "conv.spike")

    norms: Annotated[int, Range(1)] = 5
    """Minimum number of gradient norms in a row: a loss scaler overflows on purpose now and then."""

    first_steps: Annotated[int, Range(0)] = 30
    """Gradient norms of the first steps are ignored: a loss scaler starts with a scale that is too high."""

    recovered: Annotated[int, Range(1)] = 20
    """After this many finite values since the last bad one, the severity is warning instead of critical."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks losses first, then gradient norms."""
        key = rank.first_of(LOSS_KEYS)
        if key is not None:
            column = rank.columns[key]
            bad = column.present & ~column.finite
            if bad.any():
                return self._finding(rank, window, key, bad)
        if GRADIENT_NORM in rank.columns:
            bad = self._bad_norms(rank)
            if bad.any():
                return self._finding(rank, window, GRADIENT_NORM, bad)
        losses = int(rank.columns[key].present.sum()) if key is not None else 0
        return f"All {losses:,} losses are finite." if losses else "All gradient norms are finite."

    def _bad_norms(self, rank: RankWindow) -> Flags:
        """Returns where several norms in a row are not finite and no loss scaler caused it."""
        column = rank.columns[GRADIENT_NORM]
        bad = column.present & ~column.finite
        for key in SKIPPED:
            if key in rank.columns:
                bad &= ~(rank.columns[key].finite & (rank.columns[key].values > 0))
        if rank.is_whole:
            bad[: self.first_steps] = False
        recorded = np.flatnonzero(column.present)
        in_a_row = np.convolve(bad[recorded], np.ones(self.norms), "full")[: len(recorded)] >= self.norms
        chosen = np.zeros(len(bad), bool)
        for end in np.flatnonzero(in_a_row):
            chosen[recorded[max(end - self.norms + 1, 0) : end + 1]] = True
        return chosen

    def _finding(self, rank: RankWindow, window: Window, key: str, bad: Flags) -> Finding:
        column = rank.columns[key]
        places = np.flatnonzero(bad)
        first = int(places[0])
        after = int(column.finite[int(places[-1]) + 1 :].sum())
        step = int(rank.steps[first])
        value = float(column.values[first])
        name = "NaN" if np.isnan(value) else "infinite"
        origin = origin_in(window, rank, step)
        layer = None if origin is not None else _layer(window.events_of(GRADIENT_EVENT, rank.rank), step)
        goes_on = after < self.recovered
        where = f" (first bad layer: `{layer[0]}`)" if layer and layer[0] else ""
        where = where if origin is None else f": {origin.sentence()}"
        state = "" if goes_on else "; it has recovered"
        counted = f"{len(places):,} of {int(column.present.sum()):,}"
        is_harmless = key != GRADIENT_NORM and _gradients_stay_finite(rank, bad)
        cause = _Cause(
            origin=origin,
            is_harmless=is_harmless,
            is_early=rank.is_whole and first < EARLY_STEPS,
            has_exploded=_has_exploded(rank, first),
            has_grown=_has_grown(rank, first),
            is_half=is_half(rank, window),
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=_headline(rank, key, bad) + f"{where}{state}.",
            detail=cause.detail(),
            severity="critical" if goes_on and not is_harmless else "warning",
            confidence=0.99 if key != GRADIENT_NORM else 0.9,
            first_step=step,
            last_step=int(rank.steps[int(places[-1])]),
            first_time=float(rank.times[first]),
            last_time=float(rank.times[int(places[-1])]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("first step", f"{step:,}", f"the value is {name}"),
                Evidence("how many", counted, "in the newest steps"),
                *(() if origin is None else origin.evidence(step)),
                *_last_finite(rank, key, first),
                *((Evidence("gradients", layer[0] or "the whole model", layer[1]),) if layer else ()),
                *_norm_before(rank, key, first),
            ),
            chart=Chart((key,), max(step - 100, int(rank.steps[0])), step + 20),
            ruled_out=(
                ("A loss scaler that tries a larger scale: such steps are left out.",)
                if key == GRADIENT_NORM
                else ()
            ),
            remedies=cause.remedies(window.libraries(rank.rank)),
            tries=cause.tries(),
            how="Every loss and gradient norm of the newest steps was checked.",
            refs=("https://pytorch.org/docs/stable/autograd.html#anomaly-detection",),
        )


def _headline(rank: RankWindow, key: str, bad: Flags) -> str:
    """Says which values are not finite: a single one, all since a step, or how many of them."""
    column, places = rank.columns[key], np.flatnonzero(bad)
    first, last = int(places[0]), int(places[-1])
    name = "NaN" if np.isnan(column.values[first]) else "infinite"
    what = "Gradient norm" if key == GRADIENT_NORM else "Loss"
    if not column.finite[first:].any():
        return f"{what} became {name} at step {int(rank.steps[first]):,}"
    if len(places) == 1:
        return f"{what} was {name} at step {int(rank.steps[first]):,}"
    kinds = np.isnan(column.values[places])
    name = name if kinds.all() or not kinds.any() else "NaN or infinite"
    several = "gradient norms" if key == GRADIENT_NORM else "losses"
    return (
        f"{len(places):,} of {int(column.present.sum()):,} {several} are {name}, first at step "
        f"{int(rank.steps[first]):,}, newest at step {int(rank.steps[last]):,}"
    )


@dataclass(frozen=True)
class _Cause:
    """What is known about the cause; the advice depends on it."""

    origin: LossOrigin | None
    is_harmless: bool
    """Whether gradients are finite where losses are not: the weights are not affected."""
    is_early: bool
    has_exploded: bool
    has_grown: bool
    """Whether the first loss was of usual size and grew with the first updates."""
    is_half: bool
    """Whether the model computes in float16, whose largest number is 65,504."""

    def detail(self) -> str:
        if self.is_harmless:
            return "The gradients of these steps are finite, so the weights are not affected."
        lost = "An optimizer step with such a value writes NaN into the weights, and training is lost"
        if self.origin is not None and self.origin.cause == "batch":
            return f"{lost}. The values came with the batch: check the data set."
        if self.is_early and self.has_grown:
            return f"{lost}. The first loss was of usual size, and grew with each update: they are too large."
        if self.is_early:
            return f"{lost}. It happened in the first {EARLY_STEPS} steps: check inputs and initialisation."
        if self.has_exploded:
            return f"{lost}. The loss exploded first: go back to a checkpoint from before that."
        return f"{lost}: go back to a checkpoint from before this step."

    def remedies(self, libraries: Collection[str]) -> tuple[Remedy, ...]:
        advice = [] if self.origin is None else self.origin.remedies()
        if self.is_harmless:
            text = (
                "Look for a logarithm of zero or a division by zero in a term of the loss without gradients."
            )
            return (*advice, Remedy(text))
        smaller = Remedy("Lower the learning rate, warm it up, and clip gradients.", CLIP, "PyTorch")
        if self.has_grown:
            advice.insert(0, smaller)
        if self.is_early:
            advice.append(Remedy("Scale the inputs, and check them for NaN.", SCALE, "PyTorch"))
        if (self.is_early or self.has_exploded) and not self.has_grown:
            advice.append(smaller)
        if self.is_half:
            text = "Compute in bfloat16 instead of float16."
            advice.extend(remedies_in(libraries, text, BF16))
        advice.append(Remedy("Skip such batches, so that the weights stay finite.", GUARD, "PyTorch"))
        if self.origin is None or self.origin.cause == "loss":
            text = "Let PyTorch report the operation that produced the value."
            advice.append(Remedy(text, ANOMALY, "PyTorch"))
        return tuple(advice)

    def tries(self) -> tuple[str, ...]:
        if self.is_harmless:
            return ("check the terms of the loss that have no gradients",)
        clip = ("clip gradients",) if self.is_early or self.has_exploded else ()
        half = ("bf16 instead of fp16",) if self.is_half else ()
        first = "check inputs and initialisation" if self.is_early else "go back to a checkpoint"
        lower = "lower the learning rate"
        return (lower, *clip, first, *half) if self.has_grown else (first, lower, *clip, *half)


def _gradients_stay_finite(rank: RankWindow, bad: Flags) -> bool:
    """Whether gradient norms were measured in steps with a bad loss, and all of them are finite."""
    if GRADIENT_NORM not in rank.columns:
        return False
    norms = rank.columns[GRADIENT_NORM]
    measured = norms.present & bad
    return bool(measured.any()) and bool(norms.finite[measured].all())


def _has_exploded(rank: RankWindow, first: int) -> bool:
    """Whether the loss was already far above its usual values before the first bad value."""
    key = rank.first_of(LOSS_KEYS)
    if key is None:
        return False
    before = np.abs(rank.columns[key].values[:first][rank.columns[key].finite[:first]])
    return len(before) > 0 and bool(before[-1] > EXPLODED * max(float(np.median(before)), 1.0))


def _has_grown(rank: RankWindow, first: int) -> bool:
    """Whether a loss that was bad in the first steps had begun at a usual size and grown since."""
    key = rank.first_of(LOSS_KEYS)
    if key is None or not rank.is_whole or first >= EARLY_STEPS:
        return False
    before = np.abs(rank.columns[key].values[:first][rank.columns[key].finite[:first]])
    if len(before) < 2 or float(before[0]) > MAX_FIRST_LOSS:
        return False
    return bool(before[-1] > TOO_HIGH * max(float(before[0]), 1.0))


def _layer(events: list[Event], step: int) -> tuple[str, str] | None:
    """Returns the layer that the gradient monitor reported nearest to a step, and its sentence."""
    near = [event for event in events if event.step is not None and abs(event.step - step) <= 100]
    if not near:
        return None
    nearest = min(near, key=lambda event: abs((event.step or 0) - step))
    return str(nearest.fields.get("layer") or ""), str(nearest.fields.get("sentence") or "")


def _last_finite(rank: RankWindow, key: str, first: int) -> list[Evidence]:
    """Returns the last finite value before the first bad one, if the window has one."""
    column = rank.columns[key]
    before = np.flatnonzero(column.finite[:first])
    if not len(before):
        return []
    place = int(before[-1])
    good = number(float(column.values[place]))
    return [Evidence("last finite value", good, f"at step {int(rank.steps[place]):,}")]


def _norm_before(rank: RankWindow, key: str, first: int) -> list[Evidence]:
    """Returns gradient norm and learning rate before the first bad value."""
    evidence = []
    for other, label in ((GRADIENT_NORM, "gradient norm before"), (LEARNING_RATE, "learning rate")):
        if other != key and other in rank.columns:
            column = rank.columns[other]
            before = column.values[:first][column.finite[:first]]
            if len(before):
                usual = f"usually {number(float(np.median(before)))}" if other == GRADIENT_NORM else ""
                evidence.append(Evidence(label, number(float(before[-1])), usual))
    return evidence
