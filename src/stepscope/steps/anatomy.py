"""Takes a step apart: where its time goes, phase by phase, without slowing it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stepscope.schema.keys import phase_key
from stepscope.steps import memory_scene, patches
from stepscope.steps.chain import EVAL, FORWARD, OPTIMIZER, OTHER, Chain, Cut
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.free_evidence import gather
from stepscope.steps.gradients_ready import GradientsReady, is_distributed
from stepscope.steps.observers import Observers
from stepscope.steps.out_of_memory import Witness
from stepscope.steps.sharded import Exchanges, is_sharded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepscope.guard import Guard
    from stepscope.steps.observers import Observer

_Ended = tuple[int, Cut, "dict[str, Any] | None"]
"""A step that has ended: its number, its times, and what else there is to say of it."""

PATIENCE = 64
"""So many batches without an optimizer step mean that there is none, and that each batch is a step."""

TOGETHER_NS = 50_000_000
"""Steps that end within this time are written down together.

After a step the caches of a processor hold the training's data, and code costs several times what it does
when it is run again and again. A process that is killed takes the phases of its last steps along.
"""


class _Handle:
    """Takes a hook away from a list that may just be gone through."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """Takes it away."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class Anatomy:
    """What `TrainingMonitor.watch` sets up: hooks on model and optimizer, and the chain they move on."""

    def __init__(
        self,
        record: Callable[..., None],
        note: Callable[..., None],
        step_in_hand: Callable[[], int],
        guard: Guard,
    ) -> None:
        self._torch = torch = sys.modules["torch"]
        self._record, self._step_in_hand = record, step_in_hand
        self._is_compiling, self._is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
        self.chain = Chain()
        self.chain.after_scaled_step = self._scaled_step_ends
        self._ended: list[_Ended] = []
        self._write_at_ns = 0
        self._handles: list[Any] = []
        self._observers = Observers(guard)
        self._before_steps: list[Callable[[Any], None]] = []
        self._after_steps: list[Callable[[Any], None]] = []
        self._last_optimizer: Any = None
        self._has_news = False
        self._in_batches = False
        self._optimizer_stepped = False
        self._optimizer_seen = False
        self._micro_steps = 0
        self._trained = self._evaluated = self._skipped = False
        self._before_forward = self._before_optimizer = OTHER
        self._depth = self._optimizer_depth = 0
        self._device: DeviceClock | None = None
        if torch.cuda.is_available():
            self._device = DeviceClock(torch, record, guard)
        self.witness = Witness()
        """What a post-mortem asks for."""
        self._evidence, self._loader, self._census = gather(torch, self.witness, note, guard, self._hurry)
        self.observe(self._evidence)
        patches.follow(self.chain, torch)

    def watch(self, model: Any, optimizer: Any) -> None:
        """Times a model, and an optimizer or several; without one, whichever steps."""
        several = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        known = [] if optimizer is None else list(several)
        self.witness.know(model, known)
        self.watch_model(model)
        if known:
            self.watch_optimizers(known)
        else:
            self.watch_any_optimizer()

    def watch_model(self, model: Any) -> None:
        """Times the outermost call of a model; its inner modules are left alone."""
        # Before all others: what a sharded model does first is to wait for the shards of other ranks.
        self._handles.append(model.register_forward_pre_hook(self._forward_begins, prepend=True))
        self._handles.append(model.register_forward_hook(self._forward_ends))
        if is_distributed(model):
            self.observe(GradientsReady(model, self.chain))
        elif is_sharded(model):
            self.observe(Exchanges(self.chain))

    def watch_optimizers(self, optimizers: Iterable[Any]) -> None:
        """Times the steps of these optimizers; the last of them ends a step of the training."""
        known = list(optimizers)
        for optimizer in known:
            last = optimizer is known[-1]
            self._last_optimizer = known[-1]
            self._handles.append(optimizer.register_step_pre_hook(self._optimizer_begins))
            ends = self._last_optimizer_ends if last else self._optimizer_ends
            self._handles.append(optimizer.register_step_post_hook(ends))

    def watch_any_optimizer(self) -> None:
        """The same for whatever optimizer there is."""
        hooks = sys.modules["torch.optim.optimizer"]
        self._handles.append(hooks.register_optimizer_step_pre_hook(self._optimizer_begins))
        self._handles.append(hooks.register_optimizer_step_post_hook(self._last_optimizer_ends))

    def before_step(self, hook: Callable[[Any], None]) -> _Handle:
        """Calls with each optimizer that is about to step."""
        self._before_steps.append(hook)
        return _Handle(self._before_steps, hook)

    def after_step(self, hook: Callable[[Any], None]) -> _Handle:
        """The same after it has stepped."""
        self._after_steps.append(hook)
        return _Handle(self._after_steps, hook)

    def observe(self, observer: Observer) -> None:
        """Adds the figures of an observer to the steps it asks for."""
        self._observers.add(observer)

    def close(self) -> None:
        """Takes all hooks away: model and optimizer are as they were."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        patches.unfollow(self.chain)
        self.chain.device = None
        self._write(0)
        if self._device is not None:
            self._device.flush()
        self._observers.close()

    def forget(self) -> None:
        """Leaves what is not yet written to the process this one was forked from."""
        self._ended = []

    def begin_pass(self, batches: Any) -> None:
        """A pass over the data begins, whose batches are told."""
        self._in_batches = True
        self._loader.meet(batches)
        memory_scene.attend(self._torch)
        self.chain.restart()
        if self._device is not None:
            self._begin_on_device(self._device)

    def end_pass(self) -> None:
        """The pass is over; until the next one, the optimizer alone tells where steps end."""
        self._in_batches = False
        self.witness.batch.leave()
        self.chain.enter(OTHER)

    def end_batch(self) -> bool:
        """The loop is done with a batch; True when that ends a step."""
        self._optimizer_depth = 0  # a step that raised never said that it ended
        if self._evaluated and not self._trained:
            self._cut_evaluation()
            return False
        self._micro_steps += 1
        if not self._optimizer_stepped and (self._optimizer_seen or self._micro_steps < PATIENCE):
            return False
        self._cut()
        return True

    def has_made_a_step(self) -> bool:
        """Whether the optimizer has stepped since a batch last ended a step, and somebody still watches."""
        return self._optimizer_stepped and bool(self._handles)

    def _cut(self) -> None:
        """Ends a step on the host's clock and, where it was timed there, on the device's."""
        step, cut, others = self._step_in_hand(), self.chain.cut(), None
        if self._device is not None:
            if self.chain.device is not None:
                self._device.end_step(step, cut.ended)
            self._begin_on_device(self._device)
        self._observers.left -= 1
        if self._observers.left <= 0 or self._has_news or self._micro_steps > 1 or self._skipped:
            others = self._others(step)
        self._ended.append((step, cut, others))
        if cut.ended >= self._write_at_ns:
            self._write(cut.ended)
        self._optimizer_stepped = self._trained = self._evaluated = self._skipped = False
        self._micro_steps = 0

    def _begin_on_device(self, device: DeviceClock) -> None:
        device.left -= 1
        due = device.left <= 0 and device.begin_step(self.chain.phase, self.chain.began_ns)
        self.chain.device = device if due else None

    def _write(self, now_ns: int) -> None:
        """Writes down the steps that have ended, and what the device has told of them by now."""
        ended, self._ended = self._ended, []
        for step, cut, others in ended:
            row = cut.row()
            if others:
                row.update(others)
            self._record(row, step, cut.ended)
        if self._device is not None:
            self._device.read()
        self._write_at_ns = now_ns + TOGETHER_NS

    def _hurry(self) -> None:
        self._has_news = True

    def _others(self, step: int) -> dict[str, Any]:
        """What there is beside the times of a step that has ended."""
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
        return row

    def _cut_evaluation(self) -> None:
        """Keeps the time of an evaluation by itself: it is no part of a training step."""
        cut = self.chain.cut()
        self._write(cut.ended)
        self._record({phase_key("eval"): cut.took * 1e-9}, self._step_in_hand(), cut.ended)
        self._evaluated = False
        if self._device is not None:
            self._device.abandon()
            self.chain.device = None

    def _forward_begins(self, module: Any, _: Any) -> None:
        if self._is_compiling():
            return
        self._depth += 1
        if self._depth == 1:
            trains = module.training and self._is_grad_enabled()
            if trains:
                self._trained = True
                if self._census.wants_forward:
                    self._census.in_forward()
            else:
                self._evaluated = True
            self._before_forward = self.chain.enter(FORWARD if trains else EVAL)

    def _forward_ends(self, *_: Any) -> None:
        if self._is_compiling():
            return
        self._depth -= 1
        if self._depth <= 0:
            self._depth = 0
            self.chain.enter(self._before_forward)

    def _optimizer_begins(self, optimizer: Any, *_: Any) -> None:
        # One that is derived from another has its hooks called again by the step of that one.
        self._optimizer_depth += 1
        if self._optimizer_depth == 1:
            if self._before_steps:
                for hook in tuple(self._before_steps):
                    hook(optimizer)
            self._before_optimizer = self.chain.enter(OPTIMIZER)

    def _optimizer_ends(self, optimizer: Any, *_: Any) -> bool:
        self._optimizer_depth -= 1
        if self._optimizer_depth > 0:
            return False
        self._optimizer_depth = 0
        self.chain.enter(self._before_optimizer)
        if self._after_steps:
            for hook in tuple(self._after_steps):
                hook(optimizer)
        return True

    def _last_optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        if not self._optimizer_ends(optimizer):
            return
        self._step_is_made()

    def _scaled_step_ends(self, optimizer: Any) -> None:
        """A loss scaler has stepped an optimizer, or has left that out because of an overflow."""
        is_last = self._last_optimizer is None or optimizer is self._last_optimizer
        if is_last and not self._optimizer_stepped and self._trained:
            self._skipped = True
            self._step_is_made()

    def _step_is_made(self) -> None:
        self._optimizer_stepped = self._optimizer_seen = True
        if not self._in_batches:
            self._cut()
