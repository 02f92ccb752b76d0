"""Measures where the time of each step goes, phase by phase, within the overhead budget."""

from __future__ import annotations

import sys
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope.model_stats.hooking import as_list
from stepscope.steps import patches
from stepscope.steps.call_phases import CallPhases
from stepscope.steps.compiled_code import never_compiled
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.evaluation_mode import EvaluationMode
from stepscope.steps.evidence.batch_contents import CurrentBatch
from stepscope.steps.evidence.kept_losses import KeptLosses
from stepscope.steps.evidence.model_state import ModelState
from stepscope.steps.evidence.nonfinite_loss import NonfiniteLoss
from stepscope.steps.evidence.observers import Observers
from stepscope.steps.evidence.sampled_probes import training_probes
from stepscope.steps.evidence.stack_sampler import WatchedTraining
from stepscope.steps.evidence.step_extras import StepExtras
from stepscope.steps.memory import oom_snapshot
from stepscope.steps.memory.out_of_memory import WatchedObjects
from stepscope.steps.model_calls import ModelCalls
from stepscope.steps.optimizer_steps import OptimizerSteps, TrainingThread
from stepscope.steps.pass_boundaries import PassBoundaries
from stepscope.steps.pass_purpose import PassPurpose
from stepscope.steps.phase_sampling import PhaseSampling
from stepscope.steps.phase_timer import BACKWARD, CHECKPOINT, DATA, OTHER, PhaseTimer
from stepscope.steps.ranks.sharded import rank_waits
from stepscope.steps.step_timer import FOREVER
from stepscope.steps.step_writer import EndedStep, StepWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.guard import Guard
    from stepscope.steps.evidence.observers import Observer
    from stepscope.steps.phase_timer import Pause, StepTimes
    from stepscope.steps.ranks.gradients_ready import RankWait
    from stepscope.steps.step_writer import StepRecorder

Batch = TypeVar("Batch")

ATTACH_COST_FACTOR = 5
"""Cost of timing the phases of a single step, as a multiple of the time that attaching to PyTorch takes.

Detaching takes about as long, and the training is slower until Python has cached the changed classes again.
Measured as the extra time of such a step and of the next one.
"""


