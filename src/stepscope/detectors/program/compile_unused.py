"""Detects a model that was compiled, while the loop calls the one that was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

CALL = Remedy(
    "Call what `torch.compile` returns; the model that it was given stays as it was. Or compile it in place.",
    "model = torch.compile(model)\nloss = loss_of(model(x), y)          # or, in place: model.compile()",
    "PyTorch",
)
DROP = Remedy("If it is compiled for evaluation only, nothing is wrong: mute this.")


@dataclass(frozen=True)
class CompiledButUnused(Detector):
    """Reads whether a compiled form of the watched model exists that has never run."""

    id: ClassVar[str] = "compile.unused"
    title: ClassVar[str] = "The compiled model is never called"
    sentence: ClassVar[str] = (
        "a compiled form of the watched model exists, and after 20 steps nothing was compiled"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((phase_key("optimizer"),),)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Reads the newest setup."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        fields = setups[-1].fields if setups else {}
        if "cut_off" not in fields:
            return TooLittleEvidence("Needs a watched model, and about 20 steps of its optimizers.")
        name = fields.get("compiled_but_unused")
        if not name:
            return "No model was compiled in vain."
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"`{name}` was compiled, but the compiled model has not been called in any step.",
            detail="`torch.compile` returns a new model, which is compiled when it is first called. The "
            "loop calls the original one, so it runs as slowly as before.",
            severity="notice",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("compiled model", name, "exists, and wraps the watched model"),
                Evidence("compiled code", "none", "after 20 steps"),
            ),
            chart=Chart((STEP_SECONDS,)),
            ruled_out=("Code that is compiled later: steps have run for a while.",),
            remedies=(CALL, DROP),
            tries=("call the compiled model",),
            how="If something was prepared for compilation and nothing is compiled after about 20 steps, the "
            "program is searched for a compiled form of the watched model.",
        )
