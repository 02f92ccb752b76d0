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
    from stepscope.schema.record import Event
    from stepscope.schema.window import Flags, RankWindow, Window

SKIPPED = ("optimizer_skipped", "gradient_step_skipped")
EVENT = "gradient_not_finite"

GUARD = """\
if not torch.isfinite(loss):
    optimizer.zero_grad(set_to_none=True)
    continue                               # and look at what is in this batch"""

BF16 = """\
with torch.autocast("cuda", dtype=torch.bfloat16):  # has the range of float32, and needs no scaler
    loss = loss_of(model(x), y)"""

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
    events: ClassVar[tuple[str, ...]] = (EVENT,)
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
        what = "The gradient norm" if key == GRADIENT_NORM else "The loss"
        layer = _layer(window.events_of(EVENT, rank.rank), step)
        goes_on = after < self.recovered
        where = f", first in {layer[0]}" if layer and layer[0] else ""
        since = f"from step {step:,} on" if goes_on and len(places) > 1 else f"at step {step:,}"
        state = "" if goes_on else ", and has recovered"
        found = f"{len(places):,} of {int(column.present.sum()):,}"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{what} is {name} {since}{where}{state}.",
            detail="A step made with it writes NaN into the weights, and everything after is lost: go back "
            "to a checkpoint from before, whatever the cause.",
            severity="critical" if goes_on else "warning",
            confidence=0.99 if key != GRADIENT_NORM else 0.9,
            first_step=step,
            last_step=int(rank.steps[int(places[-1])]),
            first_time=float(rank.times[first]),
            last_time=float(rank.times[int(places[-1])]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("first step", f"{step:,}", f"the value is {name}"),
                Evidence("how many", found, "in the newest steps"),
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
            remedies=(
                Remedy("Leave such a batch out, so that the weights stay sound.", GUARD, "PyTorch"),
                Remedy("In half precision, compute in bfloat16.", BF16, "PyTorch"),
                Remedy("The same for Lightning.", 'trainer = Trainer(precision="bf16-mixed")', "Lightning"),
                Remedy(
                    "The same for the Trainer of Transformers.",
                    "arguments = TrainingArguments(..., bf16=True, max_grad_norm=1.0)",
                    "Transformers",
                ),
                Remedy("Have PyTorch name the operation.", ANOMALY, "PyTorch"),
            ),
            tries=("go back to a checkpoint", "lower the learning rate", "bf16 instead of fp16"),
            how="Losses and gradient norms of the newest steps are looked at one by one.",
            refs=("https://pytorch.org/docs/stable/autograd.html#anomaly-detection",),
        )


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
