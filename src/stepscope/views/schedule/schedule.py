"""Reports the effect of each phase of a run's learning-rate schedule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.schema.keys import LEARNING_RATE, LOSS_KEYS
from stepscope.views.schedule.loss_levels import MIN_LOSSES, change
from stepscope.views.schedule.phase_effects import CERTAIN, Course, effects, verdict
from stepscope.views.schedule.rate_phases import rate_phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.views.schedule.loss_levels import Change
    from stepscope.views.schedule.phase_effects import Effect
    from stepscope.views.schedule.rate_phases import Kind, RatePhase, Shape

    Ints = NDArray[np.int64]
    Logged = tuple[Ints, NDArray[np.float64]]
    """Steps and values."""


MAX_PHASES = 60

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


def schedule_of(run: Run, rank: int | None = None) -> Schedule:
    """Returns the schedule of a run as one rank logged it: a given one, otherwise the first that has it.

    If a segment repeats steps, only the repeated ones count.
    """
    ranks: dict[str | None, tuple[int, ...]] = {known.key: known.ranks for known in run.keys()}
    loss_key = next((key for key in LOSS_KEYS if key in ranks), None)
    if LEARNING_RATE not in ranks:
        return Schedule(loss_key=loss_key, why=NO_RATE)
    rates, losses = (
        _by_segment(run, key, min(ranks.get(key, ()), default=None) if rank is None else rank)
        for key in (LEARNING_RATE, loss_key)
    )
    if any(_is_restarted(steps) for steps, _ in (*rates, *losses)):
        return Schedule(loss_key=loss_key, why=RESTARTED_STEPS)
    begins = [
        min((int(steps.min()) for steps, _ in both if len(steps)), default=None)
        for both in zip(rates, losses, strict=True)
    ]
    return schedule_from(_joined(rates, begins), _joined(losses, begins), loss_key)


def schedule_from(rates: Logged, losses: Logged, loss_key: str | None = "loss") -> Schedule:
    """Returns the schedule for steps and values of a rate and a loss; the last value of a step counts."""
    course = _in_order(*rates).finite()
    if len(course.steps) < 2:
        return Schedule(loss_key=loss_key, why=ONE_READING if len(course.steps) else NO_RATE)
    phases = rate_phases(*course)
    if len(phases) > MAX_PHASES:
        why = f"the rate turns {len(phases) - 1} times: at most {MAX_PHASES} phases are shown"
        return Schedule(loss_key=loss_key, why=why)
    all_losses = _in_order(*losses)
    max_distance = float(np.diff(course.steps).max())
    known = all_losses.between(course.steps[0] - max_distance, course.steps[-1] + max_distance)
    phase_effects = effects(phases, course, known)
    whole_change = _whole_change(phase_effects)
    gain = (
        whole_change.fell
        if whole_change is not None and whole_change.fell > 0 and whole_change.confidence >= CERTAIN
        else None
    )
    steps = phase_effects[-1].last_step - phase_effects[0].first_step + 1
    schedule_phases = tuple(
        _schedule_phase(phase, effect, course, steps, gain)
        for phase, effect in zip(phases, phase_effects, strict=True)
    )
    return Schedule(
        name=_name(schedule_phases),
        phases=schedule_phases,
        loss_key=loss_key,
        improvement=None if whole_change is None else whole_change.fell,
        confidence=None if whole_change is None else whole_change.confidence,
        notes=_notes(loss_key, len(all_losses.steps) - len(known.steps)),
    )


def _schedule_phase(
    phase: RatePhase, effect: Effect, rates: Course, all_steps: int, gain: float | None
) -> SchedulePhase:
    steps = effect.last_step - effect.first_step + 1
    before = None if effect.before is None else effect.before.value
    after = None if effect.after is None else effect.after.value
    improvement = None if before is None or after is None else before - after
    ratio = None if improvement is None or gain is None else improvement / gain
    moved = effect.change
    return SchedulePhase(
        kind=phase.kind,
        shape=phase.shape,
        cycle=phase.cycle,
        first_step=effect.first_step,
        last_step=effect.last_step,
        first_rate=float(rates.values[phase.first]),
        last_rate=float(rates.values[phase.last]),
        losses=effect.losses,
        loss_before=before,
        loss_after=after,
        improvement=improvement,
        improvement_ratio=ratio,
        steps_ratio=steps / all_steps,
        per_thousand_steps=None if improvement is None else 1000 * improvement / steps,
        noise=None if effect.noise is None else effect.noise.size,
        confidence=None if moved is None else moved.confidence,
        verdict=verdict(effect, ratio, steps / all_steps, rates),
    )


def _whole_change(phase_effects: Sequence[Effect]) -> Change | None:
    """Returns the change from the first level to the last."""
    levels = [
        level for effect in phase_effects for level in (effect.before, effect.after) if level is not None
    ]
    if sum(effect.losses for effect in phase_effects) < MIN_LOSSES:
        return None
    return change(levels[0], levels[-1])


def _notes(loss_key: str | None, left_out: int) -> tuple[str, ...]:
    if loss_key is None:
        return ("no loss was logged, so only the rate is shown",)
    return (f"{left_out:,} losses are left out: no rate was logged near them",) if left_out else ()


def _name(phases: Sequence[SchedulePhase]) -> str:
    cycles = max((phase.cycle or 1 for phase in phases), default=1)
    if cycles > 1:
        return f"{cycles} cycles"
    if _is_one_cycle(phases):
        return "one cycle"
    names = []
    for label, group in groupby(phases, key=lambda phase: phase.label):
        count = len(list(group))
        names.append(f"{count} levels" if label == "constant" and count > 1 else label)
    return ", then ".join(names) if len(names) < 5 else f"{len(phases)} phases"


def _is_one_cycle(phases: Sequence[SchedulePhase]) -> bool:
    """Returns whether there is a long rise from above zero, then a decay of that shape to a lower rate."""
    if [phase.kind for phase in phases] != ["warm-up", "decay"]:
        return False
    rise, decay = phases
    is_long = rise.steps_ratio >= 0.15 and rise.shape is not None and rise.shape == decay.shape
    return is_long and rise.last_rate * 0.005 < rise.first_rate > decay.last_rate


def _by_segment(run: Run, key: str | None, rank: int | None) -> list[Logged]:
    if key is None:
        return [(np.empty(0, np.int64), np.empty(0)) for _ in run.segments]
    points_by_segment = (run.series(key, rank, segment.id) for segment in run.segments)
    return [(points.steps, points.values) for points in points_by_segment]


def _joined(parts: Sequence[Logged], begins: Sequence[int | None]) -> Logged:
    """Joins segments; each is cut where a later one begins."""
    kept_parts = []
    for index, (steps, values) in enumerate(parts):
        later = [begin for begin in begins[index + 1 :] if begin is not None]
        is_kept = steps < min(later) if later else np.ones(len(steps), bool)
        kept_parts.append((steps[is_kept], values[is_kept]))
    return np.concatenate([steps for steps, _ in kept_parts]), np.concatenate(
        [values for _, values in kept_parts]
    )


def _in_order(steps: Ints, values: NDArray[np.float64]) -> Course:
    """Returns the values by step, each step once."""
    if not (np.diff(steps) > 0).all():
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        newest = np.r_[steps[1:] != steps[:-1], True]
        steps, values = steps[newest], values[newest]
    return Course(steps.astype(np.float64), values)


def _is_restarted(steps: Ints) -> bool:
    """Returns whether step numbers restart, as with numbers within an epoch."""
    return int((np.diff(steps) < 0).sum()) >= 2 and 2 * len(np.unique(steps)) < len(steps)
