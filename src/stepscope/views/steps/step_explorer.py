"""Steps one by one: bars by phase, the slowest steps and why, the distribution of step times."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import OVERHEAD_RATIO, SAMPLED_RATIO, phase_key
from stepscope.views.json_values import clean
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.steps.phase_breakdown import phase_names
from stepscope.views.steps.step_marks import StepMarks
from stepscope.views.steps.step_values import MAX_STEPS, NO_VALUES, step_seconds, step_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.steps.step_values import StepValues

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MAX_BARS = 400
MAX_SLOWEST = 20
MAX_RANKS = 64
BINS = 40
MAX_TAIL_RATIO = 3
"""If the 99th percentile is farther out than this many times the 95th, the bins end at the 95th."""

OTHER = "other"
"""The phase that only fully timed steps have."""

NOT_TIMED = "phases not timed"
"""The label for the rest of a step whose phases were not all timed."""

MIN_SLOW_PHASE_SHARE = 0.5
"""A phase explains a slow step if it has at least this share of the excess time."""


@dataclass(frozen=True)
class StepBar:
    """One step; a step that was not sampled has only some of its phases."""

    step: int
    time: float
    seconds: float
    phases: dict[str, float]
    marks: tuple[str, ...]


@dataclass(frozen=True)
class SlowStep:
    """One of the slowest steps."""

    step: int
    rank: int
    time: float
    seconds: float
    ratio_to_median: float
    worst_phase: str | None
    """The phase that took longer than usual; None if no phase explains the excess, or if it is not known."""
    marks: tuple[str, ...]


@dataclass(frozen=True)
class HistogramBar:
    """The number of steps with a duration between `low` and `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of step times, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class StepWindow:
    """A range of steps of one rank; the slowest steps are of all ranks if no rank was given."""

    from_: int
    """The first step of the range."""
    to: int
    bars: tuple[StepBar, ...]
    """At most 400, sampled evenly; the slowest are always kept."""
    phase_order: tuple[str, ...]
    slowest: tuple[SlowStep, ...]
    histogram: tuple[HistogramBar, ...]
    percentiles: Percentiles | None
    count: int
    ranks: tuple[int, ...]
    sampled_ratio: float | None
    """The share of steps with all phases; None if all steps have them."""
    overhead_ratio: float | None
    """The share of training time that recording took, over the whole run; None if it is not known."""


def steps_of(
    run: Run, low: int | None = None, high: int | None = None, rank: int | None = None
) -> StepWindow:
    """Returns a range of steps of a run; the newest of them if there are too many."""
    summaries = SeriesSummaries(run.summaries())
    key = summaries.step_key()
    ranks = summaries.ranks(key) if key is not None else []
    ranks_read = [rank] if rank is not None else ranks[:MAX_RANKS]
    if high is not None and (low is None or high - low >= MAX_STEPS):
        low = high - MAX_STEPS + 1 if low is None else max(low, high - MAX_STEPS + 1)
    seconds_by_rank = {
        rank_number: step_seconds(run, summaries, rank_number, low, high) for rank_number in ranks_read
    }
    first = next((rank_number for rank_number in ranks_read if len(seconds_by_rank[rank_number])), None)
    if first is None:
        begin = low or 0
        return StepWindow(
            begin, begin if high is None else high, (), (), (), (), None, 0, tuple(ranks), None, None
        )
    names = phase_names(summaries.keys)
    begin, end = int(seconds_by_rank[first].steps[0]), int(seconds_by_rank[first].steps[-1])
    window = _Window(run, names, first, seconds_by_rank[first])
    shown = seconds_by_rank[first].values
    bars = window.bars()
    order = (*names, NOT_TIMED) if any(NOT_TIMED in bar.phases for bar in bars) else tuple(names)
    return StepWindow(
        from_=begin if low is None else max(low, begin),
        to=end if high is None else min(high, end),
        bars=bars,
        phase_order=order,
        slowest=_slowest(run, names, seconds_by_rank, window),
        histogram=_histogram(shown),
        percentiles=_percentiles(shown),
        count=len(shown),
        ranks=tuple(ranks),
        sampled_ratio=_sampled_ratio(summaries, first),
        overhead_ratio=_mean(summaries, OVERHEAD_RATIO),
    )


class _Window:
    """The steps of one rank, with the phases of each."""

    def __init__(self, run: Run, names: list[str], rank: int, seconds: StepValues) -> None:
        self.rank, self.seconds = rank, seconds
        low, high = (int(seconds.steps[0]), int(seconds.steps[-1])) if len(seconds) else (0, 0)
        self._phases = {name: step_values(run, phase_key(name), rank, low, high) for name in names}
        self.marks = StepMarks(run, rank, low, high)

    @functools.cached_property
    def _typical(self) -> dict[str, float]:
        """The median of each phase."""
        return {name: float(np.median(values.values)) for name, values in self._phases.items() if len(values)}

    def bars(self) -> tuple[StepBar, ...]:
        positions = self._drawn_steps()
        steps, times = self.seconds.steps[positions], self.seconds.times[positions]
        columns = {name: values.at(steps) for name, values in self._phases.items()}
        bars = []
        for index, position in enumerate(positions.tolist()):
            phases = {
                clean(name, 200): float(column[index])
                for name, column in columns.items()
                if np.isfinite(column[index]) and column[index] > 0
            }
            step, seconds = int(steps[index]), float(self.seconds.values[position])
            if OTHER in columns and not np.isfinite(columns[OTHER][index]):
                phases[NOT_TIMED] = max(seconds - sum(phases.values()), 0.0)
            bars.append(
                StepBar(step, float(times[index]), seconds, phases, self.marks.of(step, seconds, phases))
            )
        return tuple(bars)

    def slow(self, position: int, median: float) -> SlowStep:
        step, seconds = int(self.seconds.steps[position]), float(self.seconds.values[position])
        at = np.array([step])
        phases = {name: float(values.at(at)[0]) for name, values in self._phases.items()}
        return SlowStep(
            step,
            self.rank,
            float(self.seconds.times[position]),
            seconds,
            seconds / median if median > 0 else 1.0,
            self._slow_phase(phases, seconds - median),
            self.marks.of(
                step,
                seconds,
                {name: phase_seconds for name, phase_seconds in phases.items() if phase_seconds > 0},
            ),
        )

    def _slow_phase(self, phases: dict[str, float], excess: float) -> str | None:
        if excess <= 0:
            return None
        over = {
            name: seconds - self._typical[name] for name, seconds in phases.items() if np.isfinite(seconds)
        }
        worst = max(over, key=lambda name: over[name], default=None)
        return worst if worst is not None and over[worst] >= MIN_SLOW_PHASE_SHARE * excess else None

    def _drawn_steps(self) -> Ints:
        """Returns the steps to draw: evenly spread, preferably with all phases, and all of the slowest."""
        count = len(self.seconds)
        if count <= MAX_BARS:
            return np.arange(count)
        slowest = np.argpartition(self.seconds.values, -MAX_SLOWEST)[-MAX_SLOWEST:]
        slots = MAX_BARS - MAX_SLOWEST
        edges = np.linspace(0, count, slots + 1).astype(np.int64)
        drawn = edges[:-1].copy()
        fully_timed = self._fully_timed()
        if len(fully_timed):
            next_timed = np.minimum(np.searchsorted(fully_timed, edges[:-1]), len(fully_timed) - 1)
            candidates = fully_timed[next_timed]
            fits = (candidates >= edges[:-1]) & (candidates < edges[1:])
            drawn[fits] = candidates[fits]
        return np.unique(np.r_[drawn, slowest])

    def _fully_timed(self) -> Ints:
        """Returns the positions of steps with all phases; empty if all steps have them."""
        least_timed = min(
            (values for values in self._phases.values() if len(values)), key=len, default=NO_VALUES
        )
        positions: Ints = np.flatnonzero(np.isin(self.seconds.steps, least_timed.steps))
        return positions if len(positions) < len(self.seconds) else np.empty(0, np.int64)


def _slowest(
    run: Run, names: list[str], seconds_by_rank: dict[int, StepValues], window: _Window
) -> tuple[SlowStep, ...]:
    """Returns the slowest steps of all ranks read, compared with the median of all."""
    all_seconds = np.concatenate([seconds.values for seconds in seconds_by_rank.values()])
    median = float(np.median(all_seconds))
    candidates: list[tuple[float, int, int]] = []
    for rank, seconds in seconds_by_rank.items():
        count = min(MAX_SLOWEST, len(seconds))
        positions = np.argsort(seconds.values)[-count:] if count else np.empty(0, np.int64)
        candidates += [(float(seconds.values[position]), rank, position) for position in positions.tolist()]
    candidates.sort(key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))
    windows = {window.rank: window}
    slowest = []
    for _, rank, position in candidates[:MAX_SLOWEST]:
        if rank not in windows:
            windows[rank] = _Window(run, names, rank, seconds_by_rank[rank])
        slowest.append(windows[rank].slow(position, median))
    return tuple(slowest)


def _histogram(values: Floats) -> tuple[HistogramBar, ...]:
    """Returns even bins up to a little beyond the 99th percentile; the last bin ends at the slowest step.

    The bins end at the 95th percentile if the 99th is far away: a few slow steps would put all others into
    one bin.
    """
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return (HistogramBar(low, high, len(values)),)
    p95, p99 = np.percentile(values, [95, 99]).tolist()
    typical = p95 if p95 > low and p99 - low > MAX_TAIL_RATIO * (p95 - low) else p99
    near = min(high, low + 1.25 * (typical - low))
    top = near if near > low else high
    edges = np.linspace(low, top, BINS + 1)
    if top < high:
        edges = np.r_[edges, high]
    counts, _ = np.histogram(values, edges)
    return tuple(
        HistogramBar(float(begin), float(end), int(count))
        for begin, end, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )


def _percentiles(values: Floats) -> Percentiles:
    p50, p90, p95, p99 = np.percentile(values, [50, 90, 95, 99]).tolist()
    return Percentiles(p50, p90, p95, p99, float(values.max()))


def _mean(summaries: SeriesSummaries, key: str) -> float | None:
    total, points = summaries.total(key)
    return total / points if points else None


def _sampled_ratio(summaries: SeriesSummaries, rank: int) -> float | None:
    """Returns the share of steps with all phases; None if all steps have them."""
    sampled = sum(summary.points for summary in summaries.logged(SAMPLED_RATIO, rank))
    key = summaries.step_key()
    steps = sum(summary.points for summary in summaries.logged(key, rank)) if key is not None else 0
    return sampled / steps if 0 < sampled < steps else None
