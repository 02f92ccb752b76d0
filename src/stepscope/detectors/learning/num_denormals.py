"""Detects weights so small that a processor computes with them many times more slowly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

DENORMAL_RATIO, WEIGHT_NORM = "weight_denormal_ratio", "weight_norm"

FLUSH = Remedy(
    "Let processors take such numbers as zero, in the first line of the program.",
    "torch.set_flush_denormal(True)",
    "PyTorch",
)
CAUSE = Remedy(
    "Look for what made the weights so small: an initialisation, a scale, or too strong a weight decay.",
    "for name, parameter in model.named_parameters():\n    print(name, parameter.abs().max())",
    "PyTorch",
)


@dataclass(frozen=True)
class DenormalWeights(Detector):
    """Reads the share of the weights that are denormal, in a sample of them."""

    id: ClassVar[str] = "num.denormals"
    title: ClassVar[str] = "Weights are denormal numbers"
    sentence: ClassVar[str] = (
        "a share of the weights on a processor is below the smallest normal number of its type (1.2e-38 for "
        "float32), but not zero"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((DENORMAL_RATIO,),)
    reads: ClassVar[tuple[str, ...]] = (STEP_SECONDS,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    # Gradients and norms of such weights are rounded to zero, or are large beside them.
    explains: ClassVar[tuple[str, ...]] = ("act.dead", "grad.explode", "grad.vanish", "conv.plateau")

    share: Annotated[float, Range(0.001, 1)] = 0.01
    """Minimum share of the weights that are denormal."""

    most: Annotated[float, Range(0.01, 1)] = 0.1
    """From this share on, the severity is warning."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Reads the newest sample."""
        chosen = rank.where(DENORMAL_RATIO, steady=False)
        shares, steps, times = (
            rank.columns[DENORMAL_RATIO].values[chosen],
            rank.steps[chosen],
            rank.times[chosen],
        )
        share = float(shares[-1])
        if share < self.share:
            return f"{percent(share)} of the weights are denormal; threshold: {percent(self.share)}."
        first = int(np.argmax(shares >= self.share))
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(share)} of the weights are denormal numbers, with which processors compute "
            "slowly.",
            detail="Below the smallest normal number, a processor leaves its fast path: an operation takes "
            "many times longer. Such weights also hardly change what the model computes.",
            severity="warning" if share >= self.most else "notice",
            confidence=0.95,
            first_step=int(steps[first]),
            last_step=int(steps[-1]),
            first_time=float(times[first]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("denormal weights", percent(share), f"newest of {len(shares):,} samples"),
                Evidence("threshold", percent(self.share), "of the weights that were sampled"),
            ),
            chart=Chart((DENORMAL_RATIO, STEP_SECONDS)),
            ruled_out=(
                "Weights of zero: they do not count.",
                "Weights on a GPU, which computes with such numbers at full speed: they do not count.",
            ),
            remedies=(FLUSH, CAUSE),
            tries=("torch.set_flush_denormal(True)", "look at the initialisation"),
            how="At most 4,096 elements of each parameter are compared with the smallest normal number of "
            "their type, at sampled optimizer steps.",
            refs=("https://pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",),
        )
