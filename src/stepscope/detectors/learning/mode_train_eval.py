"""Detects a model that is trained in evaluation mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from stepscope.analysis.remedies import remedies_in
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding
from stepscope.schema.keys import LOSS_KEYS, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

SWITCHED_BACK = """\
for epoch in range(epochs):
    model.train()        # before each epoch: the evaluation below has switched it off
    train(model, loader)
    model.eval()
    evaluate(model, validation_loader)"""

IN_LIGHTNING = """\
def on_train_start(self):
    self.train()         # Lightning keeps the mode that the model had before `fit`"""


@dataclass(frozen=True)
class TrainingMode(Detector):
    """Reads the mode of the model at optimizer steps."""

    id: ClassVar[str] = "mode.train_eval"
    title: ClassVar[str] = "The model is trained in evaluation mode"
    sentence: ClassVar[str] = (
        "optimizer steps are made while the model, which has dropout or batch statistics, is in evaluation "
        "mode"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((phase_key("optimizer"),),)
    reads: ClassVar[tuple[str, ...]] = LOSS_KEYS
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    steps: Annotated[int, Range(20)] = 20
    """Minimum number of steps in evaluation mode."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        mode = setups[-1].fields.get("mode") if setups else None
        if not isinstance(mode, dict):
            return TooLittleEvidence("Needs a watched model, and about 20 steps of its optimizers.")
        if mode["training"]:
            return "The model is in training mode when it is updated."
        if not mode["layers"]:
            return "The model is in evaluation mode, but has no layer that depends on the mode."
        if mode["layers_in_training"]:
            return "The model is in evaluation mode, but some of its layers were set to training mode."
        steps = int(rank.steps[-1]) - mode["since_step"] + 1
        if steps < self.steps:
            return f"The model has been in evaluation mode for {steps:,} steps."
        return self._finding(rank, window, mode, steps)

    def _finding(self, rank: RankWindow, window: Window, mode: Mapping[str, Any], steps: int) -> Finding:
        since, layers, from_start = mode["since_step"], mode["layers"], mode["from_start"]
        times = rank.times[rank.steps >= since]
        loss = rank.first_of(LOSS_KEYS)
        layer, verb = ("layer", "depends") if layers == 1 else ("layers", "depend")
        return Finding(
            id=self.id,
            title=self.title,
            headline="The model has been trained in evaluation mode "
            + ("from the first step on." if from_start else f"since step {since:,}."),
            detail="Dropout is off, and batch normalisation uses its running statistics without updating "
            "them. "
            + (
                "Models that are loaded with trained weights often start in this mode. If it is intended, "
                "mute this finding."
                if from_start
                else "Most often `model.eval()` of an evaluation is not followed by `model.train()`."
            ),
            severity="notice" if from_start else "warning",
            confidence=0.7 if from_start else 0.95,
            first_step=since,
            last_step=int(rank.steps[-1]),
            first_time=float(times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("steps in evaluation mode", f"{steps:,}", f"since step {since:,}"),
                Evidence(f"{layer} that {verb} on the mode", f"{layers:,}", "all in evaluation mode"),
            ),
            chart=Chart((loss,)) if loss else None,
            ruled_out=(
                "Evaluations between steps: the mode is read when an optimizer has stepped.",
                "Layers that were frozen on purpose: these are trained, or have dropout.",
            ),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Call `model.train()` before the first step, and after each evaluation.",
                {"torch": SWITCHED_BACK, "lightning": IN_LIGHTNING},
            ),
            tries=("call model.train() after each evaluation",),
            how="`model.training` is read in the first steps, after each call of `model.eval()`, and about "
            "once a second. It has to be off in at least 20 steps in a row.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval",),
        )
