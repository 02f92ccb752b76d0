"""Judges the effect of each phase of a run's learning-rate schedule on the loss, compared with its noise."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepscope.analysis.robust import autocorrelation, block_edges, block_medians, spread
from stepscope.analysis.trends import slope_of
from stepscope.schema.keys import LEARNING_RATE, LOSS_KEYS
from stepscope.views.schedule.rate_phases import rate_phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.schedule.rate_phases import Kind, RatePhase, Shape

    Floats = NDArray[np.float64]
    Logged = tuple[NDArray[np.int64], Floats]
    """Steps and values."""

MAX_PHASES = 60
MAX_VALUE = 1e100
"""Losses that are not below this are not used: NaN, infinite, or diverged."""
MIN_LOSSES, MIN_FOR_HALVES = 10, 80
"""Minimum number of losses to judge a change, and to judge the second half of a phase separately."""
WINDOW, MIN_IN_WINDOW, MAX_BLOCKS = 0.1, 20, 30
"""The level is that of the last 10% of a phase, of at least 20 losses and at most half of the phase."""
MAX_CORRELATION = 0.98
CERTAIN, LIKELY = 0.99, 0.95
"""Confidence from which a change is stated as a fact, and as likely."""
NEAR_MAX_RATIO = 0.9
"""A phase whose mean rate is at least this share of the maximum has the highest rate."""
NO_VALUES = (np.empty(0, np.int64), np.empty(0))
NO_RATE = (
    "no learning_rate was logged: pass it with each step, as "
    "log_training_step(loss=loss, learning_rate=rate) or with optimizer=optimizer"
)
ONE_READING = "learning_rate was logged for one step only, which is not a schedule: log it with each step"
RESTARTED_STEPS = (
    "step numbers restart several times and do not identify a step: pass step= with a count over the run"
)


@dataclass(frozen=True)
class SchedulePhase:
    """A phase of a schedule, and its effect on the loss."""

    kind: Kind
    shape: Shape | None
    """None if it is not known."""
    cycle: int | None
    """None if the rate is not raised again."""
    first_step: int
    last_step: int
    first_rate: float
    last_rate: float
    losses: int
    """The number of finite losses."""
    loss_before: float | None
    """The level at the end of the previous phase, not a single loss."""
    loss_after: float | None
    improvement: float | None
    improvement_ratio: float | None
    """Its share of the improvement of the whole run; None if that is not certain."""
    steps_ratio: float
    """Its share of all steps."""
    per_thousand_steps: float | None
    """Improvement per thousand steps."""
    noise: float | None
    """Standard deviation of single losses from their trend."""
    confidence: float | None
    """The confidence that the loss changed at all; None for too few losses to judge."""
    verdict: str

    @property
    def label(self) -> str:
        """The name that is shown."""
        shaped = self.kind if self.shape is None else f"{self.shape} {self.kind}"
        return shaped if self.cycle is None else f"{shaped} {self.cycle}"


@dataclass(frozen=True)
class Schedule:
    """The phases of a learning-rate schedule, and their effect on the loss."""

    name: str = ""
    """The kind of schedule, in a few words."""
    phases: tuple[SchedulePhase, ...] = ()
    loss_key: str | None = None
    improvement: float | None = None
    """Improvement of the whole run."""
    confidence: float | None = None
    why: str = ""
    """Why there is no result; empty if there is one."""
    notes: tuple[str, ...] = ()
    """What was left out."""

    def described(self) -> dict[str, Any]:
        """Returns the schedule as plain dictionaries, for JSON."""
        phases = [{"label": phase.label, **asdict(phase)} for phase in self.phases]
        return {**asdict(self), "phases": phases}


class _Course(NamedTuple):
    """One value for each step, in order."""

    steps: Floats
    values: Floats

    def between(self, first: float, last: float) -> _Course:
        begin, end = np.searchsorted(self.steps, [first, last + 1])
        return _Course(self.steps[begin:end], self.values[begin:end])

    def finite(self) -> _Course:
        known = np.abs(self.values) < MAX_VALUE
        return _Course(self.steps[known], self.values[known])


class _Change(NamedTuple):
    """How much the loss fell, and the confidence that this is not noise alone."""

    fell: float
    confidence: float


class _Level(NamedTuple):
    """The level of the loss, with its standard error."""

    value: float
    error: float

    def change_to(self, after: _Level) -> _Change:
        fell, error = self.value - after.value, math.hypot(self.error, after.error)
        rounding = 1e-12 * max(abs(self.value), abs(after.value))
        if error <= rounding:
            return _Change(fell, 1.0 if abs(fell) > rounding else 0.0)
        return _Change(fell, 2 * NormalDist().cdf(abs(fell) / error) - 1)


class _Effect(NamedTuple):
    """The finite losses of a phase, and their levels before it, after its first half, and at its end."""

    losses: _Course
    noise: float
    before: _Level
    middle: _Level
    after: _Level

    @property
    def change(self) -> _Change | None:
        """None for too few losses to judge."""
        return self.before.change_to(self.after) if len(self.losses.steps) >= MIN_LOSSES else None


def schedule_of(run: Run, rank: int | None = None) -> Schedule:
    """Returns the schedule of a run as one rank logged it: a given one, otherwise the first that has it.

    If a segment repeats steps, only the repeated ones count.
    """
    ranks = {known.key: known.ranks for known in run.keys()}
    loss_key = next((key for key in LOSS_KEYS if key in ranks), None)
    if LEARNING_RATE not in ranks:
        return Schedule(loss_key=loss_key, why=NO_RATE)
    rates, losses = (
        _logged(run, key, min(ranks[key]) if rank is None else rank) if key else NO_VALUES
        for key in (LEARNING_RATE, loss_key)
    )
    for steps, _ in (rates, losses):
        if (np.diff(steps) < 0).sum() >= 2 and 2 * len(np.unique(steps)) < len(steps):
            return Schedule(loss_key=loss_key, why=RESTARTED_STEPS)
    return schedule_from(rates, losses, loss_key)


def _logged(run: Run, key: str, rank: int) -> Logged:
    """Returns what all segments logged; each is cut where a later one begins."""
    steps, values = NO_VALUES
    for segment in run.segments:
        points = run.series(key, rank, segment.id)
        kept = steps < points.steps.min(initial=np.iinfo(np.int64).max)
        steps, values = np.r_[steps[kept], points.steps], np.r_[values[kept], points.values]
    return steps, values


def schedule_from(rates: Logged, losses: Logged, loss_key: str | None = "loss") -> Schedule:
    """Returns the schedule for steps and values of a rate and a loss; the last value of a step counts."""
    course, all_losses = _in_order(*rates).finite(), _in_order(*losses)
    if len(course.steps) < 2:
        return Schedule(loss_key=loss_key, why=ONE_READING if len(course.steps) else NO_RATE)
    phases = rate_phases(*course)
    if len(phases) > MAX_PHASES:
        why = f"the rate turns {len(phases) - 1} times: at most {MAX_PHASES} phases are shown"
        return Schedule(loss_key=loss_key, why=why)
    max_distance = float(np.diff(course.steps).max())
    near = all_losses.between(course.steps[0] - max_distance, course.steps[-1] + max_distance)
    left_out = len(all_losses.steps) - len(near.steps)
    notes = (f"{left_out:,} losses are left out: no rate was logged near them",) if left_out else ()
    if loss_key is None:
        notes = ("no loss was logged, so only the rate is shown",)
    judged, whole = _judged(phases, course, near)
    improvement, confidence = (None, None) if whole is None else whole
    return Schedule(_name(judged), judged, loss_key, improvement, confidence, notes=notes)


def _in_order(steps: NDArray[np.int64], values: Floats) -> _Course:
    """Returns the values by step, each step once."""
    order = np.argsort(steps, kind="stable")
    newest = order[np.diff(steps[order], append=np.inf) != 0]
    return _Course(steps[newest].astype(np.float64), values[newest])


def _judged(
    phases: Sequence[RatePhase], rates: _Course, losses: _Course
) -> tuple[tuple[SchedulePhase, ...], _Change | None]:
    """Returns the judged phases, and the change over the whole run; None for too few losses."""
    ends = [rates.steps[0], rates.steps[-1], *losses.steps[:1], *losses.steps[-1:]]
    begins = [int(min(ends)), *(int(rates.steps[phase.first]) for phase in phases[1:]), int(max(ends)) + 1]
    finite = losses.finite()
    effects = _effects(begins, finite)
    whole = None
    if len(finite.steps) >= MIN_LOSSES:
        known = [effect for effect in effects if effect is not None]
        whole = known[0].before.change_to(known[-1].after)
    gain = whole.fell if whole is not None and whole.fell > 0 and whole.confidence >= CERTAIN else None
    judged = []
    for phase, effect, (first, end) in zip(phases, effects, pairwise(begins), strict=True):
        change = None if effect is None else effect.change
        improvement = None if effect is None else effect.before.value - effect.after.value
        ratio = None if improvement is None or gain is None else improvement / gain
        steps_ratio = (end - first) / (begins[-1] - begins[0])
        clauses = (
            _effect_clause(effect, ratio, steps_ratio),
            _second_half_clause(effect),
            _too_high_clause(change, rates.values[phase.first : phase.last + 1], rates.values),
            _not_finite_clause(losses.between(first, end - 1), rates),
        )
        judged.append(
            SchedulePhase(
                kind=phase.kind,
                shape=phase.shape,
                cycle=phase.cycle,
                first_step=first,
                last_step=end - 1,
                first_rate=float(rates.values[phase.first]),
                last_rate=float(rates.values[phase.last]),
                losses=0 if effect is None else len(effect.losses.steps),
                loss_before=None if effect is None else effect.before.value,
                loss_after=None if effect is None else effect.after.value,
                improvement=improvement,
                improvement_ratio=ratio,
                steps_ratio=steps_ratio,
                per_thousand_steps=None if improvement is None else 1000 * improvement / (end - first),
                noise=None if effect is None else effect.noise,
                confidence=None if change is None else change.confidence,
                verdict="; ".join(filter(None, clauses)),
            )
        )
    return tuple(judged), whole


def _effects(begins: Sequence[int], finite: _Course) -> list[_Effect | None]:
    """Returns the effect of each phase, which starts at the level at which the previous one ended."""
    correlation = _correlation(finite.values)
    effects: list[_Effect | None] = []
    level: _Level | None = None
    for first, end in pairwise(begins):
        known = finite.between(first, end - 1)
        if not len(known.steps):
            effects.append(None)
            continue
        moves = np.diff(known.values if len(known.steps) >= MIN_LOSSES else finite.values)
        noise = _spread(moves) / math.sqrt(2 * (1 - correlation))
        reverse = _Course(-known.steps[::-1], known.values[::-1])
        half = _Course(*(part[: (len(part) + 1) // 2] for part in known))
        before = level or _level_at_end(reverse, noise, correlation)
        middle, level = (_level_at_end(part, noise, correlation) for part in (half, known))
        effects.append(_Effect(known, noise, before, middle, level))
    return effects


def _correlation(losses: Floats) -> float:
    """Returns the correlation of losses with the previous ones, from their differences, without a trend.

    Neighbouring differences of losses with a correlation c have one of (c - 1) / 2.
    """
    moves = np.diff(losses)
    if len(moves) < MIN_LOSSES or not (size := _spread(moves)):
        return 0.0
    moves = np.clip((moves - np.median(moves)) / size, -4, 4)  # a spike would hide the correlation
    return min(max(1 + 2 * float(moves[1:] @ moves[:-1]) / float(moves @ moves), 0.0), MAX_CORRELATION)


def _level_at_end(losses: _Course, noise: float, correlation: float) -> _Level:
    """Returns the level at the last step; a clear trend of the loss is followed to the end."""
    count = len(losses.steps)
    size = min(max(int(count * WINDOW), MIN_IN_WINDOW), max(count // 2, 1))
    edges = block_edges(min(2 * size, count), MAX_BLOCKS, 1)
    x, y = (block_medians(part[-2 * size :], edges) for part in losses)
    slope = slope_of(x, y)
    residuals = y if slope is None else y - slope.value * (x - losses.steps[-1])
    middle = len(y) // 2
    within = _error(_spread(residuals), min(autocorrelation(residuals), MAX_CORRELATION), len(y) - middle)
    error = max(_error(noise, correlation, size), within)
    if slope is None or slope.low <= 0 <= slope.high:
        return _Level(float(np.median(y[middle:])), error)
    # Following the trend for half a window adds the error of the slope.
    return _Level(float(np.median(residuals[middle:])), math.sqrt(2.5) * error)


def _error(noise: float, correlation: float, count: int) -> float:
    """Returns the standard error of the median of so many losses, 25% larger than that of the mean."""
    independent = count * (1 - correlation) / (1 + correlation)
    return 1.25 * noise / math.sqrt(max(independent, 1.0))


def _spread(values: Floats) -> float:
    """Returns a standard deviation that is robust against spikes; the plain one if most values are equal."""
    return float(spread(values)) or float(values.std()) if len(values) > 1 else 0.0


def _effect_clause(effect: _Effect | None, improvement_ratio: float | None, steps_ratio: float) -> str:
    if effect is None:
        return "has no finite loss"
    count, change = len(effect.losses.steps), effect.change
    if change is None:
        return f"has {count} losses, too few to judge" if count > 1 else "has only one loss"
    if change.confidence < LIKELY:
        return "no measurable effect"
    probably = "" if change.confidence >= CERTAIN else "probably "
    if change.fell < 0:
        clause = f"the loss {probably}rose by {-change.fell:.3g}"
    elif improvement_ratio is None or steps_ratio == 1:
        clause = f"{probably}lowered the loss by {change.fell:.3g}"
    else:
        shares = [
            f"{share:.0%}" if share >= 0.005 else "less than 1%" for share in (improvement_ratio, steps_ratio)
        ]
        clause = f"{probably}gave {shares[0]} of the improvement in {shares[1]} of the steps"
    confidence = "over 99.9%" if change.confidence > 0.999 else f"{change.confidence:.1%}"
    return f"{clause} (confidence {confidence})"


def _second_half_clause(effect: _Effect | None) -> str:
    """Says whether a phase that lowered the loss still did so in its second half."""
    if effect is None or len(effect.losses.steps) < MIN_FOR_HALVES:
        return ""
    whole, half = effect.before.change_to(effect.after), effect.middle.change_to(effect.after)
    if whole.fell <= 0 or whole.confidence < CERTAIN:
        return ""
    if half.confidence < LIKELY:
        return "no measurable effect in its second half"
    return "the loss rose in its second half" if half.fell < 0 and half.confidence >= CERTAIN else ""


def _too_high_clause(change: _Change | None, rates: Floats, all_rates: Floats) -> str:
    """Says whether the loss rose in a phase with a higher rate than others."""
    highest = float(all_rates.max())
    is_highest = rates.mean() >= NEAR_MAX_RATIO * highest > all_rates.min()
    if change is None or change.fell >= 0 or change.confidence < CERTAIN or not is_highest:
        return ""
    return f"it rose while the rate was at its highest: {highest:.3g} may be too high"


def _not_finite_clause(losses: _Course, rates: _Course) -> str:
    failed = losses.steps[~(np.abs(losses.values) < MAX_VALUE)]
    if not len(failed):
        return ""
    at = f"the first at step {int(failed[0]):,} with a rate of {np.interp(failed[0], *rates):.3g}"
    return f"{len(failed):,} of {len(losses.steps):,} losses were not finite, {at}"


def _name(phases: Sequence[SchedulePhase]) -> str:
    cycles = max(phase.cycle or 1 for phase in phases)
    if cycles > 1:
        return f"{cycles} cycles"
    if [phase.kind for phase in phases] == ["warm-up", "decay"] and phases[0].steps_ratio >= 0.15:
        rise, decay = phases
        if rise.shape and rise.shape == decay.shape and rise.first_rate > decay.last_rate:
            return "one cycle"
    names = []
    for label, group in groupby(phases, key=lambda phase: phase.label):
        count = len(list(group))
        names.append(f"{count} levels" if label == "constant" and count > 1 else label)
    return ", then ".join(names) if len(names) < 5 else f"{len(phases)} phases"
