"""Detects a single step that blocks, and the line at which it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.stack_samples import blocked_samples
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import STACKS_EVENT, STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.analysis.stack_samples import SampledLine, StackSamples
    from stepscope.schema.window import RankWindow, Window

PHASES = ("data", "transfer", "forward", "backward", "optimizer", "other")
"""Phases in which a long step is not expected. Checkpoints, evaluation and compilation are other checks."""

TIMEOUT = Remedy(
    "Give what the line waits for a timeout, and log when it is slow.",
    "requests.get(url, timeout=10)      # and DataLoader(..., timeout=60), init_process_group(timeout=...)",
)
BACKGROUND = Remedy("Do it in another thread or process: the training need not wait for it.")


class _Blocked(NamedTuple):
    """A step that blocked."""

    step: int
    taken_s: float
    samples: StackSamples
    line: SampledLine
    is_over: bool = True


@dataclass(frozen=True)
class BlockedStep(Detector):
    """Joins the time of a step with the stack samples that were taken while it blocked."""

    id: ClassVar[str] = "step.blocked"
    title: ClassVar[str] = "A step blocks"
    sentence: ClassVar[str] = (
        "one step takes seconds and many times the median, a share of the run's time, and the stack samples "
        "taken meanwhile show where"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    events: ClassVar[tuple[str, ...]] = (STACKS_EVENT,)
    min_steps: ClassVar[int] = 10
    in_steady_state: ClassVar[bool] = False

    share: Annotated[float, Range(0, 1)] = 0.02
    """Minimum share of the time that the step takes longer than usual."""

    least_seconds: Annotated[float, Range(0.1)] = 5.0
    """Minimum time of the step."""

    ratio: Annotated[float, Range(2)] = 20.0
    """The same as a multiple of the median."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Finds the longest step that was sampled."""
        wall = wall_seconds(rank)
        if wall is None:
            return TooLittleEvidence("Too little time was recorded.")
        usual = float(np.median(rank.aligned(STEP_SECONDS, steady=False)[0]))
        known = [_blocked(rank, samples) for samples in blocked_samples(window, rank.rank)]
        blocked = [step for step in known if step is not None]
        if not blocked:
            return "No step blocked for seconds."
        longest = max(blocked, key=lambda step: step.taken_s)
        took = f"Step {longest.step:,} took {seconds(longest.taken_s)}"
        if longest.taken_s < max(self.least_seconds, self.ratio * usual):
            return f"{took}; threshold: {seconds(max(self.least_seconds, self.ratio * usual))}."
        excess = longest.taken_s - usual
        share = excess / (wall if longest.is_over else wall + longest.taken_s)
        if share < self.share:
            return f"{took}, {percent(share)} of the time."
        return self._finding(rank, window, longest, usual, min(share, 1.0))

    def _finding(
        self, rank: RankWindow, window: Window, blocked: _Blocked, usual: float, share: float
    ) -> Finding:
        words = f" ({blocked.line.words})" if blocked.line.words else ""
        took = "took" if blocked.is_over else "has taken"
        at = float(rank.times[np.searchsorted(rank.steps, blocked.step).clip(max=len(rank.steps) - 1)])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Step {blocked.step:,} {took} {seconds(blocked.taken_s)} instead of {seconds(usual)}, "
            f"at {blocked.line.place}{words}.",
            detail="The training thread waited at this line. Nothing else of the training ran meanwhile.",
            severity=severity_of(share),
            confidence=round(min(0.95, 0.5 + 0.45 * blocked.line.low), 2),
            share=share,
            first_step=blocked.step,
            last_step=blocked.step,
            first_time=at,
            last_time=at,
            rank=rank.rank if len(window.ranks) > 1 else None,
            where=blocked.line.place,
            evidence=(
                Evidence("the step", seconds(blocked.taken_s), f"a usual one takes {seconds(usual)}"),
                blocked.line.evidence(),
            ),
            chart=Chart((STEP_SECONDS,), blocked.step, blocked.step),
            ruled_out=("Checkpoints, evaluation and compilation: the samples are not in them.",),
            remedies=(TIMEOUT, BACKGROUND),
            tries=("a timeout", "another thread"),
            estimate=Estimate(0.0, round(share, 3), round(share, 3), "the time so far"),
            how="The recorder reads the stack of the training thread once a step takes far longer than "
            "those before it.",
        )


def _blocked(rank: RankWindow, samples: StackSamples) -> _Blocked | None:
    """Returns the sampled step with its time; None if it was something else, or is not known to block."""
    lines = samples.lines_in(*PHASES)
    is_idle = bool(lines) and lines[0].kind == "idle"  # as a notebook between two cells
    if not lines or is_idle or lines[0].samples < 0.6 * samples.samples:
        return None
    # The loop may have ended the step between two readings of the recorder.
    near = rank.where(STEP_SECONDS, steady=False) & np.isin(rank.steps, (samples.step, samples.step + 1))
    taken = rank.columns[STEP_SECONDS].values[near]
    if len(taken):
        longest = int(np.argmax(taken))
        return _Blocked(int(rank.steps[near][longest]), float(taken[longest]), samples, lines[0])
    is_running = samples.step > int(rank.steps[-1]) - 1 and bool(samples.fields.get("is_in_loop"))
    taken_s = float(samples.fields.get("taken_seconds", 0.0))
    return _Blocked(samples.step, taken_s, samples, lines[0], is_over=False) if is_running else None
