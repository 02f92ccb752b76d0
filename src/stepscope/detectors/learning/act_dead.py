"""Detects layers whose units are never active, so that nothing before them can learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.layer_gradients import OF_LAYERS, layer_gradients, quoted
from stepscope.analysis.loss.progress import has_fallen
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LOSS_KEYS

if TYPE_CHECKING:
    import numpy as np

    from stepscope.analysis.layer_gradients import LayerGradients
    from stepscope.schema.window import RankWindow, Window

DEAD_RATIO = "activation_dead_ratio"

SAMPLES = 3
"""Minimum number of samples."""

SMALL = 1e-6
"""Next to layers with a gradient below this, one of exactly zero was rounded: it vanished bit by bit."""

BIASES = """\
for layer in model.modules():
    if isinstance(layer, torch.nn.Linear):
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        torch.nn.init.zeros_(layer.bias)"""

REMEDIES = (
    Remedy("Initialise weights for ReLU and biases with zero.", BIASES, "PyTorch"),
    Remedy(
        "Use an activation that always has a gradient.", "torch.nn.LeakyReLU(0.01)   # or GELU", "PyTorch"
    ),
    Remedy("If the units died during the training, lower the learning rate or warm it up."),
)


@dataclass(frozen=True)
class DeadUnits(Detector):
    """Reads the share of units that are never active, and which layers have a gradient of exactly zero."""

    id: ClassVar[str] = "act.dead"
    title: ClassVar[str] = "Units of a layer are dead"
    sentence: ClassVar[str] = (
        "in several samples, 90% of the units of a ReLU are zero for all inputs; or, if the loss has not "
        "fallen, half of the layers or the first ones have a gradient of exactly zero while another has one"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((OF_LAYERS, f"{DEAD_RATIO}/*"),)
    reads: ClassVar[tuple[str, ...]] = LOSS_KEYS
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.plateau", "grad.vanish")

    share: Annotated[float, Range(0.1, 1)] = 0.9
    """Minimum share of the units of a layer that are never active: of a small batch, many units are not."""

    layers: Annotated[float, Range(0.1, 1)] = 0.5
    """Minimum share of the layers with a gradient of exactly zero, unless they are the first layers."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks activations if they were recorded, then the gradients of layers."""
        shares = {}
        for name, column in rank.below(DEAD_RATIO).items():
            newest = column.values[column.finite][-SAMPLES:]
            if len(newest) == SAMPLES and float(newest.min()) >= self.share:
                shares[name] = float(newest.min())
        if shares:
            return self._with_activations(rank, window, shares)
        gradients = layer_gradients(rank)
        if gradients is None or len(gradients.steps) < SAMPLES or has_fallen(rank):
            return "No layer with dead units was sampled."
        is_zero = (gradients.norms == 0).all(axis=0)
        are_first = bool(is_zero[: int(is_zero.sum())].all())  # the model cannot use its inputs
        if is_zero.all() or not is_zero.any() or (is_zero.mean() < self.layers and not are_first):
            return "Every layer gets a gradient."
        if float(gradients.norms[:, ~is_zero].max(axis=0).min()) < SMALL:
            return "Gradients of exactly zero were rounded: those of other layers are nearly zero."
        return self._with_gradients(rank, window, gradients, is_zero)

    def _with_activations(self, rank: RankWindow, window: Window, shares: dict[str, float]) -> Finding:
        worst = max(shares, key=lambda name: shares[name])
        others = f" and in {len(shares) - 1:,} more" if len(shares) > 1 else ""
        return self._finding(
            rank,
            window,
            f"{percent(shares[worst])} of the units of layer `{worst}`{others} are never active.",
            tuple(
                Evidence(f"dead units of {name}", percent(share), f"threshold: {percent(self.share)}")
                for name, share in list(shares.items())[:3]
            ),
            f"{DEAD_RATIO}/{worst}",
            is_certain=shares[worst] >= 1,
        )

    def _with_gradients(
        self, rank: RankWindow, window: Window, gradients: LayerGradients, is_zero: np.ndarray
    ) -> Finding:
        names = [name for name, zero in zip(gradients.names, is_zero, strict=True) if zero]
        return self._finding(
            rank,
            window,
            f"{len(names):,} of {len(gradients.names):,} layers {'have' if len(names) > 1 else 'has'} a "
            f"gradient of exactly zero, up to `{names[-1]}`: its output never changes the loss.",
            (
                Evidence("layers without gradient", quoted(names), "a norm of exactly 0"),
                Evidence("samples", f"{len(gradients.steps):,}", "it is so in all of them"),
            ),
            f"{GRADIENT_NORM}/{names[-1]}",
            is_certain=False,
        )

    def _finding(
        self,
        rank: RankWindow,
        window: Window,
        headline: str,
        evidence: tuple[Evidence, ...],
        key: str,
        *,
        is_certain: bool,
    ) -> Finding:
        learns = has_fallen(rank)
        loss = rank.first_of(LOSS_KEYS)
        return Finding(
            id=self.id,
            title=self.title,
            headline=headline,
            detail="A unit that is zero for every input passes no gradient on, so neither it nor what is "
            "before it can learn. Most often the biases are far too low, or an update that was too large has "
            "moved them there." + ("" if learns else " The loss has not fallen."),
            severity="notice" if learns else "warning",
            confidence=0.95 if is_certain else 0.85,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=evidence,
            chart=Chart((key, *((loss,) if loss else ()))),
            ruled_out=("Frozen layers: they have no gradient that could be zero.",),
            remedies=REMEDIES,
            tries=("initialise biases with zero", "LeakyReLU or GELU", "lower the learning rate"),
            how="Read in sampled steps: gradient norms of layers before the optimizer steps and, if `watch` "
            "was asked to, the outputs of layers.",
        )
