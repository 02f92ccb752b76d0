"""Detects evaluations that take a large part of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import percent, round_up, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import EVAL_GAP_SECONDS, STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import Flags, RankWindow, Window

AIM = 0.1
"""The most that evaluations take if they are as rare as advised, as a share of the time."""

CHEAPER = """\
model.eval()
with torch.inference_mode():               # no graph, and room for larger batches
    for batch in islice(validation_loader, 50):
        ..."""


@dataclass(frozen=True)
class LongEvaluations(Detector):
    """Sums the evaluations between steps."""

    id: ClassVar[str] = "eval.dominates"
    title: ClassVar[str] = "Evaluation takes a large part of the time"
    sentence: ClassVar[str] = "several evaluations between steps together take a share of the time"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((EVAL_GAP_SECONDS,), (STEP_SECONDS,))
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.01, 1)] = 0.2
    """Minimum share of time that evaluations take."""

    evaluations: Annotated[int, Range(2)] = 3
    """Minimum number of evaluations."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the time of evaluations with the time since the first of the examined steps."""
        chosen = rank.where(EVAL_GAP_SECONDS, steady=False)
        wall = wall_seconds(rank)
        if wall is None:
            return TooLittleEvidence("Too little time was recorded.")
        count = int(chosen.sum())
        share = float(rank.columns[EVAL_GAP_SECONDS].values[chosen].sum()) / wall
        many = f"{count} evaluation{'s' if count != 1 else ''}"
        if share < self.share:
            return f"Evaluation takes {percent(share)} of the time."
        if count < self.evaluations:
            return TooLittleEvidence(
                f"Needs at least {self.evaluations} evaluations; {many} recorded, with {percent(share)} of "
                "the time."
            )
        return self._finding(rank, window, chosen, min(share, 1.0), wall)

    def _finding(self, rank: RankWindow, window: Window, chosen: Flags, share: float, wall: float) -> Finding:
        took, at = rank.columns[EVAL_GAP_SECONDS].values[chosen], rank.steps[chosen]
        each, between = float(np.mean(took)), max(int(np.median(np.diff(at))), 1)
        rarer = round_up(between * share / max(1 - share, 0.01) * (1 - AIM) / AIM)
        rest = share * between / rarer
        likely = share - rest / (1 - share + rest)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Evaluation takes {percent(share)} of the time: {len(took):,} evaluations of "
            f"{seconds(each)} each, one in {between:,} step{'s' if between > 1 else ''}.",
            detail="The training waits while the model is evaluated. With one evaluation in "
            f"{rarer:,} steps, they would take {percent(share - likely)} of the time.",
            severity=severity_of(likely),
            confidence=min(0.95, 0.7 + 0.02 * len(took)),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("evaluation", percent(share), f"{seconds(float(took.sum()))} of {seconds(wall)}"),
                Evidence("one evaluation", seconds(each), f"longest: {seconds(float(took.max()))}"),
                Evidence("steps between evaluations", f"{between:,}"),
            ),
            chart=Chart((EVAL_GAP_SECONDS, STEP_SECONDS), first, last),
            ruled_out=(
                "One long evaluation, as at the end of a run: the share is that of several.",
                "Checkpoints: the time in which they are written is left out.",
            ),
            remedies=(
                *remedies_in(
                    window.libraries(rank.rank),
                    f"Evaluate once in {rarer:,} steps.",
                    {
                        "torch": f"if step % {rarer} == 0:\n    evaluate(model, validation_loader)",
                        "lightning": f"trainer = Trainer(..., val_check_interval={rarer}, "
                        "check_val_every_n_epoch=None)",
                        "transformers": f'arguments = TrainingArguments(..., eval_strategy="steps", '
                        f"eval_steps={rarer})",
                    },
                ),
                Remedy(
                    "Evaluate a fixed part of the data, in larger batches and without gradients.", CHEAPER
                ),
            ),
            tries=(f"evaluate once in {rarer:,} steps", "evaluate a part of the data"),
            estimate=Estimate(0.5 * likely, likely, share, "the time of the run"),
            how="The time between two steps in which the model is in evaluation mode, summed and divided by "
            "the time since the first of the examined steps.",
        )
