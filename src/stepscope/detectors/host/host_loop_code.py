"""Detects a line of the loop that waits, outside the model, for a large part of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.phase_shares import phase_shares
from stepscope.analysis.stack_samples import newest_samples
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import SAMPLED_RATIO, STACKS_EVENT, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.analysis.stack_samples import SampledLine
    from stepscope.schema.window import RankWindow, Window

OTHER = "other"
CPU_RATIO, QUEUED = "host/cpu_ratio", "host/queued_seconds"

MIN_SAMPLES = 10
"""Samples outside the measured phases that are needed."""

WAITING = ("sleep", "network", "subprocess", "plot")
"""What a line can be called for that is no part of training the model."""

REMEDIES = {
    "sleep": Remedy("Remove the sleep, or wait in another thread."),
    "network": Remedy(
        "Send requests from another thread: the step need not wait for their answers.",
        "pool = concurrent.futures.ThreadPoolExecutor(1)\npool.submit(send, values)  # not send(values)",
    ),
    "subprocess": Remedy("Start the program without waiting for it.", "process = subprocess.Popen(command)"),
    "plot": Remedy("Draw rarely.", "if step % 1000 == 0:\n    draw(model)"),
}
MOVE = Remedy("Move this line out of the loop, run it in few steps only, or run it in another thread.")


@dataclass(frozen=True)
class LoopCode(Detector):
    """Joins the time outside the measured phases with the line that the stack samples show there."""

    id: ClassVar[str] = "host.loop_code"
    title: ClassVar[str] = "A line of the loop waits in each step"
    sentence: ClassVar[str] = (
        "a large share of step time is outside the measured phases, most stack samples there show one line, "
        "and this line sleeps, draws, or waits for the network, another program or something else"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (SAMPLED_RATIO, phase_key(OTHER), CPU_RATIO, QUEUED)
    events: ClassVar[tuple[str, ...]] = (STACKS_EVENT,)
    min_steps: ClassVar[int] = 20

    share: Annotated[float, Range(0.05, 1)] = 0.25
    """Minimum share of step time outside the measured phases."""

    line_share: Annotated[float, Range(0.1, 1)] = 0.4
    """Minimum share of one line in the samples there, as the lower bound of its 95% interval."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Finds the line, then what it does."""
        outside = phase_shares(rank).get(OTHER, 0.0)
        measured = f"{percent(outside)} of step time is outside the measured phases"
        if outside < self.share:
            return f"{measured}; threshold: {percent(self.share)}."
        stacks = newest_samples(window, rank.rank)
        count = 0 if stacks is None else stacks.count(OTHER)
        if stacks is None or count < MIN_SAMPLES:
            return TooLittleEvidence(f"{measured}; only {count} stack samples show what runs there.")
        lines = stacks.lines_in(OTHER)
        if not lines or lines[0].low < self.line_share:
            return f"{measured}, in several lines."
        top = lines[0]
        if top.kind in ("logging", "sync"):
            return f"{measured}, at {top.place}: another check reports it."
        share = outside * top.share
        if top.kind not in WAITING and _blocked_share(rank) < 0.5 * share:
            return f"{measured}, at {top.place}, which computes."
        return self._finding(rank, window, top, outside)

    def _finding(self, rank: RankWindow, window: Window, top: SampledLine, outside: float) -> Finding:
        (taken,) = rank.aligned(STEP_SECONDS)
        share, step_s = outside * top.share, float(taken.mean())
        words = f" ({top.words})" if top.words else ""
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{percent(share)} of each step is spent at {top.place}{words}: "
            f"{seconds(share * step_s)} of {seconds(step_s)}.",
            detail="The line runs in the loop, outside the model, the optimizer and the loader, and the "
            "training thread waits there.",
            severity=severity_of(share),
            confidence=round(min(0.95, 0.5 + 0.45 * top.low), 2),
            share=share,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            where=top.place,
            evidence=(
                Evidence("outside the phases", percent(outside), f"of a step of {seconds(step_s)}"),
                top.evidence(),
            ),
            chart=Chart((phase_key(OTHER), STEP_SECONDS), first, last),
            ruled_out=("Computation: the line waits, or does something that is no part of the model.",),
            remedies=(*((REMEDIES[top.kind],) if top.kind in REMEDIES else ()), MOVE),
            tries=("move the line out of the loop",),
            estimate=Estimate(round(outside * top.low, 3), round(share, 3), round(outside, 3)),
            how="The share of time outside the measured phases, times the share of the line in the stack "
            "samples that were taken there at random moments.",
        )


def _blocked_share(rank: RankWindow) -> float:
    """Returns the share of time in which the training thread neither ran nor waited for a processor."""
    if not rank.has(CPU_RATIO, QUEUED):
        return 0.0
    (running,), (queued, taken) = rank.aligned(CPU_RATIO), rank.aligned(QUEUED, STEP_SECONDS)
    if not len(running) or not len(queued):
        return 0.0
    return 1 - float(np.median(running)) - float(np.median(queued) / np.median(taken))
