"""Takes a step apart: where its time goes, phase by phase, without slowing it."""

from __future__ import annotations

import sys
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope.steps import patches
from stepscope.steps.call_phases import CallPhases
from stepscope.steps.compiled_code import leave_us_alone, never_compiled
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.evaluation_mode import EvaluationMode
from stepscope.steps.evidence.batch_contents import BatchInHand
from stepscope.steps.evidence.free_evidence import gather
from stepscope.steps.evidence.observers import Observers
from stepscope.steps.evidence.step_extras import StepExtras
from stepscope.steps.memory import oom_snapshot
from stepscope.steps.memory.out_of_memory import Witness
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
    from stepscope.steps.phase_timer import Cut, Pause
    from stepscope.steps.ranks.gradients_ready import RankWait
    from stepscope.steps.step_writer import StepRecorder

Batch = TypeVar("Batch")

ATTACHED = 5
"""What timing the phases of one step alone costs, in times of what attaching to PyTorch for it takes.

Detaching takes about as long, and the training is slower until Python has cached the changed classes again:
measured as the time of such a step and of the next one, against others.
"""


class StepPhases:
    """What `TrainingMonitor.watch` sets up: it times steps, and of some of them every phase.

    In a step that is timed phase by phase, calls of the model, of the optimizer and of a few functions of
    PyTorch move a chain of phases on. In the others nothing of ours is there but for the hook that tells
    when an optimizer has stepped.
    """

    def __init__(self, recorder: StepRecorder, guard: Guard) -> None:
        self._torch = torch = sys.modules["torch"]
        record, note, overhead = recorder.record_late, recorder.own_event, recorder.overhead
        self._timer, self._overhead = recorder.timer, overhead
        self.chain = PhaseTimer(timer=recorder.timer)
        self.chain.on_skipped_step = self._step_is_skipped
        self._phases = CallPhases(self.chain, torch.is_grad_enabled)
        self._calls = ModelCalls(self._phases, torch.compiler.is_compiling)
        self.purpose = self._phases.purpose = PassPurpose(recorder.timer, self._calls, torch.is_grad_enabled)
        """What the present pass over data is for."""
        self.optimizers = OptimizerSteps(
            self._phases, recorder.timer, overhead, self._calls.parameters, self.purpose
        )
        """Calls whoever wants to know when an optimizer steps."""
        self._sampling = PhaseSampling(overhead, overhead.now_ns())
        self._writer = StepWriter(recorder)
        self._thread = TrainingThread(self.optimizers, recorder.timer, self._move_to_this_thread)
        self._mode = EvaluationMode(self.chain, self._evaluated, self._thread.is_this)
        self._observers = Observers(guard)
        self._rank_waits: list[RankWait] = []
        self._passes = 0
        self._boundaries = PassBoundaries(self.chain, self._writer)
        self._is_timed_later = False
        self._attaching_ns = 0
        self._device: DeviceClock | None = None
        if torch.cuda.is_available():
            self._device = DeviceClock(torch, record, guard, overhead)
            self._writer.after_writing = self._device.read
        self.witness = Witness(BatchInHand(recorder.timer))
        """What a post-mortem asks for."""
        self._extras = StepExtras(self._observers, self.witness, overhead)
        self._evidence, self._loader, self._phases.census = gather(
            torch, self.witness, note, guard, self._hurry, overhead.now_ns
        )
        timer = self._timer
        timer.on_step, timer.on_due, timer.due_ns, timer.steps_made = self._end_step, self._write, 0, 0
        timer.first_step = timer.step
        self._planned = timer.left
        self.observe(self._evidence)
        patches.follow(self.chain, torch)

    def watch(self, model: Any, optimizer: Any) -> None:
        """Times a model, and an optimizer or several; without one, whichever steps."""
        several = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        known = [] if optimizer is None else list(several)
        waits = rank_waits(model, self.chain)
        self.witness.know(model, known)
        self._calls.add(model)
        self._mode.add(model)
        if not self._passes:
            self.purpose.begin()
        self.optimizers.add(known)
        self._rank_waits += waits
        if not self._phases.is_timed:
            self._time_phases()

    def looks_like_training(self) -> bool:
        """Whether what this thread is about to begin trains, by what can be told beforehand."""
        return self._thread.is_this() and not self.purpose.looks_like_evaluation()

    def _move_to_this_thread(self) -> None:
        patches.unfollow(self.chain)
        patches.follow(self.chain, self._torch)
        if self._phases.is_timed:
            self._leave_phases()
            self._time_phases()

    def begin_loader_pass(self) -> None:
        """A loader is gone through from the beginning, to train with it."""
        self._mode.end_if_training()

    def observe(self, observer: Observer) -> None:
        """Adds the figures of an observer to the steps it asks for."""
        self._count_steps()
        self._observers.add(observer)
        self._plan()

    def close(self) -> None:
        """Takes everything away: model, optimizer and PyTorch are as they were."""
        timer = self._timer
        if timer.in_batches and timer.is_made:
            timer.end_batch()  # a loop that asks for its batches by `next` has not said that it is done
        if self.purpose.trains is False:
            self._cut_evaluation()
        self._mode.close()
        self._leave_phases()
        self._calls.detach()
        self.optimizers.close()
        patches.unfollow(self.chain)
        timer.on_step = timer.on_due = timer.on_batch = None
        timer.left, timer.is_special = FOREVER, False
        last = self.chain.cut()
        if last.spent[CHECKPOINT]:
            self._writer.add(EndedStep(timer.step, last, gap="end"))
        self._writer.write(monotonic_ns())
        if self._device is not None:
            self._device.flush()
        self._observers.close()

    def forget(self) -> None:
        """Leaves what is not yet written to the process this one was forked from."""
        self._writer.forget()
        self._timer.is_made = False

    def batches(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of a pass over the data; one or several of them make a step."""
        if not self._thread.is_this():
            return self._batches_elsewhere(source)
        self._mode.end()
        unfinished = self._boundaries.unfinished_step()
        if self._passes or (unfinished and self.purpose.looks_like_evaluation()):
            return self._batches_within(source)
        return self._begin_pass(source, unfinished)

    def begins_epoch(self) -> bool:
        """Whether a pass that begins now is a further one over the data that is trained with."""
        if self._passes or self._boundaries.has_one_batch_in_hand():
            return False
        return not self.purpose.looks_like_evaluation()

    def _begin_pass(self, source: Iterator[Batch], unfinished: Pause | None = None) -> Iterator[Batch]:
        timer = self._timer
        self._passes += 1
        timer.step += timer.is_over
        timer.is_over, timer.in_batches, self._writer.knows_wait = False, True, True
        self.purpose.begin()
        timer.on_batch, timer.on_due, timer.every_batch = self._ends_without_optimizer, self._write, False
        self._loader.meet(source)
        oom_snapshot.attend(self._torch)
        if self._passes == 1:
            self._overhead.leave_out(timer.began_ns)
        self._boundaries.begin(unfinished)
        if self._device is not None and self._phases.is_timed:
            self._begin_on_device(self._device)
        return timer.batches_of(source, self._finish_pass)

    def _batches_within(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Batches while a step is under way, which goes on as if without them unless an optimizer steps."""
        pause, made = self.chain.pause(), self._timer.steps_made
        if self._device is not None:
            self._device.abandon()
        try:
            for batch in source:
                yield batch
                if self._timer.steps_made > made:
                    break
        finally:
            if self._timer.steps_made == made and self.optimizers.is_watching():
                self._evaluated(self.chain.go_on(pause))
        if self._timer.steps_made > made:
            self._timer.end_batch()
            yield from self._begin_pass(source)

    def _batches_elsewhere(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Batches for another thread: it fetches them for the one that trains, or it trains itself."""
        for batch in source:
            yield batch
            if self._thread.is_this():
                yield from self._begin_pass(source)

    def _finish_pass(self, is_left: bool) -> None:  # noqa: FBT001 - the timer calls it so
        """The pass is over; until the next one, the optimizer alone tells where steps end.

        A loop that counts its batches leaves after the last, and never says that it is done with that one.
        """
        timer = self._timer
        if self.optimizers.is_watching():  # the watch may have ended within the pass
            if is_left and timer.is_made:
                timer.end_batch()
            if self.purpose.trains is False:
                self._cut_evaluation()
            if self._is_timed_later:
                self._is_timed_later = False
                self._time_phases()
            if self.chain.phase != OTHER:
                self.chain.enter(OTHER)
        self._passes -= 1
        timer.in_batches = self._passes > 0
        if not self._passes:
            self._boundaries.end(self.purpose, is_left=is_left)
        self.witness.batch.leave()

    @never_compiled
    def _write(self) -> None:
        if self.purpose.trains is False:
            self._cut_evaluation()
        self._writer.write(monotonic_ns())

    @never_compiled
    def _ends_without_optimizer(self) -> bool:
        """Whether a batch after which no optimizer has stepped ends a step all the same.

        It may have been evaluated, or be one of several that make a step; or there is no optimizer.
        """
        self.optimizers.forget_depth()
        if self.purpose.follow_batch():
            self._timer.is_special = True
            self._attach_calls()
        if self.purpose.trains is False:
            self._begin_evaluation()
            return False
        if self.purpose.ends_step():  # and so do those that follow
            self._timer.every_batch, self._timer.on_batch = True, None
            return True
        return False

    def _begin_evaluation(self) -> None:
        """Until the end of this pass only its time is taken, unless an optimizer steps after all."""
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
        """Ends a step of which more is known than the whole, or after which something is to be decided."""
        self._count_steps()
        self._mode.end_within_step(ended_ns, self._sampling.step_ns)
        timer, calls = self._timer, self.chain.boundaries
        self.purpose.trains = timer.in_batches or None
        if timer.steps_made:
            timer.on_batch = None
        micro_steps, timer.batches = timer.batches, 0
        step, cut, rate, others = timer.step, self.chain.cut(ended_ns), 0.0, None
        if self._phases.is_timed:
            rate = self._sampling.rate
            others = self._end_timed_step(step, ended_ns, calls)
        extras = self._extras.of_step(step, micro_steps, self._evidence)
        others = {**(others or {}), **extras} if extras else others
        if cut.spent[BACKWARD] and self.purpose.calls_another_method():
            self._calls.look_inside()
        self.purpose.forget_calls()
        self._writer.add(EndedStep(step, cut, rate, others))
        if self._sampling.left <= 0:
            self._choose()
        elif self._phases.is_timed and self._device is not None:
            self._begin_on_device(self._device)
        if self._calls.attached and not self._phases.is_timed:
            self._attach_calls()
        self._plan()

    def _count_steps(self) -> None:
        """Takes in how many steps have ended since it was planned."""
        passed = self._planned - self._timer.left
        self._planned = self._timer.left
        self._sampling.left -= passed
        self._observers.left -= passed

    def _plan(self) -> None:
        """Has the timer end steps by itself until there is something else to do than to note their time."""
        self._planned = self._timer.left = min(self._sampling.left, self._observers.left)
        self._timer.is_special = self._phases.is_timed or self._extras.has_news

    def _choose(self) -> None:
        """Has the step that begins timed phase by phase, or not."""
        if self._sampling.choose(self._overhead.now_ns()):
            if not self._phases.is_timed:
                self._time_phases()
            elif self._device is not None:
                self._begin_on_device(self._device)
        elif self._phases.is_timed:
            self._leave_phases()

    def _time_phases(self) -> None:
        """From now on every phase is timed."""
        began_ns = monotonic_ns()
        leave_us_alone(self._torch)
        self._phases.begin()
        patches.follow_phases(self.chain, self._torch)
        self._calls.attach()
        self.optimizers.hear_beginnings(wanted=True)
        timer = self._timer
        timer.on_asked, timer.on_got = partial(self.chain.enter, DATA), partial(self.chain.enter, OTHER)
        timer.is_special = True
        for wait in self._rank_waits:
            wait.attach()
        if self._device is not None:
            self._begin_on_device(self._device)
        self._attaching_ns = monotonic_ns() - began_ns

    def _leave_phases(self) -> None:
        """From now on only the end of each step is known."""
        began_ns = monotonic_ns()
        self._phases.is_timed = False
        self.chain.device = None
        self._timer.on_asked = self._timer.on_got = None
        patches.unfollow_phases(self.chain)
        self._attach_calls()
        for wait in self._rank_waits:
            wait.detach()
        self.optimizers.hear_beginnings(wanted=False)
        self._overhead.spend(monotonic_ns() - began_ns)

    def _end_timed_step(self, step: int, ended_ns: int, calls: int) -> dict[str, Any]:
        """What is known only of a step whose phases were timed; accounts for what that has cost."""
        row: dict[str, Any] = {}
        for wait in self._rank_waits:
            row.update(wait.after_step())
        device = self._device
        if device is not None and self.chain.device is not None:
            device.end_step(step, ended_ns)
        self._sampling.spent(calls * self._overhead.call_ns + ATTACHED * self._attaching_ns)
        self._attaching_ns = 0
        return row

    def _begin_on_device(self, device: DeviceClock) -> None:
        device.left -= 1
        device.phase_rate, device.step_ns = self._sampling.rate, self._sampling.step_ns
        due = device.left <= 0 and device.begin_step(self.chain.phase, self._timer.began_ns)
        self.chain.device = device if due else None

    def _hurry(self) -> None:
        self._extras.has_news = self._timer.is_special = True

    def _cut_evaluation(self) -> None:
        """Keeps the time of an evaluation by itself: it is no part of a training step."""
        if not self._timer.batches:
            return
        self._timer.batches = 0
        self._mode.forget()
        self._evaluated(self.chain.cut())

    def _evaluated(self, cut: Cut) -> None:
        self._writer.add(EndedStep(self._timer.step, cut, gap="evaluation"))
        self.purpose.evaluated = False

    @never_compiled
    def _step_is_skipped(self, optimizer: Any) -> None:
        """A loss scaler has not stepped an optimizer, because of an overflow."""
        if self._timer.ends_step(optimizer):
            self._extras.was_skipped = self._timer.is_special = True
            self._timer.make_step()
