"""Samples the stack of the training thread when a cheap sign asks for it, as a step that blocks."""

from __future__ import annotations

from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepscope.model_stats.random_sampling import own_random
from stepscope.schema.keys import PHASES, STACKS_EVENT
from stepscope.steps.evidence.stack_counts import StackCounts
from stepscope.steps.evidence.stack_frames import StackReader, can_sample, frame_of
from stepscope.steps.phase_timer import DATA, EVAL, FORWARD, OPTIMIZER, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.steps.evaluation_mode import EvaluationMode
    from stepscope.steps.optimizer_steps import TrainingThread
    from stepscope.steps.overhead import Overhead
    from stepscope.steps.phase_timer import PhaseTimer
    from stepscope.steps.step_timer import StepTimer
    from stepscope.steps.step_writer import StepWriter

SHARE = 0.5
"""Share of the allowed overhead that sampling may use while it lasts; fewer phases are timed meanwhile."""

WAKE_NS = 20_000
"""Cost of waking the thread that samples, beside its own time: the interpreter lock changes hands twice."""

CHECK_S = 0.5
"""How often signs are looked for."""

SAMPLE_S = 0.03
"""Minimum time between two samples; random, up to twice of it, so that it follows no rhythm of the loop."""

MAX_SAMPLES = 120
MAX_S = 20.0
"""The longest time in which samples are taken because of one sign."""

MIN_SAMPLES, MIN_BLOCKED_SAMPLES = 10, 3
"""Fewer are not recorded: of shares, and of a step that blocks, where a few tell the same as many."""

MIN_STEPS, MAX_STEPS = 7, 1000
"""The fewest and the most steps timed by phase that are a sign together; a run always times its first ten."""

SIGNS = {OTHER: 0.1, DATA: 0.2}
"""Shares of step time from which a phase is a sign."""

GPU_SIGNS = {**SIGNS, FORWARD: 0.5, OPTIMIZER: 0.5}
"""With a GPU, in which a phase takes that much of the host's time only if the host waits there."""

MAX_TIMES, MAX_BLOCKED = 4, 5
"""How often samples are taken in a run because of shares, and because a step blocks."""

REST_S = 60.0
"""Time between two signs of shares; the second must differ from the first by the following."""

NEW_LEVEL, NEW_SHARE = 1.5, 0.15
"""A change of the time of a step by this factor, or of a phase's share of it."""

BLOCKED = "blocked"
MIN_KNOWN_STEPS = 2
"""The fewest steps timed by phase that a step which blocks is compared with: more may never come."""

BLOCKED_S, BLOCKED_STEPS = 2.0, 10
"""A step blocks if it takes this long, and as long as this many steps. It is sampled again each time when
it has taken ten times as long."""

MAX_BLOCKED_SAMPLES = 20


class PhaseTotals(NamedTuple):
    """Time in each phase, summed over the steps timed by phase, and the number of these steps."""

    steps: int
    spent_ns: tuple[int, ...]

    def since(self, earlier: PhaseTotals) -> PhaseTotals:
        """The same of the steps after earlier totals."""
        spent_ns = tuple(new - old for new, old in zip(self.spent_ns, earlier.spent_ns, strict=True))
        return PhaseTotals(self.steps - earlier.steps, spent_ns)

    def shares(self) -> list[float]:
        """The share of each phase."""
        together = sum(self.spent_ns) or 1
        return [spent_ns / together for spent_ns in self.spent_ns]

    def step_s(self) -> float:
        """The time of a mean step."""
        return sum(self.spent_ns) * 1e-9 / max(self.steps, 1)


class SampledTraining(Protocol):
    """What the sampler reads of a training."""

    @property
    def timer(self) -> StepTimer:
        """Has the current step."""

    def thread(self) -> int:
        """The identifier of the training thread."""

    def totals(self) -> PhaseTotals:
        """The time in each phase so far."""

    def phase(self) -> str:
        """The current phase, as far as it is known without the stack."""


class WatchedTraining:
    """A watched training, read from another thread."""

    def __init__(
        self, thread: TrainingThread, writer: StepWriter, phase_timer: PhaseTimer, mode: EvaluationMode
    ) -> None:
        self._thread, self._writer, self._phase_timer, self._mode = thread, writer, phase_timer, mode
        self.timer = phase_timer.timer
        """Has the current step."""

    def thread(self) -> int:
        """The identifier of the training thread."""
        return self._thread.identifier

    def totals(self) -> PhaseTotals:
        """The time in each phase so far."""
        return PhaseTotals(self._writer.timed_steps, tuple(self._writer.spent_ns))

    def phase(self) -> str:
        """The current phase; in steps that are not timed by phase, only an evaluation or a wait for data."""
        if self._mode.is_evaluating:
            return PHASES[EVAL]
        is_fetching = self.timer.in_batches and self.timer.held is None
        return PHASES[DATA if is_fetching else self._phase_timer.phase]


class _Window(NamedTuple):
    """Samples that are being taken."""

    sign: str
    """The phase whose share was the sign, or `blocked`."""
    began_ns: int
    step: int
    step_began_ns: int
    counts: StackCounts


