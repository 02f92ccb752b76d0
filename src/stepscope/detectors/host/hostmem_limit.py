"""Detects memory of the host that is nearly full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.wording import percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import MachineDetector, TooLittleEvidence
from stepscope.number_format import size
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy

if TYPE_CHECKING:
    from stepscope.schema.window import MachineFigures, RankWindow, Window

RATIO, LIMIT = "memory/cgroup_working_set_ratio", "memory/cgroup_limit_bytes"
PRESSURE = "memory/pressure_some_ratio"
KILLS = "memory/cgroup_oom_kills_total"
MIN_READINGS = 10
RECENT = 0.2
"""The share of the newest readings that decides: memory that was freed again is no risk."""
NEARLY_FULL = 0.97

ADVICE = (
    Remedy(
        "Use fewer loader workers, or let each prefetch less: every worker has a copy of what it changes.",
        "loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)",
        "PyTorch",
    ),
    Remedy("Ask for more memory: the limit of the container, or of the job."),
)


@dataclass(frozen=True)
class MemoryLimit(MachineDetector):
    """Compares the memory of the control group with its limit, and reads how long threads wait for memory."""

    id: ClassVar[str] = "hostmem.limit"
    title: ClassVar[str] = "Memory of the host is nearly full"
    sentence: ClassVar[str] = (
        "the newest readings of the container's memory, without cached files, are near its limit; or "
        "threads wait for memory for a share of the time"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((RATIO, PRESSURE),)
    reads: ClassVar[tuple[str, ...]] = (LIMIT, KILLS)

    full: Annotated[float, Range(0.1, 1)] = 0.9
    """Minimum share of the limit that is in use."""

    waiting: Annotated[float, Range(0.001, 1)] = 0.05
    """Minimum share of time in which some thread waits for memory."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Reads both on every host."""
        known = [figures for figures in window.machine if figures.key in (RATIO, PRESSURE)]
        known = [figures for figures in known if len(figures.values) >= MIN_READINGS]
        if not known:
            return TooLittleEvidence(f"Needs at least {MIN_READINGS} readings of memory.")
        limits = {RATIO: self.full, PRESSURE: self.waiting}
        above = [figures for figures in known if _recent(figures) >= limits[figures.key]]
        if not above:
            used = max((_recent(figures) for figures in known if figures.key == RATIO), default=None)
            return "Threads do not wait for memory" + (
                "." if used is None else f", and {percent(used)} of the limit is in use."
            )
        worst = max(above, key=lambda figures: (figures.key == RATIO, _recent(figures)))
        return self._finding(rank, window, worst)

    def _finding(self, rank: RankWindow, window: Window, worst: MachineFigures) -> Finding:
        value = _recent(worst)
        limit = [float(figures.values[-1]) for figures in window.figures(LIMIT, worst.host)]
        killed = sum(
            float(figures.values[-1] - figures.values[0]) for figures in window.figures(KILLS, worst.host)
        )
        pressure = [_recent(figures) for figures in window.figures(PRESSURE, worst.host)]
        if worst.key == RATIO:
            allowed = f" of {size(min(limit))}" if limit else ""
            headline = f"{percent(value)} of the memory{allowed} that this container may use is in use."
            is_critical = value >= NEARLY_FULL or killed > 0
        else:
            headline = f"Threads wait for memory {percent(value)} of the time."
            is_critical = False
        return Finding(
            id=self.id,
            title=self.title,
            headline=headline,
            detail="At the limit the kernel first takes memory from cached files, which makes every read "
            "slower, and then ends a process: most often a loader worker or the training.",
            severity="critical" if is_critical else "warning",
            confidence=0.9,
            first_step=int(rank.steps[0]),
            last_step=int(rank.steps[-1]),
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(
                *([Evidence("in use", percent(value), "without cached files")] if worst.key == RATIO else []),
                *([Evidence("limit", size(min(limit)))] if limit else []),
                *([Evidence("threads wait for memory", percent(max(pressure)))] if pressure else []),
                *([Evidence("processes ended", f"{killed:.0f}", "for lack of memory")] if killed else []),
            ),
            chart=Chart((worst.key, "process/rss_bytes")),
            ruled_out=("Cached files: the kernel drops them when memory is needed.",),
            remedies=ADVICE,
            tries=("fewer loader workers", "a smaller prefetch_factor", "more memory"),
            how="The kernel counts the memory of the control group and the time that threads wait for "
            "memory. The median of the newest fifth of the readings counts.",
            refs=("https://docs.kernel.org/accounting/psi.html",),
        )


def _recent(figures: MachineFigures) -> float:
    """The median of the newest readings."""
    count = max(int(RECENT * len(figures.values)), 3)
    return float(np.median(figures.values[-count:]))
