"""Detects steps that slow down over time, and names the phase that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.robust import block_edges, block_medians
from stepscope.analysis.trends import Trend, is_line, rise_of, trend_of
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
"""Growth must be at least this factor of the noise of block medians: noise alone has a slope as well."""

MORE_WORK, NOT_MORE = 0.3, 0.05
"""Larger batches explain slower steps if their growth is this share of the growth of step time (time may grow
with the square of a length) and at least the second value."""

UNKNOWN_WORK = 0.049
"""If the batch size is unknown the severity is notice at most: steps may have more work to do."""

FIRST_STEPS, MIN_SAMPLES, NEARLY_ALWAYS = 20, 8, 0.85
"""A phase rises nearly always if, of all pairs of its samples after the first steps, the later one is greater
so much more often than the earlier one (Kendall's tau). Three levels with jumps between them reach 0.75."""

MAX_BLOCKS = 48
MIN_BLOCKS = 8
MIN_IN_BLOCK = 5

DETACH = """\
losses.append(loss.item())                 # or loss.detach(); loss itself keeps its whole graph"""

ADVICE: dict[str, tuple[Remedy, ...]] = {
    "data": (
        Remedy("Look for something that grows in the dataset or its transforms: a cache, a list, files."),
    ),
    "forward": (
        Remedy(
            "Keep no tensors that have a graph; detach states that are carried to the next step.",
            DETACH,
            "PyTorch",
        ),
    ),
    "backward": (
        Remedy(
            "A growing graph makes each backward pass longer: detach what is carried to the next step.",
            DETACH,
            "PyTorch",
        ),
    ),
    "optimizer": (
        Remedy("Look for parameter groups that are added repeatedly.", "print(len(optimizer.param_groups))"),
    ),
    "checkpoint": (Remedy("Save only the state, not everything collected since the start of the run."),),
    "eval": (Remedy("Evaluate on a fixed set, and reset metrics before each evaluation.", "metric.reset()"),),
    "other": (
        Remedy(
            "Look for lists that grow in the loop, and for logs or plots that redraw the whole history.",
            DETACH,
            "PyTorch",
        ),
    ),
}


class _Growth(NamedTuple):
    """How much longer a phase takes at the end of the window than at its beginning."""

    phase: str
    seconds: float
    trend: Trend


@dataclass(frozen=True)
class StepCreep(Detector):
    """Fits a line to the medians of blocks of steps."""

    id: ClassVar[str] = "step.creep"
    title: ClassVar[str] = "Steps slow down over time"
    sentence: ClassVar[str] = (
        "the slope of step time (Theil-Sen) is above zero with high confidence and adds a share to the step "
        "time, steadily rather than in jumps, and not because of larger batches"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (*PHASE_KEYS, *BATCH_SIZES)
    courses: ClassVar[tuple[str, ...]] = (STEP_SECONDS, *BATCH_SIZES)
    min_steps: ClassVar[int] = 200

    growth: Annotated[float, Range(0.01)] = 0.05
    """Minimum growth of step time from the first to the last step of the window, as a share."""

    certainty: Annotated[float, Range(0.8, 0.9999)] = 0.99
    """Confidence level of the slope."""

    least_seconds: Annotated[float, Range(0)] = 0.0002
    """Minimum growth of step time in seconds."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest steps, then the whole segment."""
        trend = self._slowdown(*_blocks(rank, STEP_SECONDS), rank)
        if isinstance(trend, str) and STEP_SECONDS in rank.course:
            whole_segment = self._slowdown(*_course_means(rank.course[STEP_SECONDS]))
            trend = trend if isinstance(whole_segment, str) else whole_segment
        if isinstance(trend, str):
            return trend
        if _is_more_work(rank):
            return "Steps take longer because batches grow."
        return self._finding(rank, window, trend)

    def _slowdown(self, x: Floats, y: Floats, rank: RankWindow | None = None) -> Trend | str:
        """Returns the line through step times that slow down, or a sentence that says why they do not."""
        trend = trend_of(x, y, self.certainty) if len(x) >= MIN_BLOCKS else None
        if trend is None or trend.slope.low <= 0:
            return "No clear slowdown."
        grown = trend.end - trend.start
        if grown < CLEAR * trend.noise:
            return "Step time varies as much as it grows."
        if trend.growth < self.growth or grown < self.least_seconds:
            return f"Step time grows by {percent(trend.growth)}; threshold: {percent(self.growth)}."
        is_steady = is_line(x, y) and _rises_all_along(y)
        # The speed of the processor may change in jumps while one phase becomes longer all along.
        if not is_steady and not any(growth.seconds >= 0.5 * grown for growth in _rising(rank)):
            return "Step time rose in jumps, not steadily."
        return trend

    def _trend(self, rank: RankWindow, key: str) -> Trend | None:
        x, y = _blocks(rank, key)
        return trend_of(x, y, self.certainty) if len(x) >= MIN_BLOCKS else None

    def _growths(self, rank: RankWindow) -> list[_Growth]:
        """Returns the phases that grow, the largest growth first, without those timed in too few steps."""
        growths = []
        for phase, key in zip(PHASES, PHASE_KEYS, strict=True):
            if key in rank.columns and int(rank.where(key).sum()) >= 40:
                trend = self._trend(rank, key)
                if trend is not None and trend.slope.low > 0:
                    growths.append(_Growth(phase, trend.end - trend.start, trend))
        return sorted(growths, key=lambda growth: -growth.seconds)

    def _finding(self, rank: RankWindow, window: Window, whole: Trend) -> Finding:
        chosen = rank.where(STEP_SECONDS)
        times = rank.times[chosen]
        first, last = round(whole.begin), int(rank.steps[chosen][-1])
        grown, per_thousand = whole.end - whole.start, whole.slope.times(1000)
        growths = self._growths(rank) or _rising(rank)
        phase = growths[0].phase if growths and growths[0].seconds >= 0.3 * grown else None
        # On average, a step of the window takes half of the total growth longer.
        lost = 0.5 * grown / (whole.start + 0.5 * grown)
        where = f", most of it in {phase}" if phase else ""
        is_known = rank.first_of(BATCH_SIZES) is not None
        unknown = "" if is_known else "; batch size is not recorded, so steps may do more work"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"Steps take {percent(whole.growth)} longer than {last - first:,} steps ago"
            f"{where}{unknown}.",
            detail=f"Step time grew from {seconds(whole.start)} to {seconds(whole.end)}. Something grows "
            "with the run, such as a list, a graph that is kept between steps, a cache or files.",
            severity=severity_of(lost if is_known else min(lost, UNKNOWN_WORK)),
            confidence=min(0.95, 0.6 + 0.35 * min(whole.slope.low / whole.slope.value, 1.0)),
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
                    seconds(per_thousand.value),
                    f"at {self.certainty:.0%}: {seconds(per_thousand.low)} to {seconds(per_thousand.high)}",
                ),
                *(Evidence(f"growth of {growth.phase}", seconds(growth.seconds)) for growth in growths[:4]),
            ),
            chart=Chart((STEP_SECONDS, *(phase_key(growth.phase) for growth in growths[:3])), first, last),
            ruled_out=(
                "The warm-up: its steps are left out.",
                "Jumps, as when another process starts on the machine: a line fits the times better.",
                *(("Larger batches: their size does not grow as much.",) if is_known else ()),
            ),
            remedies=ADVICE.get(phase or "other", ADVICE["other"]),
            tries=(f"look at what grows in {phase}" if phase else "look for what grows in the loop",),
            estimate=Estimate(0.5 * lost, lost, min(whole.growth / (1 + whole.growth), 1.0)),
            how="Theil-Sen line through the medians of blocks of steps, or through means since the start of "
            "the segment: the median of the slopes between all pairs, with a rank-based interval.",
        )


