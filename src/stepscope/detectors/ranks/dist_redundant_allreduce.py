"""Detects gradients that are exchanged for each micro-batch of a step, although only their sum is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.analysis.wording import number, percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import RANK_WAIT_SECONDS, STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

EXCHANGES, MICRO_STEPS = "ranks/exchanges", "micro_steps"


@dataclass(frozen=True)
class RedundantExchange(Detector):
    """Compares how often a step exchanges gradients with the number of its micro-batches."""

    id: ClassVar[str] = "dist.redundant_allreduce"
    title: ClassVar[str] = "Gradients are exchanged more often than they are used"
    sentence: ClassVar[str] = (
        "gradients are accumulated over several batches, and ranks exchange them in each of these instead of "
        "once in a step"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((EXCHANGES,), (MICRO_STEPS,), (STEP_SECONDS,))
    reads: ClassVar[tuple[str, ...]] = (RANK_WAIT_SECONDS,)
    min_steps: ClassVar[int] = 10
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    steps: Annotated[float, Range(0.1, 1)] = 0.8
    """Minimum share of steps that exchange gradients in each micro-batch."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Counts the steps with as many exchanges as micro-batches."""
        exchanges, batches, taken = rank.aligned(EXCHANGES, MICRO_STEPS, STEP_SECONDS)
        if float(np.median(batches)) < 2:
            return "Gradients are not accumulated."
        redundant = float(((exchanges > 1) & (exchanges >= batches)).mean())
        if redundant < self.steps:
            return f"{percent(redundant)} of steps exchange gradients in each of their batches."
        count, step = float(np.median(batches)), float(np.median(taken))
        # What the rank waits that waits least is the exchange itself; it is measured in the last batch.
        waits = [
            float(np.median(other.aligned(RANK_WAIT_SECONDS)[0]))
            for other in window.ranks
            if other.has(RANK_WAIT_SECONDS) and other.where(RANK_WAIT_SECONDS).any()
        ]
        most = min((count - 1) * min(waits, default=0.0) / max(step, 1e-9), (count - 1) / count)
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        times = number(count, 3)
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Ranks exchange gradients {times} times in a step, once for each of its batches.",
            detail="The optimizer uses their sum, which can be exchanged once, with the last batch.",
            severity="notice" if severity_of(0.5 * most) == "info" else severity_of(0.5 * most),
            confidence=0.9,
            share=most or None,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("exchanges", times, f"in {percent(redundant)} of {len(exchanges):,} steps"),
                Evidence("batches in a step", times),
                *(
                    (Evidence("one exchange", seconds(min(waits)), "after the last gradient"),)
                    if waits
                    else ()
                ),
            ),
            chart=Chart((EXCHANGES, MICRO_STEPS), first, last),
            ruled_out=("One batch in a step: gradients are accumulated.",),
            remedies=remedies_in(
                window.libraries(rank.rank),
                "Exchange gradients with the last batch of a step only.",
                {
                    "torch": "for number, (x, y) in enumerate(batches):      # those of one step\n"
                    "    is_last = number == len(batches) - 1\n"
                    "    with contextlib.nullcontext() if is_last else model.no_sync():\n"
                    "        (loss_of(model(x), y) / len(batches)).backward()",
                    "lightning": f"trainer = Trainer(accumulate_grad_batches={times})",
                    "transformers": f"arguments = TrainingArguments(gradient_accumulation_steps={times})",
                },
            ),
            tries=("model.no_sync()",),
            estimate=Estimate(0.0, 0.5 * most, most) if most else None,
            how="The backward passes in which `DistributedDataParallel` exchanges gradients are counted in "
            "sampled steps. Gain: what the last exchange takes after the last gradient, for all others.",
        )
