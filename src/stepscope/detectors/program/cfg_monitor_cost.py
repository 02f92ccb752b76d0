"""Detects recording that takes a noticeable share of the training's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.large_shares import wall_seconds
from stepscope.analysis.wording import percent, round_up, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import OVERHEAD_RATIO, STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

MINUTE_S = 60.0
"""A run must be this long: what recording costs at its start is not what it costs."""


@dataclass(frozen=True)
class MonitorCost(Detector):
    """Takes the mean of the share of time that stepscope itself has measured for its own work."""

    id: ClassVar[str] = "cfg.monitor_cost"
    title: ClassVar[str] = "Recording takes a share of the time"
    sentence: ClassVar[str] = "recording takes a share of the training thread's time"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((OVERHEAD_RATIO,), (STEP_SECONDS,))
    min_steps: ClassVar[int] = 5
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of time that recording takes."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Takes the mean of the newest steps; the first ones, which set up the recording, do not count."""
        chosen = rank.where(OVERHEAD_RATIO, steady=False) & (np.arange(len(rank.steps)) >= rank.warm_up)
        ratios = rank.columns[OVERHEAD_RATIO].values[chosen]
        share = float(ratios.mean()) if len(ratios) else 0.0
        if share < self.share:
            return f"Recording takes {percent(share)} of the time."
        wall_s = wall_seconds(rank) or 0.0
        if rank.is_whole and wall_s < MINUTE_S:
            return TooLittleEvidence(f"Needs a minute of steps; {seconds(wall_s)} recorded.")
        (taken,) = rank.aligned(STEP_SECONDS, steady=False)
        step_s = float(np.median(taken))
        every = round_up(share / (self.share / 4))
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Recording takes {percent(share)} of the time: {seconds(share * step_s)} of each step "
            f"of {seconds(step_s)}.",
            detail="What stepscope does unasked is kept within recorder.max_overhead. Calls of the loop, "
            "such as log, are always carried out, and add up where steps are short.",
            severity=severity_of(share),
            confidence=0.9,
            share=share,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("recording", percent(share), f"{seconds(share * step_s)} of each step"),
                Evidence("readings", f"{len(ratios):,}"),
            ),
            chart=Chart((OVERHEAD_RATIO, STEP_SECONDS)),
            remedies=(
                Remedy(
                    "Call `log` less often.",
                    f"if step % {every} == 0:\n"
                    '    monitor.log({"loss": loss, "accuracy": accuracy}, step=step)',
                    "PyTorch",
                ),
                Remedy("Log several values in one call: a call costs more than a value."),
                Remedy(
                    "Lower the share of time in which stepscope measures unasked.",
                    "recorder: {max_overhead: 0.002}",
                ),
            ),
            tries=(f"log every {every} steps", "several values in one call"),
            estimate=Estimate(0.5 * share, 0.8 * share, share, "the time of the run"),
            how="The recorder measures its own work in sampled calls. This is the mean of what it recorded.",
        )
