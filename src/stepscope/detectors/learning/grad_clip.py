"""Detects clipping that cuts nearly every update down to a small part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.layer_gradients import CLIP_LIMIT, UNCHANGED, UPDATE_RATIO, largest_change
from stepscope.analysis.loss.progress import has_fallen
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import GRADIENT_NORM, LOSS_KEYS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

LOWER = Remedy(
    "Or remove clipping and choose the learning rate for updates of the usual size: clipping is meant for "
    "single large gradients."
)


@dataclass(frozen=True)
class AlwaysClipped(Detector):
    """Compares gradient norms with the greatest norm that clipping leaves."""

    id: ClassVar[str] = "grad.clip"
    title: ClassVar[str] = "Nearly all gradients are clipped"
    sentence: ClassVar[str] = (
        "at least 95% of the sampled gradients are clipped, and their median is 10 times the limit"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((CLIP_LIMIT,), (GRADIENT_NORM,))
    reads: ClassVar[tuple[str, ...]] = (*LOSS_KEYS, UPDATE_RATIO)
    courses: ClassVar[tuple[str, ...]] = LOSS_KEYS
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.plateau",)

    share: Annotated[float, Range(0.5, 1)] = 0.95
    """Minimum share of the sampled steps whose gradients are clipped."""

    factor: Annotated[float, Range(1)] = 10.0
    """Minimum ratio of the median norm to the limit: many trainings clip slightly in most steps."""

    samples: Annotated[int, Range(3)] = 10
    """Minimum number of sampled steps."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the sampled steps in which gradients were clipped."""
        chosen = rank.where(GRADIENT_NORM, CLIP_LIMIT, steady=False)
        norms = rank.columns[GRADIENT_NORM].values[chosen]
        limits = rank.columns[CLIP_LIMIT].values[chosen]
        count = len(norms)
        if count < self.samples or float(limits[-1]) <= 0:
            return f"Gradients were clipped to {number(float(limits[-1]))}; {count:,} samples."
        limit, usual = float(limits[-1]), float(np.median(norms))
        share = float((norms > limits).mean())
        clipped = f"{percent(share)} of the gradients are clipped to a norm of {number(limit)}"
        if share < self.share or float(np.median(norms / limits)) < self.factor:
            return f"{clipped}; the median norm is {number(usual)}."
        steps = rank.steps[chosen]
        loss = rank.first_of(LOSS_KEYS)
        times = number(usual / limit, 3)
        change = largest_change(rank)
        learns_nothing = change is not None and change < UNCHANGED and not has_fallen(rank)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{clipped}: the usual norm is {number(usual)}, {times}× the limit.",
            detail="All updates then have nearly the same size, whatever the gradients are. With plain SGD "
            f"this divides the learning rate by {times}; adaptive optimizers make up for most of it, but a "
            "large gradient no longer counts for less than before."
            + (" The weights have hardly changed, and the loss has not fallen." if learns_nothing else ""),
            severity="warning" if learns_nothing else "notice",
            confidence=min(0.95, 0.7 + 0.005 * count),
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            first_time=float(rank.times[chosen][0]),
            last_time=float(rank.times[chosen][-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("clipped", percent(share), f"{count:,} samples; threshold: {percent(self.share)}"),
                Evidence("limit", number(limit), "max_norm"),
                Evidence(
                    "gradient norm",
                    number(usual),
                    f"median; 10% are below {number(float(np.quantile(norms, 0.1)))}",
                ),
            ),
            chart=Chart((GRADIENT_NORM, *((loss,) if loss else ()))),
            ruled_out=("Single large gradients: nearly all are above the limit.",),
            remedies=(*_remedies(window, rank.rank, float(np.quantile(norms, 0.9))), LOWER),
            tries=("raise max_norm", "choose the learning rate without clipping"),
            how="The norm before clipping and `max_norm` are read in randomly sampled steps.",
            refs=("https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        )


def _remedies(window: Window, rank: int, high: float) -> tuple[Remedy, ...]:
    limit = f"{2 * high:.2g}"
    return remedies_in(
        window.libraries(rank),
        f"Raise max_norm to about {limit}, twice the norm that one gradient in ten exceeds.",
        {
            "torch": f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={limit})",
            "lightning": f"trainer = Trainer(gradient_clip_val={limit})",
            "transformers": f"arguments = TrainingArguments(..., max_grad_norm={limit})",
        },
    )
