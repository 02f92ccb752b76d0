"""Recognises steps that take longer and longer, and names the phase that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.robust import block_edges, block_medians
from stepscope.analysis.trends import Trend, is_jump, trend_of
from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy, severity_of
from stepscope.schema.keys import BATCH_SIZES, PHASES, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.schema.series import Buckets
    from stepscope.schema.window import Floats, RankWindow, Window

PHASE_KEYS = tuple(phase_key(name) for name in PHASES)
CLEAR = 3.0
"""Growth is to be so many times what the medians of blocks stray by: what wanders has a slope as well."""

MORE_WORK, NOT_MORE = 0.3, 0.05
"""Batches that grow by this share of what steps grow by explain it: time may grow with the square of a
length. Batches that grow by less than the second explain nothing."""

UNKNOWN_WORK = 0.049
"""Where the size of batches is not known, it is a notice at most: steps may be given more to do."""

MAX_BLOCKS = 48
MIN_BLOCKS = 8
MIN_IN_BLOCK = 5

DETACH = """\
losses.append(loss.item())                 # or loss.detach(): not loss, which keeps its whole graph"""

ADVICE: dict[str, tuple[Remedy, ...]] = {
    "data": (
        Remedy("Look for what the dataset or its transforms collect: a cache, a list, ever larger files."),
    ),
    "forward": (
        Remedy(
            "Keep no tensors that have a graph; states that are carried on must be detached.",
            DETACH,
            "PyTorch",
        ),
    ),
    "backward": (
        Remedy(
            "A graph that grows makes each backward pass longer: detach what is carried on.",
            DETACH,
            "PyTorch",
        ),
    ),
    "optimizer": (
        Remedy(
            "Look for parameter groups that are added again and again.", "print(len(optimizer.param_groups))"
        ),
    ),
    "checkpoint": (Remedy("Save the state alone, not what has been collected since the run began."),),
    "eval": (Remedy("Evaluate on a fixed set, and clear what metrics have collected.", "metric.reset()"),),
    "other": (
        Remedy(
            "Look for lists that grow in the loop, and for logs or plots that are drawn anew from all of it.",
            DETACH,
            "PyTorch",
        ),
    ),
}


class _Growth(NamedTuple):
    """How much longer a phase takes at the end of the window."""

    phase: str
    seconds: float
    trend: Trend


