"""Detects gradients that explode: norms far above others, or far above those of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.layer_gradients import (
    CLIP_LIMIT,
    OF_LAYERS,
    WEIGHT_NORM,
    layer_gradients,
    newest_value,
)
from stepscope.analysis.loss.progress import fallen_share, has_fallen
from stepscope.analysis.remedies import CLIPPING, remedies_in
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, Ints, RankWindow, Window

HISTORY, MIN_HISTORY = 100, 5
"""Norms are compared with the median of this many earlier ones, and of no fewer than this."""

ABOVE_START = 10.0
"""They must also be this factor above those of the first samples: small gradients vary by any factor."""

FIRST_SAMPLES = 3

START_FACTOR, START_WEIGHTS = 10.0, 1.5
"""A norm of the first steps is large at these factors above later norms and above that of the weights."""

MIN_NORM = 30.0
"""The same where the norm of the weights is not known; it must also be `factor` above later norms."""

INITIAL = Remedy(
    "If it begins at the first step, scale the initial weights down: orthogonal recurrent weights with a "
    "gain of 1, or a normalisation layer between the layers.",
    "torch.nn.init.orthogonal_(rnn.weight_hh_l0)     # gain 1",
    "PyTorch",
)


class _Explosion(NamedTuple):
    norm: float
    step: int
    compared: float
    with_what: str
    since: str


@dataclass(frozen=True)
class ExplodingGradients(Detector):
    """Compares gradient norms with earlier ones, with those of the first steps and with the weights."""

    id: ClassVar[str] = "grad.explode"
    title: ClassVar[str] = "Gradients explode"
    sentence: ClassVar[str] = (
        "gradients are not clipped and norms are 100 times the median of earlier ones, more than once or at "
        "the end; or the loss has not fallen and the first norms were 10 times the later ones and above "
        "the norm of the weights, or all are 30 times that"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((GRADIENT_NORM,),)
    reads: ClassVar[tuple[str, ...]] = (OF_LAYERS, WEIGHT_NORM, CLIP_LIMIT, *LOSS_KEYS)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.plateau",)

    factor: Annotated[float, Range(10)] = 100.0
    """Minimum ratio of a norm to the median of earlier ones."""

    weights: Annotated[float, Range(1)] = 30.0
    """Minimum ratio of the usual norm to that of the weights, if the loss has not fallen."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the sampled norms, oldest first."""
        limit = newest_value(rank, CLIP_LIMIT)
        if limit is not None:
            return f"Gradients are clipped to a norm of {number(limit)}."
        chosen = rank.where(GRADIENT_NORM, steady=False)
        norms, steps = rank.columns[GRADIENT_NORM].values[chosen], rank.steps[chosen]
        explosion = self._later(norms, steps)
        if explosion is None and not has_fallen(rank):
            explosion = self._from_start(rank, norms, steps)
        if explosion is None:
            return f"The highest of {len(norms):,} gradient norms is {number(float(norms.max()))}."
        return self._finding(rank, window, explosion, len(norms))

    def _later(self, norms: Floats, steps: Ints) -> _Explosion | None:
        if len(norms) <= MIN_HISTORY:
            return None
        least = max(ABOVE_START * float(np.median(norms[:MIN_HISTORY])), self.factor * float(norms.min()))
        places = np.flatnonzero(norms > least)
        places = places[places >= MIN_HISTORY]
        medians = np.array([np.median(norms[max(at - HISTORY, 0) : at]) for at in places])
        is_far = norms[places] > self.factor * medians
        places, medians = places[is_far], medians[is_far]
        if not len(places) or (len(places) == 1 and places[0] < len(norms) - 3):
            return None
        worst = int(np.argmax(norms[places] / np.maximum(medians, 1e-300)))
        norm, step = float(norms[places[worst]]), int(steps[places[worst]])
        return _Explosion(norm, step, float(medians[worst]), "the median of earlier norms", "later")

    def _from_start(self, rank: RankWindow, norms: Floats, steps: Ints) -> _Explosion | None:
        weight = newest_value(rank, WEIGHT_NORM)
        if rank.is_whole and len(norms) > FIRST_SAMPLES:
            at = int(np.argmax(norms[:FIRST_SAMPLES]))
            first, later = float(norms[at]), float(np.median(norms[at + 1 :]))
            least = (
                max(self.factor * later, MIN_NORM)
                if weight is None
                else max(START_FACTOR * later, START_WEIGHTS * weight)
            )
            if first > least:
                return _Explosion(first, int(steps[at]), later, "the median of later norms", "first")
        usual = float(np.median(norms))
        if weight is not None and len(norms) >= FIRST_SAMPLES and usual > self.weights * weight:
            at = int(np.argmin(np.abs(norms - usual)))
            return _Explosion(usual, int(steps[at]), weight, "the norm of the weights", "always")
        return None

    def _finding(self, rank: RankWindow, window: Window, explosion: _Explosion, count: int) -> Finding:
        ratio = f"{number(explosion.norm / max(explosion.compared, 1e-300), 3)}×"
        layers = layer_gradients(rank)
        worst = None if layers is None else layers.names[int(np.argmax(np.nanmax(layers.norms, axis=0)))]
        fallen = fallen_share(rank)
        loss = rank.first_of(LOSS_KEYS)
        is_moderate = explosion.norm < self.factor * explosion.compared
        usually = "The usual gradient norm is" if explosion.since == "always" else "The gradient norm was"
        at = "" if explosion.since == "always" else f" at step {explosion.step:,}"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{usually} {number(explosion.norm)}{at}, {ratio} {explosion.with_what}.",
            detail="An update with such a gradient throws the weights far from where they were. "
            + (
                "It happened in the first steps, and the loss has not fallen since."
                if explosion.since == "first"
                else "The loss has not fallen."
                if explosion.since == "always"
                else "It comes from a bad batch, a learning rate that is too high, or a deep or recurrent "
                "product of weights above 1."
            ),
            severity="notice" if explosion.since == "first" and is_moderate else "warning",
            confidence=0.8 if explosion.since == "later" else 0.75,
            first_step=explosion.step,
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[int(np.searchsorted(rank.steps, explosion.step))]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    "gradient norm", number(explosion.norm), f"step {explosion.step:,}; {count:,} samples"
                ),
                Evidence("compared with", number(explosion.compared), explosion.with_what),
                *((Evidence("layer", worst, "with the largest gradients"),) if worst else ()),
                *((Evidence("loss has fallen by", percent(fallen)),) if fallen is not None else ()),
            ),
            chart=Chart((GRADIENT_NORM, *((loss,) if loss else ()))),
            ruled_out=("Clipping with `clip_grad_norm_`: it was not called in the sampled steps.",),
            remedies=(
                *remedies_in(window.libraries(rank.rank), "Clip gradients.", CLIPPING),
                *(() if explosion.since == "later" else (INITIAL,)),
                Remedy("Lower the learning rate, or raise it slowly in the first steps (warm-up)."),
            ),
            tries=("clip gradients", "lower the learning rate", "scale the initial weights down"),
            how="Gradient norms are read before the optimizer steps, in randomly sampled steps.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )
