"""Detects layers that hardly get a gradient: it vanishes on its way back from the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.layer_gradients import OF_LAYERS, WEIGHT_NORMS, layer_gradients, quoted
from stepscope.analysis.loss.progress import has_fallen
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.analysis.layer_gradients import LayerGradients
    from stepscope.schema.window import Flags, Floats, RankWindow, Window

SPREAD = 1e4
"""Another layer gets at least this many times the gradient: in a run that has converged, all are small."""

MIN_HEALTHY = 1e-6
"""The ratio of gradient to weights of that other layer."""

MIN_FLAT = 100
"""If only the first steps were sampled, the loss must not have fallen in this many steps."""

INITIALISED = """\
for layer in model.modules():
    if isinstance(layer, torch.nn.Linear):
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        torch.nn.init.zeros_(layer.bias)"""

BLOCK = """\
x = x + self.linear(torch.relu(self.norm(x)))    # a normalisation layer and a residual connection"""


@dataclass(frozen=True)
class VanishingGradients(Detector):
    """Compares the gradients of layers with their weights and with each other."""

    id: ClassVar[str] = "grad.vanish"
    title: ClassVar[str] = "Gradients vanish"
    sentence: ClassVar[str] = (
        "in every sampled step, several layers have a gradient below 1e-7 of their weights while another "
        "layer gets 10,000 times more"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((OF_LAYERS,),)
    reads: ClassVar[tuple[str, ...]] = (WEIGHT_NORMS, *LOSS_KEYS)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.plateau",)

    ratio: Annotated[float, Range(1e-12, 1e-3)] = 1e-7
    """A gradient below this share of the norm of the weights has vanished."""

    layers: Annotated[int, Range(1)] = 2
    """Minimum number of layers whose gradient has vanished."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks all samples of layers."""
        gradients = layer_gradients(rank)
        if gradients is None:
            return "No finite norms of layers were sampled."
        learns = has_fallen(rank)
        is_early = learns or len(gradients.steps) < 3 or len(rank.steps) < MIN_FLAT
        if not gradients.is_beyond_start and is_early:
            return "Gradients of layers were sampled in the first steps only, where they may be small."
        weights = np.where(gradients.weights > 0, gradients.weights, 1.0)
        ratios = gradients.norms / weights
        largest = ratios.max(axis=0)
        has_vanished: Flags = largest < self.ratio  # those of the first layers may be rounded to zero
        is_small: Flags = np.logical_and(has_vanished, largest > 0)
        healthy = float(np.median(ratios.max(axis=1)))
        if int(is_small.sum()) < self.layers or healthy < max(
            MIN_HEALTHY, SPREAD * float(largest[is_small].min())
        ):
            return "Every layer gets a gradient that can change its weights."
        return self._finding(rank, window, gradients, ratios, has_vanished, learns=learns)

    def _finding(
        self,
        rank: RankWindow,
        window: Window,
        gradients: LayerGradients,
        ratios: Floats,
        has_vanished: Flags,
        *,
        learns: bool,
    ) -> Finding:
        names = [name for name, gone in zip(gradients.names, has_vanished, strict=True) if gone]
        medians = np.median(ratios, axis=0)
        worst, best = (
            int(np.argmin(np.where(has_vanished, medians, np.inf))),
            int(np.argmax(medians)),
        )
        count, samples = len(names), len(gradients.steps)
        loss = rank.first_of(LOSS_KEYS)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The gradients of {count:,} of {len(gradients.names):,} layers have vanished: "
            f"that of `{gradients.names[worst]}` is {number(medians[worst], 2)} of its weights.",
            detail=f"These layers do not learn: {quoted(names)}. Each layer between them and the loss makes "
            "the gradient smaller. Sigmoid and tanh do so by a factor of 4 or more, and so do small weights."
            + (
                " The loss falls, so the other layers still learn." if learns else " The loss has not fallen."
            ),
            severity="notice" if learns else "warning",
            confidence=0.9,
            first_step=int(gradients.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[int(np.searchsorted(rank.steps, gradients.steps[0]))]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence(
                    f"gradient of {gradients.names[worst]}",
                    number(float(np.median(gradients.norms[:, worst])), 3),
                    f"{number(medians[worst], 2)} of its weights; threshold: {number(self.ratio, 2)}",
                ),
                Evidence(
                    f"gradient of {gradients.names[best]}",
                    number(float(np.median(gradients.norms[:, best])), 3),
                    f"{number(medians[best], 2)} of its weights",
                ),
                Evidence("samples", f"{samples:,}", "it is so in all of them"),
            ),
            chart=Chart(
                (
                    f"{GRADIENT_NORM}/{gradients.names[worst]}",
                    f"{GRADIENT_NORM}/{gradients.names[best]}",
                    *((loss,) if loss else ()),
                )
            ),
            ruled_out=(
                "A run that has converged: another layer still gets a usual gradient.",
                "Frozen layers: they have no gradient at all.",
            ),
            remedies=(
                Remedy(
                    "Use ReLU or GELU instead of sigmoid or tanh, and initialise weights for it.",
                    INITIALISED,
                    "PyTorch",
                ),
                Remedy("Add normalisation layers and residual connections.", BLOCK, "PyTorch"),
            ),
            tries=("initialise weights for the activation function", "ReLU or GELU", "normalisation layers"),
            how="The gradient norm of each layer, read before the optimizer steps in sampled steps, is "
            "divided by the norm of its weights.",
        )