def _rising(rank: RankWindow | None) -> list[_Growth]:
    """Returns phases whose sampled times rise nearly without exception, the largest growth first."""
    growths = []
    for phase, key in zip(PHASES, PHASE_KEYS, strict=True):
        if rank is None or key not in rank.columns:
            continue
        chosen = rank.where(key)
        chosen[:FIRST_STEPS] = False
        x, y = rank.steps[chosen].astype(np.float64), rank.columns[key].values[chosen]
        if not MIN_SAMPLES <= len(x) <= MAX_BLOCKS:
            x, y = _blocks(rank, key)
        trend = trend_of(x, y) if len(x) >= MIN_SAMPLES else None
        if trend is not None and rise_of(y) >= NEARLY_ALWAYS:
            growths.append(_Growth(phase, trend.end - trend.start, trend))
    return sorted(growths, key=lambda growth: -growth.seconds)


def _blocks(rank: RankWindow, key: str) -> tuple[Floats, Floats]:
    """Returns the position and the median of each block of steps."""
    chosen = rank.where(key)
    values = rank.columns[key].values[chosen]
    edges = block_edges(len(values), MAX_BLOCKS, MIN_IN_BLOCK)
    return block_medians(rank.steps[chosen].astype(np.float64), edges), block_medians(values, edges)


def _course_means(course: Buckets) -> tuple[Floats, Floats]:
    """Returns positions and means of the buckets of a segment, without the first, which has the warm-up."""
    known = np.isfinite(course.mean) & (course.count > 0)
    known[:1] = False
    return course.starts[known].astype(np.float64), course.mean[known]


def _is_more_work(rank: RankWindow) -> bool:
    """Whether batches have grown about as much as step time, in the window or since the beginning."""
    key = rank.first_of(BATCH_SIZES)
    if key is None:
        return False
    columns = [rank.columns[name] for name in (key, STEP_SECONDS)]
    pairs = [tuple(column.values[column.finite] for column in columns)]
    if key in rank.course and STEP_SECONDS in rank.course:
        means = [rank.course[name].mean for name in (key, STEP_SECONDS)]
        pairs.append(tuple(values[np.isfinite(values)] for values in means))
    grown = [(_growth(sizes), _growth(seconds)) for sizes, seconds in pairs]
    return any(work >= NOT_MORE and work >= MORE_WORK * longer for work, longer in grown)


def _growth(values: Floats) -> float:
    """Returns how much the last third is above the first, as a share."""
    if len(values) < 9:
        return 0.0
    first, _, last = (float(np.median(third)) for third in np.array_split(values, 3))
    return last / first - 1 if first > 0 else 0.0


def _rises_all_along(y: Floats) -> bool:
    """Whether each third is above the one before."""
    thirds = [float(np.median(third)) for third in np.array_split(y, 3)]
    return thirds[0] < thirds[1] < thirds[2]