class StackSampler:
    """Looks for signs twice a second and takes samples then, all of it in the maintenance thread.

    It takes no lock, and sets no signal and no trace function. The training thread only loses the interpreter
    lock while its stack is read.
    """

    def __init__(
        self,
        training: SampledTraining,
        record_event: Callable[..., None],
        overhead: Overhead,
        *,
        has_gpu: bool = False,
        now_ns: Callable[[], int] = monotonic_ns,
        busy_ns: Callable[[], int] = thread_time_ns,
    ) -> None:
        self._training, self._record_event, self._overhead = training, record_event, overhead
        self._now_ns, self._busy_ns, self._draw = now_ns, busy_ns, own_random()
        self._signs = ShareSigns(GPU_SIGNS if has_gpu else SIGNS)
        self._has_gpu = has_gpu
        self._reader = StackReader()
        self._window: _Window | None = None
        self._due_ns = self._times_blocked = 0
        self._blocked_step, self._next_blocked_s = -1, BLOCKED_S
        self._is_closed = False

    def tick(self) -> float:
        """Looks for signs, or takes a sample if that is due; returns the seconds until the next call."""
        now = self._now_ns()
        if self._is_closed or now < self._due_ns:
            return CHECK_S if self._is_closed else (self._due_ns - now) * 1e-9
        began = self._busy_ns()
        if self._window is None:
            self._window = self._window_for(self._blocked_sign(now) or self._share_sign(now), now)
        else:
            self._sample(self._window, now)
        cost_ns = self._busy_ns() - began + WAKE_NS
        self._overhead.spend_elsewhere(cost_ns)
        wait_s = CHECK_S
        if self._window is not None:
            affordable_s = cost_ns * 1e-9 / (SHARE * self._overhead.max_ratio)
            wait_s = max(SAMPLE_S, affordable_s) * (1 + self._draw())
        self._due_ns = now + round(wait_s * 1e9)
        return wait_s

    def close(self) -> None:
        """Ends sampling, and records what was sampled."""
        self._is_closed = True
        self._end(self._now_ns())

    def _window_for(self, sign: str, now: int) -> _Window | None:
        timer = self._training.timer
        return _Window(sign, now, timer.step, timer.began_ns, StackCounts()) if sign else None

    def _share_sign(self, now: int) -> str:
        phase = self._signs.find(self._training.totals(), now)
        return "" if phase is None else PHASES[phase]

    def _blocked_sign(self, now: int) -> str:
        """Returns `blocked` if the current step takes far longer than others and was not sampled yet."""
        timer, totals = self._training.timer, self._training.totals()
        if timer.step != self._blocked_step:
            self._blocked_step, self._next_blocked_s = timer.step, BLOCKED_S
        taken_s = (now - timer.began_ns) * 1e-9
        least_s = max(self._next_blocked_s, BLOCKED_STEPS * totals.step_s())
        if totals.steps < MIN_KNOWN_STEPS or taken_s < least_s or self._times_blocked >= MAX_BLOCKED:
            return ""
        self._next_blocked_s = 10 * taken_s
        self._times_blocked += 1
        return BLOCKED

    def _sample(self, window: _Window, now: int) -> None:
        """Takes a sample; ends the window if it is complete, or if the step or the thread has ended."""
        is_blocked = window.sign == BLOCKED
        if is_blocked and self._training.timer.began_ns != window.step_began_ns:
            self._end(now)
            return
        if can_sample():
            phase = self._training.phase()
            # No variable has the frame: it would keep what the training has in its variables alive.
            sample = self._reader.read(frame_of(self._training.thread()))
            if sample is None:
                self._end(now)
                return
            window.counts.add(sample._replace(phase=sample.phase or phase))
        is_complete = window.counts.samples >= (MAX_BLOCKED_SAMPLES if is_blocked else MAX_SAMPLES)
        if is_complete or now - window.began_ns > MAX_S * 1e9:
            self._end(now)

    def _end(self, now: int) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        least = MIN_BLOCKED_SAMPLES if window.sign == BLOCKED else MIN_SAMPLES
        if window.counts.samples < least:
            return
        fields: dict[str, Any] = {"sign": window.sign, "seconds": (now - window.began_ns) * 1e-9}
        if window.sign == BLOCKED:
            fields["taken_seconds"] = (now - window.step_began_ns) * 1e-9
            fields["usual_seconds"] = self._training.totals().step_s()
            fields["is_in_loop"] = self._training.timer.in_batches
        self._record_event(
            STACKS_EVENT, step=window.step, **fields, **window.counts.fields(has_gpu=self._has_gpu)
        )


class ShareSigns:
    """Finds phases that take a large share of the time, and later only those whose picture has changed."""

    def __init__(self, signs: Mapping[int, float]) -> None:
        self._signs = signs
        self._base = PhaseTotals(0, (0,) * len(PHASES))
        self._last: PhaseTotals | None = None
        self._rests_until_ns = self._times = 0

    def find(self, totals: PhaseTotals, now: int) -> int | None:
        """The phase whose share is the clearest sign; None if there is none."""
        newest = totals.since(self._base)
        if newest.steps < MIN_STEPS or now < self._rests_until_ns or self._times >= MAX_TIMES:
            return None
        if newest.steps >= MAX_STEPS:
            self._base = totals  # older steps would hide a change
        shares = newest.shares()
        phase = max(self._signs, key=lambda phase: shares[phase] / self._signs[phase])
        if shares[phase] < self._signs[phase] or not self._has_changed(newest, phase):
            return None
        self._last, self._base = newest, totals
        self._times += 1
        self._rests_until_ns = now + round(REST_S * 1e9)
        return phase

    def _has_changed(self, newest: PhaseTotals, phase: int) -> bool:
        """Whether the picture differs clearly from that of the last sign."""
        if self._last is None:
            return True
        step_s, before_s = newest.step_s(), self._last.step_s()
        share = newest.shares()[phase] - self._last.shares()[phase]
        return max(step_s, before_s) > NEW_LEVEL * min(step_s, before_s) or abs(share) > NEW_SHARE
