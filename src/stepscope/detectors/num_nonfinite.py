"""Recognises a loss, or a gradient, that is NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LEARNING_RATE, LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepscope.schema.record import Event
    from stepscope.schema.window import Flags, RankWindow, Window

SKIPPED = ("optimizer_skipped", "gradient_step_skipped")
EVENT = "gradient_not_finite"
SETUP_EVENT = "census"

EARLY_STEPS = 10
"""Up to this step the weights are those of the initialisation: there is no checkpoint to go back to."""

EXPLODED = 1e3
"""The last finite loss is this much above its median: it exploded before it stopped being a number."""

GUARD = """\
if not torch.isfinite(loss):
    optimizer.zero_grad(set_to_none=True)
    continue                               # and look at what is in this batch"""

BF16 = """\
with torch.autocast("cuda", dtype=torch.bfloat16):  # has the range of float32, and needs no scaler
    loss = loss_of(model(x), y)"""

LIGHTNING_BF16 = 'trainer = Trainer(precision="bf16-mixed")'
TRANSFORMERS_BF16 = "arguments = TrainingArguments(..., bf16=True)"

CLIP = """\
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # between backward() and optimizer.step()"""

SCALE = """\
x = (x - x.mean(0)) / (x.std(0) + 1e-6)    # inputs of mean 0 and spread 1"""

ANOMALY = """\
with torch.autograd.detect_anomaly():      # slow: for the steps before this one only
    loss = loss_of(model(x), y)
    loss.backward()"""


