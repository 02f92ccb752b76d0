"""Detects a model that is computed in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

COMPUTED = ("forward", "backward", "optimizer")

MAX_SAVED = 0.5
"""float32 has half the bytes and fits twice as often into a vector register. On a GPU it saves more."""

FLOAT32 = Remedy(
    "Compute in float32, unless the problem needs 15 digits. NumPy makes float64: convert its arrays.",
    "model = model.float()\nx = torch.as_tensor(array, dtype=torch.float32)",
    "PyTorch",
)


@dataclass(frozen=True)
class DoublePrecision(Detector):
    """Reads the number format of the parameters from the setup."""

    id: ClassVar[str] = "prec.float64"
    title: ClassVar[str] = "The model is computed in float64"
    sentence: ClassVar[str] = (
        "most parameters of the watched model are float64, and computing with them takes a quarter of a step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((phase_key("forward"),), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = tuple(map(phase_key, COMPUTED))
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    for_each_rank: ClassVar[bool] = False  # all ranks compute the same model
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0, 1)] = 0.25
    """Minimum share of step time in the model and the optimizer."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup, then how much time is spent in the model."""
        setups = window.events_of(SETUP_EVENT, rank.rank)
        formats = setups[-1].fields.get("parameter_dtypes") if setups else None
        if not isinstance(formats, dict) or not formats:
            return TooLittleEvidence("Needs a watched model.")
        in_float64 = formats.get("float64", 0) / max(sum(formats.values()), 1)
        shares = phase_shares(rank)
        if in_float64 <= 0.5:
            return "The parameters are not float64."
        if not shares:
            return TooLittleEvidence("Needs more steps whose phases were timed.")
        computed = sum(shares.get(name, 0.0) for name in COMPUTED)
        if computed < self.share:
            return f"The parameters are float64, and computing takes {percent(computed)} of a step."
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The model is computed in float64, which takes {percent(computed)} of each step: "
            "float32 is about twice as fast.",
            detail="Few trainings of neural networks need float64. On most GPUs it is far slower than "
            "float32, on processors about half as fast, and it takes twice the memory.",
            severity="notice",  # some problems of science need it
            confidence=0.9,
            share=MAX_SAVED * computed,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("float64 parameters", percent(in_float64), f"{formats['float64']:,} numbers"),
                Evidence("forward, backward and optimizer", percent(computed), "of a step"),
            ),
            chart=Chart((STEP_SECONDS,), first, last),
            remedies=(FLOAT32,),
            tries=("model.float()",),
            estimate=Estimate(0.3 * computed, MAX_SAVED * computed, 0.65 * computed),
            how="The number format of the parameters is read at the first step. Small models on a processor "
            "spent 40 to 66% less time in float32.",
        )