@dataclass(frozen=True)
class StepCreep(Detector):
    """Draws a line through the medians of blocks of steps."""

    id: ClassVar[str] = "step.creep"
    title: ClassVar[str] = "Steps take longer and longer"
    sentence: ClassVar[str] = (
        "the slope of step time over the window is above zero with certainty (Theil and Sen), makes up a "
        "share of it, is no jump, and is not matched by larger batches"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (*PHASE_KEYS, *BATCH_SIZES)
    courses: ClassVar[tuple[str, ...]] = (STEP_SECONDS, *BATCH_SIZES)
    min_steps: ClassVar[int] = 200

    growth: Annotated[float, Range(0.01)] = 0.05
    """How much longer the last step of the window must take than the first, as a share."""

    certainty: Annotated[float, Range(0.8, 0.9999)] = 0.99
    """How sure it must be that there is growth at all."""

    least_seconds: Annotated[float, Range(0)] = 0.0002
    """Growth of less than so many seconds is none."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Looks at the newest steps, then at all since the segment began; then at phases."""
        judged = self._judge(*_blocks(rank, STEP_SECONDS))
        if isinstance(judged, str) and STEP_SECONDS in rank.course:
            over_all = self._judge(*_since_the_beginning(rank.course[STEP_SECONDS]))
            judged = judged if isinstance(over_all, str) else over_all
        if isinstance(judged, str):
            return judged
        if _is_more_work(rank):
            return "Steps take longer as batches grow."
        return self._told(rank, window, judged)

    def _judge(self, x: Floats, y: Floats) -> Trend | str:
        """The line through step times where they creep; else why they do not."""
        whole = trend_of(x, y, self.certainty) if len(x) >= MIN_BLOCKS else None
        if whole is None or whole.low <= 0:
            return "No clear slowdown."
        grown = whole.end - whole.start
        if grown < CLEAR * whole.noise:
            return "Step time wanders as much as it grows."
        if whole.growth < self.growth or grown < self.least_seconds:
            return f"Step time grows by {percent(whole.growth)} only; {percent(self.growth)} would count."
        if is_jump(x, y) or not _rises_all_along(y):
            return "Step time rose by a jump rather than steadily."
        return whole

    def _trend(self, rank: RankWindow, key: str) -> Trend | None:
        x, y = _blocks(rank, key)
        return trend_of(x, y, self.certainty) if len(x) >= MIN_BLOCKS else None

    def _growths(self, rank: RankWindow) -> list[_Growth]:
        """What grows, most first; a phase that was not timed at enough steps is left out."""
        found = []
        for phase, key in zip(PHASES, PHASE_KEYS, strict=True):
            if key in rank.columns and int(rank.where(key).sum()) >= 40:
                trend = self._trend(rank, key)
                if trend is not None and trend.low > 0:
                    found.append(_Growth(phase, trend.end - trend.start, trend))
        return sorted(found, key=lambda one: -one.seconds)

    def _told(self, rank: RankWindow, window: Window, whole: Trend) -> Finding:
        chosen = rank.where(STEP_SECONDS)
        times = rank.times[chosen]
        first, last = round(whole.begin), int(rank.steps[chosen][-1])
        grown = whole.end - whole.start
        growths = self._growths(rank)
        phase = growths[0].phase if growths and growths[0].seconds >= 0.3 * grown else None
        # Half of what has been added is what a step of the stretch takes longer on average.
        lost = 0.5 * grown / (whole.start + 0.5 * grown)
        where = f", most of it in {phase}" if phase else ""
        is_known = rank.first_of(BATCH_SIZES) is not None
        unknown = "" if is_known else "; the size of batches is not recorded, so they may do more"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Steps take {percent(whole.growth)} longer than {last - first:,} steps ago"
            f"{where}{unknown}.",
            detail=f"From {seconds(whole.start)} to {seconds(whole.end)} a step. Something grows with the "
            "run: a list, a graph that is carried on, a cache, files. It goes on growing.",
            severity=severity_of(lost if is_known else min(lost, UNKNOWN_WORK)),
            confidence=min(0.95, 0.6 + 0.35 * min(whole.low / whole.slope, 1.0)),
            share=lost,
            first_step=first,
            last_step=last,
            first_time=float(times[0]),
            last_time=float(times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            evidence=(
                Evidence("step at the beginning", seconds(whole.start), f"step {first:,}"),
                Evidence("step at the end", seconds(whole.end), f"step {last:,}"),
                Evidence(
                    "growth in 1,000 steps",
                    seconds(1000 * whole.slope),
                    f"at {self.certainty:.0%}: {seconds(1000 * whole.low)} to {seconds(1000 * whole.high)}",
                ),
                *(Evidence(f"growth of {one.phase}", seconds(one.seconds)) for one in growths[:4]),
            ),
            chart=Chart((STEP_SECONDS, *(phase_key(one.phase) for one in growths[:3])), first, last),
            ruled_out=(
                "Warm-up: those steps are left out, and would fall.",
                "A jump, as when something else began on the machine: a line tells the times better.",
                *(("Larger batches: their size does not grow as much.",) if is_known else ()),
            ),
            remedies=ADVICE.get(phase or "other", ADVICE["other"]),
            tries=(f"look at what grows in {phase}" if phase else "look for what grows in the loop",),
            estimate=Estimate(0.5 * lost, lost, min(whole.growth / (1 + whole.growth), 1.0)),
            how="A line through the medians of blocks of steps, or their means since the segment began: the "
            "median of the slopes between all pairs of them (Theil and Sen), with bounds by rank.",
        )


def _blocks(rank: RankWindow, key: str) -> tuple[Floats, Floats]:
    """Blocks of steps: where each lies, and its median."""
    chosen = rank.where(key)
    values = rank.columns[key].values[chosen]
    edges = block_edges(len(values), MAX_BLOCKS, MIN_IN_BLOCK)
    return block_medians(rank.steps[chosen].astype(np.float64), edges), block_medians(values, edges)


def _since_the_beginning(course: Buckets) -> tuple[Floats, Floats]:
    """Where the buckets of a whole segment lie, and their means; the first holds the warm-up."""
    known = np.isfinite(course.mean) & (course.count > 0)
    known[:1] = False
    return course.starts[known].astype(np.float64), course.mean[known]


def _is_more_work(rank: RankWindow) -> bool:
    """Whether batches have grown about as steps have, in the window or since the beginning."""
    key = rank.first_of(BATCH_SIZES)
    if key is None:
        return False
    pairs = [tuple(rank.columns[one].values[rank.columns[one].finite] for one in (key, STEP_SECONDS))]
    if key in rank.course and STEP_SECONDS in rank.course:
        courses = [rank.course[one].mean for one in (key, STEP_SECONDS)]
        pairs.append(tuple(one[np.isfinite(one)] for one in courses))
    grown = [(_growth(sizes), _growth(seconds)) for sizes, seconds in pairs]
    return any(work >= NOT_MORE and work >= MORE_WORK * longer for work, longer in grown)


def _growth(sizes: Floats) -> float:
    """By how much the last third is above the first, as a share."""
    if len(sizes) < 9:
        return 0.0
    first, _, last = (float(np.median(one)) for one in np.array_split(sizes, 3))
    return last / first - 1 if first > 0 else 0.0


def _rises_all_along(y: Floats) -> bool:
    """Whether each third lies above the one before."""
    thirds = [float(np.median(one)) for one in np.array_split(y, 3)]
    return thirds[0] < thirds[1] < thirds[2]
