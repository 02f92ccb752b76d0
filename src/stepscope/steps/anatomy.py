"""Takes a step apart: where its time goes, phase by phase, without slowing it."""

from __future__ import annotations

import sys
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.steps import memory_scene, patches
from stepscope.steps.chain import EVAL, FORWARD, OPTIMIZER, OTHER, Chain
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.free_evidence import gather
from stepscope.steps.gradients_ready import GradientsReady, is_distributed
from stepscope.steps.model_calls import ModelCalls
from stepscope.steps.observers import Observers
from stepscope.steps.optimizer_steps import OptimizerSteps
from stepscope.steps.out_of_memory import Witness
from stepscope.steps.phase_sampling import PhaseSampling
from stepscope.steps.sharded import Exchanges, is_sharded
from stepscope.steps.step_writer import EndedStep, StepWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.guard import Guard
    from stepscope.steps.gradients_ready import RankWait
    from stepscope.steps.observers import Observer
    from stepscope.steps.step_writer import StepRecorder

PATIENCE = 64
"""So many batches without an optimizer step mean that there is none, and that each batch is a step."""

MAX_UNCLEAR = 3
"""Batches whose model calls are looked at to find out whether a pass over data trains or evaluates."""


class Anatomy:
    """What `TrainingMonitor.watch` sets up: it times steps, and of some of them every phase.

    In a step that is timed phase by phase, calls of the model, of the optimizer and of a few functions of
    PyTorch move a chain of phases on. In the others nothing of ours is there but for the hook that tells
    when an optimizer has stepped.
    """

    def __init__(
        self,
        recorder: StepRecorder,
        guard: Guard,
    ) -> None:
        self._torch = torch = sys.modules["torch"]
        record, note, overhead = recorder.record_late, recorder.own_event, recorder.overhead
        self._step_in_hand, self._overhead = recorder.step_in_hand, overhead
        self._is_grad_enabled = torch.is_grad_enabled
        self.chain = Chain()
        self.chain.on_skipped_step = self._step_is_skipped
        self._calls = ModelCalls(self, torch.compiler.is_compiling)
        self._optimizers = OptimizerSteps(self, overhead)
        self._sampling = PhaseSampling(overhead, monotonic_ns())
        self._writer = StepWriter(recorder)
        self._observers = Observers(guard)
        self._rank_waits: list[RankWait] = []
        self._thread = get_ident()
        self.is_timed = False
        """Whether the step in hand is timed phase by phase; to be read only."""
        self._has_news = False
        self._in_batches = False
        self._optimizer_stepped = False
        self._optimizer_seen = False
        self._micro_steps = 0
        self._trained = self._evaluated = self._skipped = False
        self._pass_trains: bool | None = None
        self._unclear = 0
        self._before_optimizer = OTHER
        self._attaching_ns = 0
        self._device: DeviceClock | None = None
        if torch.cuda.is_available():
            self._device = DeviceClock(torch, record, guard, overhead)
            self._writer.after_writing = self._device.read
        self.witness = Witness()
        """What a post-mortem asks for."""
        self._evidence, self._loader, self._census = gather(torch, self.witness, note, guard, self._hurry)
        self.observe(self._evidence)
        patches.follow(self.chain, torch)

    def watch(self, model: Any, optimizer: Any) -> None:
        """Times a model, and an optimizer or several; without one, whichever steps."""
        several = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        known = [] if optimizer is None else list(several)
        waits: list[RankWait] = []
        if is_distributed(model):
            waits.append(GradientsReady(model, self.chain))
        elif is_sharded(model):
            waits.append(Exchanges(self.chain))
        self.witness.know(model, known)
        self._calls.add(model)
        if known:
            self._optimizers.add(known)
        else:
            self._optimizers.add_any()
        self._rank_waits += waits
        if not self.is_timed:
            self._time_phases()

    def before_step(self, hook: Callable[[Any], None]) -> Any:
        """Calls with each optimizer that is about to step; gives what takes the hook away by `remove`."""
        return self._optimizers.before_step(hook)

    def after_step(self, hook: Callable[[Any], None]) -> Any:
        """The same after it has stepped."""
        return self._optimizers.after_step(hook)

    def observe(self, observer: Observer) -> None:
        """Adds the figures of an observer to the steps it asks for."""
        self._observers.add(observer)

    def close(self) -> None:
        """Takes everything away: model, optimizer and PyTorch are as they were."""
        self._leave_phases()
        self._calls.detach()
        self._optimizers.close()
        patches.unfollow(self.chain)
        self._writer.write(monotonic_ns())
        if self._device is not None:
            self._device.flush()
        self._observers.close()

    def forget(self) -> None:
        """Leaves what is not yet written to the process this one was forked from."""
        self._writer.forget()

    def begin_pass(self, batches: Any) -> None:
        """A pass over the data begins, whose batches are told."""
        self._in_batches = self._writer.knows_wait = True
        self._pass_trains, self._unclear = None, 0
        self._loader.meet(batches)
        memory_scene.attend(self._torch)
        self.chain.restart()
        if self._device is not None and self.is_timed:
            self._begin_on_device(self._device)

    def end_pass(self) -> None:
        """The pass is over; until the next one, the optimizer alone tells where steps end."""
        self._in_batches = False
        self.witness.batch.leave()
        self.chain.enter(OTHER)

    def end_batch(self) -> bool:
        """The loop is done with a batch; True when that ends a step."""
        self._micro_steps += 1
        if not self._optimizer_stepped and not self._ends_without_optimizer():
            return False
        self._end_step()
        return True

    def has_made_a_step(self) -> bool:
        """Whether the optimizer has stepped since a batch last ended a step, and somebody still watches."""
        return self._optimizer_stepped and self._optimizers.is_watching()

    def _ends_without_optimizer(self) -> bool:
        """Whether a batch after which no optimizer has stepped ends a step all the same.

        It may have been evaluated, or be one of several that make a step; or there is no optimizer.
        """
        self._optimizers.forget_depth()
        if self._evaluated and not self._trained and self._pass_trains is not True:
            self._pass_trains = False
        elif self._trained:
            self._pass_trains = True
        elif self._pass_trains is None:
            self._find_out_what_pass_does()
        if self._pass_trains is False:
            self._cut_evaluation()
            return False
        return not self._optimizer_seen and self._micro_steps >= PATIENCE

    def _find_out_what_pass_does(self) -> None:
        """Nothing is known of this batch, as its calls of the model were not seen: those of the next are."""
        self._unclear += 1
        if any(getattr(model, "training", True) is False for model in self._calls.models):
            self._pass_trains = False
        elif self._unclear > MAX_UNCLEAR:
            self._pass_trains = True
        self._attach_calls()

    def _attach_calls(self) -> None:
        if self.is_timed or (self._in_batches and self._pass_trains is None):
            self._calls.attach()
        else:
            self._calls.detach()

    def _end_step(self) -> None:
        """Ends a step; what else there is to do than to note its time is done in `_cut`."""
        chain, sampling, observers = self.chain, self._sampling, self._observers
        self._pass_trains = self._in_batches or None
        sampling.left -= 1
        observers.left -= 1
        is_plain = not (
            chain.boundaries
            or self.is_timed
            or sampling.left <= 0
            or observers.left <= 0
            or self._has_news
            or self._skipped
            or self._micro_steps > 1
        )
        if is_plain:
            now_ns = monotonic_ns()
            self._writer.add_plain(now_ns, self._step_in_hand(), now_ns - chain.began_ns, chain.waited_ns)
            chain.cut_whole(now_ns)
        else:
            self._cut()
        self._optimizer_stepped = self._trained = self._evaluated = self._skipped = False
        self._micro_steps = 0

    def _cut(self) -> None:
        """Ends a step of which more is known than the whole."""
        calls = self.chain.boundaries
        step, cut, others = self._step_in_hand(), self.chain.cut(), None
        rate = 0.0
        if self.is_timed:
            rate = self._sampling.rate
            others = self._end_timed_step(step, cut.ended, calls)
        if self._observers.left <= 0 or self._has_news or self._micro_steps > 1 or self._skipped:
            others = {**(others or {}), **self._others(step)}
        self._writer.add(EndedStep(step, cut, rate, others))
        if self._sampling.left <= 0:
            self._choose(cut.ended)
        elif self.is_timed and self._device is not None:
            self._begin_on_device(self._device)

    def _choose(self, now_ns: int) -> None:
        """Has the step that begins timed phase by phase, or not."""
        if self._sampling.choose(now_ns):
            if not self.is_timed:
                self._time_phases()
            elif self._device is not None:
                self._begin_on_device(self._device)
        elif self.is_timed:
            self._leave_phases()

    def _time_phases(self) -> None:
        """From now on every phase is timed."""
        began_ns = monotonic_ns()
        self.is_timed = True
        self._thread = get_ident()
        patches.follow_phases(self.chain, self._torch)
        self._calls.attach()
        self._optimizers.hear_beginnings(wanted=True)
        for wait in self._rank_waits:
            wait.attach()
        if self._device is not None:
            self._begin_on_device(self._device)
        self._attaching_ns = monotonic_ns() - began_ns

    def _leave_phases(self) -> None:
        """From now on only the end of each step is known."""
        began_ns = monotonic_ns()
        self.is_timed = False
        self.chain.device = None
        patches.unfollow_phases(self.chain)
        self._attach_calls()
        for wait in self._rank_waits:
            wait.detach()
        self._optimizers.hear_beginnings(wanted=False)
        self._overhead.spend(monotonic_ns() - began_ns)

    def _end_timed_step(self, step: int, ended_ns: int, calls: int) -> dict[str, Any]:
        """What is known only of a step whose phases were timed; accounts for what that has cost."""
        row: dict[str, Any] = {}
        for wait in self._rank_waits:
            row.update(wait.after_step())
        device = self._device
        if device is not None and self.chain.device is not None:
            device.end_step(step, ended_ns)
        # What was attached for this step alone is taken away again, for about the same.
        self._sampling.spent(calls * self._overhead.call_ns + 2 * self._attaching_ns)
        self._attaching_ns = 0
        return row

    def _begin_on_device(self, device: DeviceClock) -> None:
        device.left -= 1
        device.phase_rate = self._sampling.rate
        due = device.left <= 0 and device.begin_step(self.chain.phase, self.chain.began_ns)
        self.chain.device = device if due else None

    def _hurry(self) -> None:
        self._has_news = True

    def _others(self, step: int) -> dict[str, Any]:
        """What there is beside the times of a step that has ended."""
        began_ns = monotonic_ns()
        row: dict[str, Any] = {}
        if self._micro_steps > 1:
            row["micro_steps"] = self._micro_steps
        if self._skipped:
            row["optimizer_skipped"] = 1
        if self._observers.left <= 0:
            self.witness.batch.micro_steps = max(self._micro_steps, 1)
            row.update(self._observers.ask(step))
        if self._has_news:
            # After the look at everything, which tells what is new as well and leaves nothing to tell again.
            self._has_news = False
            row.update(self._evidence.news())
        self._overhead.spend(monotonic_ns() - began_ns)
        return row

    def _cut_evaluation(self) -> None:
        """Keeps the time of an evaluation by itself: it is no part of a training step."""
        self._writer.add(EndedStep(self._step_in_hand(), self.chain.cut(), is_evaluation=True))
        self._evaluated = False
        self._micro_steps = 0
        if self._device is not None:
            self._device.abandon()
            self.chain.device = None

    def call_begins(self, model: Any) -> int:
        """A model that is watched is called; its inner modules are left alone."""
        before = self.chain.phase
        if before in (FORWARD, EVAL) or get_ident() != self._thread:
            return -1
        is_training = getattr(model, "training", True) or self._pass_trains is True
        trains = is_training and self._is_grad_enabled()
        if trains:
            self._trained = True
            if self._census.wants_forward:
                self._census.in_forward()
        else:
            self._evaluated = True
        return self.chain.enter(FORWARD if trains else EVAL)

    def call_ends(self, before: int) -> None:
        """The call is over; what came before it goes on."""
        if before >= 0:
            self.chain.enter(before)

    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        if self.is_timed:
            self._before_optimizer = self.chain.enter(OPTIMIZER)

    def optimizer_ends(self) -> None:
        """It has stepped; what came before that goes on."""
        if self.is_timed and self.chain.phase == OPTIMIZER:
            self.chain.enter(self._before_optimizer)

    def _step_is_skipped(self, optimizer: Any) -> None:
        """A loss scaler has not stepped an optimizer, because of an overflow."""
        if self._optimizers.is_last(optimizer):
            self._skipped = True
            self.step_is_made()

    def step_is_made(self) -> None:
        """The optimizer that ends a step of the training has stepped."""
        self.chain.steps_made += 1
        self._optimizer_stepped = self._optimizer_seen = True
        if not self._in_batches:
            self._end_step()
