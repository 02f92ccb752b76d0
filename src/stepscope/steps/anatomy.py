"""Takes a step apart: where its time goes, phase by phase, without slowing it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.steps import memory_scene, patches
from stepscope.steps.chain import EVAL, FORWARD, OPTIMIZER, OTHER, Chain, phase_key
from stepscope.steps.device_clock import DeviceClock
from stepscope.steps.free_evidence import gather
from stepscope.steps.gradients_ready import GradientsReady, is_distributed
from stepscope.steps.out_of_memory import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepscope.guard import Guard

PATIENCE = 64
"""So many batches without an optimizer step mean that there is none, and that each batch is a step."""


class Observer(Protocol):
    """Something that has figures of its own at the end of a step."""

    def after_step(self, step: int) -> Mapping[str, Any]:
        """Its figures of the step that has just ended; called in the training thread, so it must be quick."""

    def close(self) -> None:
        """Undoes what it did to be able to observe."""


class Anatomy:
    """What `TrainingMonitor.watch` sets up: hooks on model and optimizer, and the chain they move on."""

    def __init__(
        self,
        record: Callable[[Mapping[str, Any]], None],
        record_late: Callable[[Mapping[str, Any], int], None],
        note: Callable[..., None],
        step_in_hand: Callable[[], int],
        guard: Guard,
    ) -> None:
        self._torch = torch = sys.modules["torch"]
        self._record, self._step_in_hand, self._guard = record, step_in_hand, guard
        self.chain = Chain()
        self._handles: list[Any] = []
        self._observers: list[Observer] = []
        self._in_batches = False
        self._optimizer_stepped = False
        self._optimizer_seen = False
        self._micro_steps = 0
        self._trained = self._evaluated = False
        self._before_forward = self._before_optimizer = OTHER
        self._depth = self._optimizer_depth = 0
        self._device: DeviceClock | None = None
        if torch.cuda.is_available():
            self._device = DeviceClock(torch, record_late, guard)
        self.witness = Witness()
        """What a post-mortem asks for."""
        self._evidence = gather(torch, self.witness, note, guard)
        self.observe(self._evidence.observer)
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
        self._handles.append(model.register_forward_pre_hook(self._forward_begins))
        self._handles.append(model.register_forward_hook(self._forward_ends))
        if is_distributed(model):
            self.observe(GradientsReady(model, self.chain))

    def watch_optimizers(self, optimizers: Iterable[Any]) -> None:
        """Times the steps of these optimizers; the last of them ends a step of the training."""
        known = list(optimizers)
        for optimizer in known:
            last = optimizer is known[-1]
            self._handles.append(optimizer.register_step_pre_hook(self._optimizer_begins))
            ends = self._last_optimizer_ends if last else self._optimizer_ends
            self._handles.append(optimizer.register_step_post_hook(ends))

    def watch_any_optimizer(self) -> None:
        """The same for whatever optimizer there is."""
        hooks = sys.modules["torch.optim.optimizer"]
        self._handles.append(hooks.register_optimizer_step_pre_hook(self._optimizer_begins))
        self._handles.append(hooks.register_optimizer_step_post_hook(self._last_optimizer_ends))

    def observe(self, observer: Observer) -> None:
        """Adds the figures of an observer to every step."""
        self._observers.append(observer)

    def close(self) -> None:
        """Takes all hooks away: model and optimizer are as they were."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        patches.unfollow(self.chain)
        self.chain.device = None
        if self._device is not None:
            self._device.flush()
        for observer in self._observers:
            observer.close()
        self._observers.clear()

    def begin_pass(self, batches: Any) -> None:
        """A pass over the data begins, whose batches are told."""
        self._in_batches = True
        self._evidence.loader.meet(batches)
        memory_scene.attend(self._torch)
        self.chain.restart()
        if self._device is not None:
            timed = self._device.begin_step(self.chain.phase, self.chain.began_ns)
            self.chain.device = self._device if timed else None

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

    def _cut(self) -> None:
        step = self._step_in_hand()
        row: dict[str, Any] = dict(self._cut_both(step))
        if self._micro_steps > 1:
            row["micro_steps"] = self._micro_steps
        for observer in tuple(self._observers):
            try:
                row.update(observer.after_step(step))
            except Exception as error:  # noqa: BLE001 - nothing of ours may stop a training
                self._observers.remove(observer)
                observer.close()
                self._guard.complain("observer", f"{type(observer).__name__} rests: {error!r}", error)
        self._record(row)
        self._optimizer_stepped = self._trained = self._evaluated = False
        self._micro_steps = 0

    def _cut_both(self, step: int) -> dict[str, float]:
        """Ends the step on the host's clock and, where it was timed there, on the device's."""
        row = self.chain.cut()
        if self._device is not None:
            now_ns = self.chain.began_ns
            self._device.end_step(step, now_ns)
            timed = self._device.begin_step(self.chain.phase, now_ns)
            self.chain.device = self._device if timed else None
        return row

    def _cut_evaluation(self) -> None:
        """Keeps the time of an evaluation by itself: it is no part of a training step."""
        whole = sum(took for key, took in self.chain.cut().items() if key != "step_seconds")
        self._record({phase_key("eval"): whole})
        self._evaluated = False
        if self._device is not None:
            self._device.abandon()
            self.chain.device = None

    def _forward_begins(self, module: Any, _: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth == 1:
            trains = module.training and self._torch.is_grad_enabled()
            if trains:
                self._trained = True
                if self._evidence.census.wants_forward:
                    self._evidence.census.in_forward()
            else:
                self._evaluated = True
            self._before_forward = self.chain.enter(FORWARD if trains else EVAL)

    def _forward_ends(self, *_: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        self._depth -= 1
        if self._depth <= 0:
            self._depth = 0
            self.chain.enter(self._before_forward)

    def _optimizer_begins(self, *_: Any) -> None:
        # One that is derived from another has its hooks called again by the step of that one.
        self._optimizer_depth += 1
        if self._optimizer_depth == 1:
            self._before_optimizer = self.chain.enter(OPTIMIZER)

    def _optimizer_ends(self, *_: Any) -> bool:
        self._optimizer_depth -= 1
        if self._optimizer_depth > 0:
            return False
        self._optimizer_depth = 0
        self.chain.enter(self._before_optimizer)
        return True

    def _last_optimizer_ends(self, *_: Any) -> None:
        if not self._optimizer_ends():
            return
        self._optimizer_stepped = self._optimizer_seen = True
        if not self._in_batches:
            self._cut()