class StepPhases:
    """Times steps, and every phase of sampled steps; `TrainingMonitor.watch` creates it.

    In a step that is timed phase by phase, calls of the model, of the optimizer and of a few functions of
    PyTorch switch phases. In all other steps, only the post-step hook of the optimizers is installed.
    """

    def __init__(self, recorder: StepRecorder, guard: Guard) -> None:
        self._torch = torch = sys.modules["torch"]
        record, record_event, overhead = recorder.record_late, recorder.own_event, recorder.overhead
        self._timer, self._overhead = recorder.timer, overhead
        self.phase_timer = PhaseTimer(timer=recorder.timer)
        self.phase_timer.on_skipped_step = self._on_skipped_step
        self._phases = CallPhases(self.phase_timer, torch.is_grad_enabled)
        self._calls = ModelCalls(self._phases, torch.compiler.is_compiling)
        self.purpose = self._phases.purpose = PassPurpose(recorder.timer, self._calls, torch.is_grad_enabled)
        """What the current pass over data is for."""
        self.optimizers = OptimizerSteps(
            self._phases, recorder.timer, overhead, self._calls.parameters, self.purpose
        )
        """Calls listeners before and after optimizer steps."""
        self._sampling, self._writer = PhaseSampling(overhead, overhead.now_ns()), StepWriter(recorder)
        self._thread = TrainingThread(self.optimizers, recorder.timer, self._move_to_this_thread)
        self.mode = EvaluationMode(self.phase_timer, self._add_evaluation, self._thread.is_current)
        """Finds evaluations by the mode of the models."""
        self.sampled = WatchedTraining(self._thread, self._writer, self.phase_timer, self.mode)
        """What a sampler of stacks reads from another thread."""
        self._observers, self._boundaries = Observers(guard), PassBoundaries(self.phase_timer, self._writer)
        self._rank_waits: list[RankWait] = []
        self._passes, self._is_timed_later, self._attaching_ns = 0, False, 0
        self._device: DeviceClock | None = None
        if torch.cuda.is_available():
            self._device = DeviceClock(torch, record, guard, overhead)
            self._writer.after_writing = self._device.read
        self.watched_objects = WatchedObjects(CurrentBatch(recorder.timer))
        """For the description of a failure."""
        self._extras = StepExtras(self._observers, self.watched_objects, overhead)
        self._probes, self._loader_queue, self._phases.training_setup = training_probes(
            torch, self.watched_objects, record_event, guard, self._on_change, overhead.now_ns
        )
        model_state = ModelState(self.watched_objects, self.optimizers, self._phases.training_setup, guard)
        self._probes.add(model_state)
        self._probes.add(KeptLosses(self.phase_timer))
        NonfiniteLoss(self.watched_objects, self.phase_timer, record_event)
        timer, self.mode.on_eval = self._timer, model_state.follow_modes
        timer.on_step, timer.on_due, timer.due_ns, timer.steps_made = self._end_step, self._write, 0, 0
        timer.first_step, self._planned = timer.step, timer.left
        self.observe(self._probes)
        patches.follow(self.phase_timer, torch)

    def watch(self, model: Any, optimizer: Any) -> None:
        """Times a model with one or several optimizers; without one, with any optimizer that steps."""
        optimizers = as_list(optimizer)
        waits = rank_waits(model, self.phase_timer)
        self.watched_objects.add_model(model, optimizers)
        self._calls.add(model)
        self.mode.add(model)
        if not self._passes:
            self.purpose.begin()
        self.optimizers.add(optimizers)
        self._rank_waits += waits
        if not self._phases.is_timed:
            self._time_phases()

    def looks_like_training(self) -> bool:
        """Whether the pass that this thread is about to start likely trains."""
        return self._thread.is_current() and not self.purpose.looks_like_evaluation()

    def _move_to_this_thread(self) -> None:
        patches.unfollow(self.phase_timer)
        patches.follow(self.phase_timer, self._torch)
        if self._phases.is_timed:
            self._leave_phases()
            self._time_phases()

    def begin_loader_pass(self) -> None:
        """Called when a training pass over a loader starts."""
        self.mode.end_if_training()

    def observe(self, observer: Observer) -> None:
        """Adds an observer, whose values are recorded with the steps it is due at."""
        self._count_steps()
        self._observers.add(observer)
        self._plan()

    def close(self) -> None:
        """Removes all hooks and patches, and writes what is left."""
        timer = self._timer
        if timer.in_batches and timer.is_made:
            timer.end_batch()  # a loop that takes batches by `next` does not mark the end of its last one
        if self.purpose.trains is False:
            self._end_evaluation()
        self.mode.close()
        self._leave_phases()
        self._calls.detach()
        self.optimizers.close()
        patches.unfollow(self.phase_timer)
        timer.on_step = timer.on_due = timer.on_batch = None
        timer.left, timer.is_special = FOREVER, False
        last = self.phase_timer.end_step()
        if last.spent[CHECKPOINT]:
            self._writer.add(EndedStep(timer.step, last, gap="end"))
        self._writer.write(monotonic_ns())
        if self._device is not None:
            self._device.flush()
        self._observers.close()

    def forget(self) -> None:
        """Discards unwritten steps in a forked process: the parent writes them."""
        self._writer.forget()
        self._timer.is_made = False

    def batches(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Yields the batches of a pass over the data; a step has one or several of them."""
        if not self._thread.is_current():
            return self._batches_elsewhere(source)
        self.mode.end()
        unfinished = self._boundaries.unfinished_step()
        if self._passes or (unfinished and self.purpose.looks_like_evaluation()):
            return self._batches_within(source)
        return self._begin_pass(source, unfinished)

    def begins_epoch(self) -> bool:
        """Whether a pass that begins now is a new epoch of the training data."""
        if self._passes or self._boundaries.took_only_first_batch():
            return False
        return not self.purpose.looks_like_evaluation()

    def _begin_pass(self, source: Iterator[Batch], unfinished: Pause | None = None) -> Iterator[Batch]:
        timer = self._timer
        self._passes, self._writer.knows_wait = self._passes + 1, getattr(source, "is_timed", True)
        timer.step += timer.is_over
        timer.is_over, timer.in_batches = False, True
        self.purpose.begin()
        timer.on_batch, timer.on_due, timer.every_batch = self._ends_without_optimizer, self._write, False
        self._loader_queue.follow(source)
        oom_snapshot.observe_failures(self._torch)
        if self._passes == 1:
            self._overhead.exclude(timer.began_ns)
        self._boundaries.begin(unfinished)
        if self._device is not None and self._phases.is_timed:
            self._begin_on_device(self._device)
        return timer.batches_of(source, self._finish_pass)

    def _batches_within(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Yields batches within a step; their time is an evaluation unless an optimizer steps."""
        pause, made = self.phase_timer.pause(), self._timer.steps_made
        if self._device is not None:
            self._device.abandon()
        try:
            for batch in source:
                yield batch
                if self._timer.steps_made > made:
                    break
        finally:
            if self._timer.steps_made == made and self.optimizers.is_watching():
                self._add_evaluation(self.phase_timer.resume(pause))
        if self._timer.steps_made > made:
            self._timer.end_batch()
            yield from self._begin_pass(source)

    def _batches_elsewhere(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Yields batches in another thread, which prefetches for the training thread or trains itself."""
        for batch in source:
            yield batch
            if self._thread.is_current():
                yield from self._begin_pass(source)

    def _finish_pass(self, is_left: bool) -> None:  # noqa: FBT001 - the timer calls it so
        """Ends a pass; until the next one, only optimizer steps end steps.

        A loop that counts its batches leaves the pass early, so the end of its last batch is not seen.
        """
        timer = self._timer
        if self.optimizers.is_watching():  # `unwatch` may have been called within the pass
            if is_left and timer.is_made:
                timer.end_batch()
            if self.purpose.trains is False:
                self._end_evaluation()
            if self._is_timed_later:
                self._is_timed_later = False
                self._time_phases()
            if self.phase_timer.phase != OTHER:
                self.phase_timer.enter(OTHER)
        self._passes -= 1
        timer.in_batches = self._passes > 0
        if not self._passes:
            self._boundaries.end(self.purpose, is_left=is_left)
        self.watched_objects.batch.leave()

    @never_compiled
    def _write(self) -> None:
        if self.purpose.trains is False:
            self._end_evaluation()
        self._writer.write(monotonic_ns())

    @never_compiled
    def _ends_without_optimizer(self) -> bool:
        """Whether a batch after which no optimizer has stepped ends a step.

        It may be part of an evaluation, or a micro-batch of a step; or there is no optimizer.
        """
        self.optimizers.forget_depth()
        if self.purpose.follow_batch():
            self._timer.is_special = True
            self._attach_calls()
        if self.purpose.trains is False:
            self._begin_evaluation()
            return False
        if self.purpose.ends_step():  # then all later batches do, too
            self._timer.every_batch, self._timer.on_batch = True, None
            return True
        return False

    def _begin_evaluation(self) -> None:
        """Stops timing phases until the end of this pass, unless an optimizer steps."""
        self._timer.on_batch = None
        self._timer.is_special = True
        if self._phases.is_timed:
            self._is_timed_later = True
            self._leave_phases()
        self._attach_calls()
        if self._device is not None:
            self._device.abandon()

    def _attach_calls(self) -> None:
        if self._phases.is_timed or (self._passes and self.purpose.trains is None):
            self._calls.attach()
        else:
            self._calls.detach()

    @never_compiled
    def _end_step(self, ended_ns: int) -> None:
        """Ends a step that is timed phase by phase, has further values, or is followed by a decision."""
        self._count_steps()
        self.mode.end_within_step(ended_ns, self._sampling.step_ns)
        timer, calls = self._timer, self.phase_timer.boundaries
        self.purpose.trains = timer.in_batches or None
        if timer.steps_made:
            timer.on_batch = None
        micro_steps, timer.batches = timer.batches, 0
        step, times, rate, others = timer.step, self.phase_timer.end_step(ended_ns), 0.0, None
        if self._phases.is_timed:
            rate = self._sampling.rate
            others = self._end_timed_step(step, ended_ns, calls)
        extras = self._extras.of_step(step, micro_steps, self._probes)
        others = {**(others or {}), **extras} if extras else others
        if times.spent[BACKWARD] and self.purpose.calls_another_method():
            self._calls.include_parts()
        self.purpose.forget_calls()
        self._writer.add(EndedStep(step, times, rate, others))
        if self._sampling.left <= 0:
            self._choose()
        elif self._phases.is_timed and self._device is not None:
            self._begin_on_device(self._device)
        if self._calls.attached and not self._phases.is_timed:
            self._attach_calls()
        self._plan()

    def _count_steps(self) -> None:
        """Counts the steps that have ended since the last plan."""
        passed = self._planned - self._timer.left
        self._planned = self._timer.left
        self._sampling.left -= passed
        self._observers.left -= passed

    def _plan(self) -> None:
        """Sets how many steps the timer ends itself, keeping only their times, until `_end_step`."""
        self._planned = self._timer.left = min(self._sampling.left, self._observers.left)
        self._timer.is_special = self._phases.is_timed or self._extras.has_changes

    def _choose(self) -> None:
        if self._sampling.choose(self._overhead.now_ns()):
            if not self._phases.is_timed:
                self._time_phases()
            elif self._device is not None:
                self._begin_on_device(self._device)
        elif self._phases.is_timed:
            self._leave_phases()

    def _time_phases(self) -> None:
        """Starts timing every phase."""
        began_ns = monotonic_ns()
        self._phases.begin()
        patches.follow_phases(self.phase_timer, self._torch)
        self._calls.attach()
        self.optimizers.follow_step_starts(enabled=True)
        timer, enter = self._timer, self.phase_timer.enter
        timer.on_asked, timer.on_got, timer.is_special = partial(enter, DATA), partial(enter, OTHER), True
        for wait in self._rank_waits:
            wait.attach()
        if self._device is not None:
            self._begin_on_device(self._device)
        self._attaching_ns = monotonic_ns() - began_ns

    def _leave_phases(self) -> None:
        """Stops timing phases: only the end of each step is measured."""
        began_ns = monotonic_ns()
        self._phases.is_timed, self.phase_timer.device = False, None
        self._timer.on_asked = self._timer.on_got = None
        reads_losses = self._device is None and self._overhead.allows_losses(self._sampling.step_ns)
        patches.unfollow_phases(self.phase_timer, but_losses=reads_losses)
        self._attach_calls()
        for wait in self._rank_waits:
            wait.detach()
        self.optimizers.follow_step_starts(enabled=False)
        self._overhead.spend(monotonic_ns() - began_ns)

    def _end_timed_step(self, step: int, ended_ns: int, calls: int) -> dict[str, Any]:
        """Returns values measured only in phase-timed steps, and adds the cost of timing to the overhead."""
        row: dict[str, Any] = {}
        for wait in self._rank_waits:
            row.update(wait.after_step())
        if self._device is not None and self.phase_timer.device is not None:
            self._device.end_step(step, ended_ns)
        self._sampling.spent(calls * self._overhead.call_ns + ATTACH_COST_FACTOR * self._attaching_ns)
        self._attaching_ns = 0
        return row

    def _begin_on_device(self, device: DeviceClock) -> None:
        device.left -= 1
        device.phase_rate, device.step_ns = self._sampling.rate, self._sampling.step_ns
        due = device.left <= 0 and device.begin_step(self.phase_timer.phase, self._timer.began_ns)
        self.phase_timer.device = device if due else None

    def _on_change(self) -> None:
        self._extras.has_changes = self._timer.is_special = True

    def _end_evaluation(self) -> None:
        """Records the time of an evaluation separately: it is not part of a training step."""
        if not self._timer.batches:
            return
        self._timer.batches = 0
        self.mode.forget()
        self._add_evaluation(self.phase_timer.end_step())

    def _add_evaluation(self, times: StepTimes) -> None:
        self._writer.add(EndedStep(self._timer.step, times, gap="evaluation"))
        self.purpose.evaluated = False

    @never_compiled
    def _on_skipped_step(self, optimizer: Any) -> None:
        """Ends a step whose optimizer step a loss scaler has skipped because of an overflow."""
        if self._timer.ends_step(optimizer):
            self._extras.was_skipped = self._timer.is_special = True
            self._timer.make_step()