@dataclass(frozen=True)
class NotFinite(Detector):
    """Looks for losses and gradient norms that are no finite numbers."""

    id: ClassVar[str] = "num.nonfinite"
    title: ClassVar[str] = "The loss or the gradients are not finite"
    sentence: ClassVar[str] = (
        "a loss is NaN or infinite; or so are gradient norms in a row, steps that a loss scaler left out and "
        "the first 30 of a run aside"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((*LOSS_KEYS, GRADIENT_NORM),)
    reads: ClassVar[tuple[str, ...]] = (LEARNING_RATE, *SKIPPED)
    events: ClassVar[tuple[str, ...]] = (EVENT, SETUP_EVENT)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    in_finite_values: ClassVar[bool] = False
    explains: ClassVar[tuple[str, ...]] = ("conv.diverging", "conv.spike")

    norms: Annotated[int, Range(1)] = 5
    """So many gradient norms in a row are a finding by themselves: a loss scaler overflows on purpose."""

    first_steps: Annotated[int, Range(0)] = 30
    """In so many steps at the beginning gradient norms count for nothing: a loss scaler begins too high."""

    recovered: Annotated[int, Range(1)] = 20
    """After so many finite losses in a row it is a warning, and no longer critical."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at losses first, then at gradients."""
        key = rank.first_of(LOSS_KEYS)
        if key is not None:
            column = rank.columns[key]
            bad = column.present & ~column.finite
            if bad.any():
                return self._told(rank, window, key, bad)
        if GRADIENT_NORM in rank.columns:
            bad = self._bad_norms(rank)
            if bad.any():
                return self._told(rank, window, GRADIENT_NORM, bad)
        many = int(rank.columns[key].present.sum()) if key is not None else 0
        return f"All {many:,} losses are finite." if many else "All gradient norms are finite."

    def _bad_norms(self, rank: RankWindow) -> Flags:
        """Norms that are not finite, of those that come so many in a row and that no scaler has caused."""
        column = rank.columns[GRADIENT_NORM]
        bad = column.present & ~column.finite
        for key in SKIPPED:
            if key in rank.columns:
                bad &= ~(rank.columns[key].finite & (rank.columns[key].values > 0))
        if rank.is_whole:
            bad[: self.first_steps] = False
        looked = np.flatnonzero(column.present)
        in_a_row = np.convolve(bad[looked], np.ones(self.norms), "full")[: len(looked)] >= self.norms
        chosen = np.zeros(len(bad), bool)
        for end in np.flatnonzero(in_a_row):
            chosen[looked[max(end - self.norms + 1, 0) : end + 1]] = True
        return chosen

    def _told(self, rank: RankWindow, window: Window, key: str, bad: Flags) -> Finding:
        column = rank.columns[key]
        places = np.flatnonzero(bad)
        first = int(places[0])
        after = int(column.finite[int(places[-1]) + 1 :].sum())
        step = int(rank.steps[first])
        value = float(column.values[first])
        name = "NaN" if np.isnan(value) else "infinite"
        layer = _layer(window.events_of(EVENT, rank.rank), step)
        goes_on = after < self.recovered
        where = f", first in {layer[0]}" if layer and layer[0] else ""
        state = "" if goes_on else ", and has recovered"
        counted = f"{len(places):,} of {int(column.present.sum()):,}"
        cause = _Cause(
            is_early=rank.is_whole and first < EARLY_STEPS,
            has_exploded=_has_exploded(rank, first),
            is_half=_is_half(rank, window),
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=_said(rank, key, bad) + f"{where}{state}.",
            detail=cause.detail(),
            severity="critical" if goes_on else "warning",
            confidence=0.99 if key != GRADIENT_NORM else 0.9,
            first_step=step,
            last_step=int(rank.steps[int(places[-1])]),
            first_time=float(rank.times[first]),
            last_time=float(rank.times[int(places[-1])]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("first step", f"{step:,}", f"the value is {name}"),
                Evidence("how many", counted, "in the newest steps"),
                *_last_finite(rank, key, first),
                *((Evidence("gradients", layer[0] or "the whole model", layer[1]),) if layer else ()),
                *_norm_before(rank, key, first),
            ),
            chart=Chart((key,), max(step - 100, int(rank.steps[0])), step + 20),
            ruled_out=(
                ("A loss scaler that tries a greater scale: such steps are left out.",)
                if key == GRADIENT_NORM
                else ()
            ),
            remedies=cause.remedies(window.facts.get(rank.rank, {}).get("libraries", {})),
            tries=cause.tries(),
            how="Losses and gradient norms of the newest steps are looked at one by one.",
            refs=("https://pytorch.org/docs/stable/autograd.html#anomaly-detection",),
        )


def _said(rank: RankWindow, key: str, bad: Flags) -> str:
    """Which values are not finite: one, all since a step, or so many of them."""
    column, places = rank.columns[key], np.flatnonzero(bad)
    first, last = int(places[0]), int(places[-1])
    name = "NaN" if np.isnan(column.values[first]) else "infinite"
    what = "gradient norm" if key == GRADIENT_NORM else "loss"
    if len(places) == 1:
        return f"The {what} is {name} at step {int(rank.steps[first]):,}"
    if not column.finite[first:].any():
        return f"The {what} is {name} from step {int(rank.steps[first]):,} on"
    kinds = np.isnan(column.values[places])
    name = name if kinds.all() or not kinds.any() else "NaN or infinite"
    several = "gradient norms" if key == GRADIENT_NORM else "losses"
    return (
        f"{len(places):,} of {int(column.present.sum()):,} {several} are {name}, first at step "
        f"{int(rank.steps[first]):,}, newest at step {int(rank.steps[last]):,}"
    )


@dataclass(frozen=True)
class _Cause:
    """What the record says of where the value comes from; advice follows it."""

    is_early: bool
    has_exploded: bool
    is_half: bool
    """Whether the model computes in float16, whose largest number is 65,504."""

    def detail(self) -> str:
        lost = "A step made with it writes NaN into the weights, and everything after is lost"
        if self.is_early:
            return (
                f"{lost}. It came in the first {EARLY_STEPS} steps: check the inputs and the initialisation."
            )
        if self.has_exploded:
            return f"{lost}. The loss exploded first: go back to a checkpoint from before that."
        return f"{lost}: go back to a checkpoint from before, whatever the cause."

    def remedies(self, libraries: Collection[str]) -> tuple[Remedy, ...]:
        advice = []
        if self.is_early:
            advice.append(Remedy("Scale the inputs, and check them for NaN.", SCALE, "PyTorch"))
        if self.is_early or self.has_exploded:
            advice.append(Remedy("Lower the learning rate, warm it up, and clip gradients.", CLIP, "PyTorch"))
        if self.is_half:
            text = "Compute in bfloat16 instead of float16."
            advice.append(Remedy(text, BF16, "PyTorch"))
            if "lightning" in libraries:
                advice.append(Remedy(text, LIGHTNING_BF16, "Lightning"))
            if "transformers" in libraries:
                advice.append(Remedy(text, TRANSFORMERS_BF16, "Transformers"))
        advice.append(Remedy("Leave such a batch out, so that the weights stay sound.", GUARD, "PyTorch"))
        advice.append(Remedy("Have PyTorch name the operation.", ANOMALY, "PyTorch"))
        return tuple(advice)

    def tries(self) -> tuple[str, ...]:
        first = "check inputs and initialisation" if self.is_early else "go back to a checkpoint"
        clip = ("clip gradients",) if self.is_early or self.has_exploded else ()
        half = ("bf16 instead of fp16",) if self.is_half else ()
        return (first, "lower the learning rate", *clip, *half)


def _has_exploded(rank: RankWindow, first: int) -> bool:
    """Whether the loss was already far above its usual values before the first bad value."""
    key = rank.first_of(LOSS_KEYS)
    if key is None:
        return False
    before = np.abs(rank.columns[key].values[:first][rank.columns[key].finite[:first]])
    return len(before) > 0 and bool(before[-1] > EXPLODED * max(float(np.median(before)), 1.0))


def _is_half(rank: RankWindow, window: Window) -> bool:
    """Whether float16 is used: by autocast, for parameters, or, where that is unknown, with a loss scaler."""
    setup = window.events_of(SETUP_EVENT, rank.rank)
    if not setup:
        return any(key in rank.columns for key in SKIPPED)
    fields = setup[-1].fields
    dtypes = fields.get("parameter_dtypes")
    is_stored = isinstance(dtypes, dict) and "float16" in dtypes
    return is_stored or str(fields.get("autocast", "")).endswith((" float16", "cuda"))


def _layer(events: list[Event], step: int) -> tuple[str, str] | None:
    """The layer the gradient monitor named nearest to a step, and its sentence."""
    near = [one for one in events if one.step is not None and abs(one.step - step) <= 100]
    if not near:
        return None
    nearest = min(near, key=lambda one: abs((one.step or 0) - step))
    return str(nearest.fields.get("layer") or ""), str(nearest.fields.get("sentence") or "")


def _last_finite(rank: RankWindow, key: str, first: int) -> list[Evidence]:
    """The value before the first that is not finite, where the window has one."""
    column = rank.columns[key]
    before = np.flatnonzero(column.finite[:first])
    if not len(before):
        return []
    place = int(before[-1])
    good = number(float(column.values[place]))
    return [Evidence("last finite value", good, f"at step {int(rank.steps[place]):,}")]


def _norm_before(rank: RankWindow, key: str, first: int) -> list[Evidence]:
    """How gradients were before a loss that is not finite."""
    found = []
    for other, label in ((GRADIENT_NORM, "gradient norm before"), (LEARNING_RATE, "learning rate")):
        if other != key and other in rank.columns:
            column = rank.columns[other]
            seen = column.values[:first][column.finite[:first]]
            if len(seen):
                usual = f"usually {number(float(np.median(seen)))}" if other == GRADIENT_NORM else ""
                found.append(Evidence(label, number(float(seen[-1])), usual))
    return found
