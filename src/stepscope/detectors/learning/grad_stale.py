"""Detects gradients that are never reset: each step adds to those of all steps before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.layer_gradients import CLIP_LIMIT, newest_value
from stepscope.analysis.loss.progress import has_fallen
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.trends import median_slope
from stepscope.analysis.wording import number
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding
from stepscope.schema.keys import GRADIENT_NORM, LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stepscope.schema.window import Floats, RankWindow, Window

SETUP_EVENT = "census"

MAX_NORMS = 200
"""Of more norms, evenly spaced ones are compared."""

RISING = 0.8
"""Minimum share of the pairs of norms of which the later one is larger."""

MIN_EXPONENT, MAX_EXPONENT = 0.4, 1.6
"""A sum of gradients grows with the number of steps to a power near 1, or near 0.5 if they differ much."""

UNCERTAIN_GROWTH, UNCERTAIN_NORMS = 30.0, 6
"""What is needed if a step changes gradients more than once, which may mean that it sets them to zero."""

RESET = """\
optimizer.zero_grad()     # once for each update
loss = loss_of(model(x), y)
loss.backward()
optimizer.step()"""

IN_LIGHTNING = """\
def training_step(self, batch, index):       # with self.automatic_optimization = False
    optimizer = self.optimizers()
    optimizer.zero_grad()
    self.manual_backward(self.loss_of(batch))
    optimizer.step()"""


@dataclass(frozen=True)
class StaleGradients(Detector):
    """Reads whether gradients stay the same tensors, and whether their norm grows with the step."""

    id: ClassVar[str] = "grad.stale"
    title: ClassVar[str] = "Gradients are never reset"
    sentence: ClassVar[str] = (
        "gradients are the same tensors in all steps, nothing sets them to zero, and their norm grows with "
        "the number of the step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((GRADIENT_NORM,),)
    reads: ClassVar[tuple[str, ...]] = (CLIP_LIMIT, *LOSS_KEYS)
    courses: ClassVar[tuple[str, ...]] = (GRADIENT_NORM, *LOSS_KEYS)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("conv.diverging", "conv.spike", "grad.explode")

    growth: Annotated[float, Range(1.2)] = 1.8
    """Minimum ratio of the highest norm to the first."""

    norms: Annotated[int, Range(3)] = 3
    """Minimum number of norms."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the course of the norms, then how the gradients are kept."""
        steps, norms = _norms(rank)
        if len(norms) < self.norms:
            return f"Too few gradient norms were sampled to show growth: {len(norms):,}."
        exponent = _exponent(steps, norms)
        growth = float(norms.max() / norms[0])
        if growth < self.growth or not MIN_EXPONENT <= exponent <= MAX_EXPONENT or not _rises(norms):
            return "The gradient norm does not grow in proportion to the step."
        setups = window.events_of(SETUP_EVENT, rank.rank)
        kept = setups[-1].fields.get("kept_gradients") if setups else None
        if not isinstance(kept, dict) or not kept["tensors"]:
            return TooLittleEvidence("Needs a watched model, and about 20 steps of its optimizers.")
        if kept["kept"] < kept["tensors"] or not kept["changes_per_step"]:
            return "Gradients are reset: each step has new ones."
        is_certain = kept["changes_per_step"] == 1
        is_clipped = newest_value(rank, CLIP_LIMIT) is not None
        if not is_certain and (is_clipped or growth < UNCERTAIN_GROWTH or len(norms) < UNCERTAIN_NORMS):
            return "Gradients are changed more than once in a step: something may set them to zero."
        return self._finding(rank, window, norms, exponent, kept)

    def _finding(
        self, rank: RankWindow, window: Window, norms: Floats, exponent: float, kept: Mapping[str, Any]
    ) -> Finding:
        times = number(float(norms.max() / norms[0]), 3)
        learns = has_fallen(rank)
        loss = rank.first_of(LOSS_KEYS)
        changes = kept["changes_per_step"]
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Gradients are never reset: their norm grows with each step, so far {times}×.",
            detail="Each backward pass adds to the gradients, so every update uses the sum of all steps "
            "since the beginning. Most often `optimizer.zero_grad()` is missing, or belongs to another one. "
            + (
                "The loss falls, until the updates become too large."
                if learns
                else "The loss has not fallen."
            ),
            severity="warning" if learns else "critical",
            confidence=0.95 if len(norms) > 4 and changes == 1 else 0.85,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("gradient norm", number(float(norms[-1])), f"first: {number(float(norms[0]))}"),
                Evidence("grows with the step", f"to the power {number(exponent, 2)}", "1: in proportion"),
                Evidence(
                    "gradients kept",
                    f"{kept['kept']} of {kept['tensors']}",
                    f"the same tensors 10 steps later, changed {changes}× in each step",
                ),
            ),
            chart=Chart((GRADIENT_NORM, *((loss,) if loss else ()))),
            ruled_out=(
                "Gradient accumulation: gradients are not reset after an update either.",
                "Larger gradients of single batches: the tensors are never replaced.",
            ),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Reset the gradients before each backward pass, or after each update.",
                {"torch": RESET, "lightning": IN_LIGHTNING},
            ),
            tries=("call optimizer.zero_grad() in each step",),
            how="Some gradients are read in the first steps and 10 steps later: whether they are the same "
            "tensors, and how often they were changed in place. Norms are read before the optimizer steps.",
            refs=("https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
        )


def _norms(rank: RankWindow) -> tuple[Floats, Floats]:
    """Returns the numbers of the steps, from 1 on, and their norms; of a long run, the means of its parts."""
    course = rank.course.get(GRADIENT_NORM)
    if course is not None and len(course):
        steps, norms = course.starts + course.width / 2, course.mean
    else:
        chosen = rank.where(GRADIENT_NORM, steady=False)
        steps, norms = rank.steps[chosen] - rank.steps[0] + 1.0, rank.columns[GRADIENT_NORM].values[chosen]
    chosen = np.isfinite(norms) & (norms > 0)
    steps, norms = steps[chosen], norms[chosen]
    thin = slice(None, None, max(len(norms) // MAX_NORMS, 1))
    return steps[thin].astype(np.float64), norms[thin]


def _exponent(steps: Floats, norms: Floats) -> float:
    slope = median_slope(np.log(steps), np.log(norms))
    return 0.0 if slope is None else slope


def _rises(norms: Floats) -> bool:
    first, second = np.triu_indices(len(norms), 1)
    return bool((norms[second] > norms[first]).mean() >= RISING)
