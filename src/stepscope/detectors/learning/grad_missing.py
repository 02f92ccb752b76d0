"""Detects layers that are computed and optimized, but cut off from the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.layer_gradients import quoted
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

CONNECT = Remedy(
    "Look between these layers and the loss for `.detach()`, `.data`, `.item()`, `torch.no_grad()`, NumPy, "
    "or a tensor that is created anew.",
    "hidden = encoder(x)                        # without .detach()\nloss = loss_of(decoder(hidden), y)",
    "PyTorch",
)
ORDER = Remedy(
    "Clear the gradients after the optimizer has stepped, or before `backward()`: here `zero_grad()` runs "
    "between them, or `backward()` never runs.",
    "optimizer.zero_grad()\nloss.backward()\noptimizer.step()                     # nothing in between",
    "PyTorch",
)
FREEZE = Remedy(
    "If they should not be trained, freeze them, and give the optimizer the other parameters only.",
    "encoder.requires_grad_(False)\n"
    "optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)",
    "PyTorch",
)


@dataclass(frozen=True)
class MissingGradients(Detector):
    """Reads which layers ran in training steps and got no gradient."""

    id: ClassVar[str] = "grad.missing"
    title: ClassVar[str] = "Layers get no gradient"
    sentence: ClassVar[str] = (
        "layers whose parameters an optimizer has are computed in training steps, but never get a gradient"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((phase_key("optimizer"),),)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False  # all ranks compute the same graph
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.plateau",)

    share: Annotated[float, Range(0, 1)] = 0.02
    """Minimum share of the trainable parameters: models have small outputs that a training leaves unused."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Reads the newest setup."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        fields = setups[-1].fields if setups else {}
        cut_off, trainable = fields.get("cut_off"), fields.get("trainable_parameters") or 1
        if not isinstance(cut_off, dict):
            return TooLittleEvidence("Needs a watched model, and about 20 steps of its optimizers.")
        if not cut_off["layers"]:
            return "Every layer that is computed and optimized gets a gradient."
        share = min(cut_off["parameters"] / trainable, 1.0)
        if share < self.share:
            left_out = f"{percent(share)} of the trainable parameters get no gradient"
            return f"{left_out}; threshold: {percent(self.share)}."
        are_all = share >= 1
        names, count = cut_off["names"], cut_off["layers"]
        layers, get = ("layers", "get") if count > 1 else ("layer", "gets")
        return Finding(
            id=self.id,
            title=self.title,
            headline="No parameter has a gradient when the optimizer steps: the model does not learn."
            if are_all
            else f"{count:,} {layers} with {percent(share)} of the trainable parameters {get} no "
            f"gradient: {quoted(names)}.",
            detail="Either the gradients are cleared between `backward()` and `step()`, or nothing flows "
            "back from the loss."
            if are_all
            else "They are computed in each step and are in an optimizer, but nothing flows back to them "
            "from the loss, so they keep their first values.",
            severity="warning",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("layers without gradient", f"{count:,}", quoted(names, 5)),
                Evidence(
                    "parameters in them", f"{cut_off['parameters']:,}", f"of {trainable:,} that are trainable"
                ),
            ),
            chart=Chart((GRADIENT_NORM,)),
            ruled_out=(
                "Frozen layers: these require gradients.",
                "Layers that are not used: these were computed, with gradients switched on.",
                "Layers that are trained in other steps: their own optimizer stepped.",
            ),
            remedies=(ORDER, CONNECT) if are_all else (CONNECT, FREEZE),
            tries=("call `zero_grad()` before `backward()`", "look for `.detach()` before the loss")
            if are_all
            else ("look for `.detach()` before the loss", "freeze what is not trained"),
            how="Layers without a gradient are followed during about 10 steps of their optimizer, at the "
            "beginning and once a minute.",
        )
