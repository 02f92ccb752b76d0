"""Detects a container that uses up its quota of processor time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.wording import number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

PERIODS, LIMIT = "cpu/cgroup_throttled_periods_ratio", "cpu/cgroup_limit_cores"
USED, THROTTLED = "cpu/cgroup_used_cores", "cpu/cgroup_throttled_ratio"
MIN_READINGS = 10
OFTEN = 0.2
"""A quota that is used up in this share of its periods is a warning."""


@dataclass(frozen=True)
class ProcessorQuota(MachineDetector):
    """Counts the periods in which the control group of the run was stopped because its quota was used up."""

    id: ClassVar[str] = "host.cpu_quota"
    title: ClassVar[str] = "The quota of processor time is used up"
    sentence: ClassVar[str] = (
        "in a share of its periods, the container of the run uses up its quota and is stopped until the next"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((PERIODS,), (LIMIT,))
    reads: ClassVar[tuple[str, ...]] = (USED, THROTTLED)

    share: Annotated[float, Range(0.001, 1)] = 0.02
    """Minimum share of periods in which the quota is used up."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Takes the mean over the steps, on the host where it is highest."""
        known = [figures for figures in window.machine if figures.key == PERIODS]
        known = [figures for figures in known if len(figures.values) >= MIN_READINGS]
        if not known:
            return TooLittleEvidence(f"Needs at least {MIN_READINGS} readings of the quota.")
        worst = max(known, key=lambda figures: float(figures.values.mean()))
        share = float(worst.values.mean())
        if share < self.share:
            return f"The quota of processor time is used up in {percent(share)} of its periods."
        return self._finding(rank, window, worst.host, share)

    def _finding(self, rank: RankWindow, window: Window, host: str, share: float) -> Finding:
        cores, used, stopped = (_mean(window, key, host) for key in (LIMIT, USED, THROTTLED))
        threads = max(int(cores), 1)
        evidence = (
            ("quota", cores, "processors"),
            ("in use", used, "processors on average"),
            ("stopped", stopped, "seconds in each second, added up over processors"),
        )
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The quota of {number(cores, 3)} processors is used up in {percent(share)} of its "
            "periods, and the run is stopped until the next.",
            detail="PyTorch and data loaders start as many threads as the machine has processors, not as "
            "many as the quota allows. Together they use up a period's quota early; then all of them stand "
            "still, the training thread as well.",
            severity="warning" if share >= OFTEN else "notice",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                Evidence("periods with the quota used up", percent(share)),
                *(
                    Evidence(label, number(value, 3), note)
                    for label, value, note in evidence
                    if np.isfinite(value)
                ),
            ),
            chart=Chart((PERIODS, USED)),
            ruled_out=("A machine that is busy with others: only the quota of this container is counted.",),
            remedies=(
                Remedy(
                    "Ask for more processors: the limit of the container, or of the job.",
                    f"resources: {{limits: {{cpu: {2 * threads}}}}}       # Kubernetes; Slurm: "
                    f"--cpus-per-task={2 * threads}",
                ),
                Remedy(
                    "Or use no more threads and loader workers together than the quota has processors.",
                    f"torch.set_num_threads({max(threads // 2, 1)})\n"
                    f"loader = DataLoader(dataset, num_workers={max(threads - threads // 2 - 1, 0)})",
                    "PyTorch",
                ),
            ),
            tries=("a larger quota", f"torch.set_num_threads({max(threads // 2, 1)})", "fewer workers"),
            how="The kernel counts the periods of the quota and those in which it was used up. Share: the "
            "mean over the readings during these steps.",
            refs=("https://docs.kernel.org/scheduler/sched-bwc.html",),
        )


def _mean(window: Window, key: str, host: str) -> float:
    values = [float(figures.values.mean()) for figures in window.figures(key, host)]
    return max(values, default=float("nan"))
