"""Waits in a program that has imported PyTorch for its first training step, and follows its training."""

from __future__ import annotations

import functools
import sys
import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.attach.find_models import leaves_of
from stepscope.attach.script import monitors_created
from stepscope.attach.step_losses import StepLosses
from stepscope.guard import shown
from stepscope.steps.compiled_code import exclude_from_compilation, never_compiled, passes_through
from stepscope.steps.patches import Installed, loss_scaler, remove_all
from stepscope.steps.patches import install as patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from stepscope.attach.attached_training import AttachedTraining


class Program(Protocol):
    """What is known of the program before it imports PyTorch."""

    began_ns: int
    """When the program started."""
    trainer: str
    """The trainer that stepscope has added a callback to; empty if there is none."""

    def params(self) -> Any:
        """The hyper-parameters of the program; None if it has none."""

    def say(self, text: str) -> None:
        """Prints one line on standard error."""


def install(torch: ModuleType, program: Program) -> None:
    """Registers hooks that wait for a training; called once PyTorch has been imported."""
    TorchHooks(torch, program).install()


class FirstBatch:
    """When a loop has asked for the newest batch of a data loader, and when it got it; 0 if it never did."""

    def __init__(self) -> None:
        self.asked_ns = self.got_ns = 0
        self._installed: Installed = []

    def install(self, torch: Any) -> None:
        """Times the batches of PyTorch's data loaders."""
        loader = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None and hasattr(torch, "utils"):
            patch(self._installed, loader._BaseDataLoaderIter, "__next__", self._timed)  # noqa: SLF001 - it has no public name

    def close(self) -> None:
        """Stops timing."""
        remove_all(self._installed)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it replaces that method
            self.asked_ns = monotonic_ns()
            batch = original(iterator)
            self.got_ns = monotonic_ns()
            return batch

        return __next__


class TorchHooks:
    """Hooks into `backward`, all optimizers and loss scalers.

    The first backward pass or optimizer step begins a training. Its thread is followed from then on; calls in
    other threads and within backward passes go straight through. A failure of stepscope switches it off.
    """

    def __init__(self, torch: Any, program: Program) -> None:
        self._torch, self._program = torch, program
        self._training: AttachedTraining | None = None
        self._losses = StepLosses(torch)
        self._first_batch = FirstBatch()
        self._installed: Installed = []
        self._before_step_hook: Any = None
        self._after_step_hook: Any = None
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        """Held from the start of the training on: of two threads that train at once, one is followed."""
        self._is_off = self._is_in_backward = self._is_in_optimizer = False
        self._has_added_loss = False
        """Whether the current backward pass is that of a loss."""
        self._stepping: list[int] = []
        """The optimizers that are stepping, outermost first: some call the step of another one."""

    def install(self) -> None:
        """Registers the hooks."""
        torch = self._torch
        patch(self._installed, torch.autograd, "backward", self._followed_backward)
        patch(self._installed, loss_scaler(torch), "scale", self._followed_scale)
        self._first_batch.install(torch)
        hooks = sys.modules["torch.optim.optimizer"]
        self._before_step_hook = hooks.register_optimizer_step_pre_hook(self._step_begins)
        self._after_step_hook = hooks.register_optimizer_step_post_hook(self._step_ended)
        exclude_from_compilation(torch)

    def _followed_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def backward(*arguments: Any, **options: Any) -> Any:
            is_waiting = self._training is None
            if not self._backward_begins(arguments, options):
                return original(*arguments, **options)
            try:
                # The first call has installed the patch that times backward passes.
                return (self._torch.autograd.backward if is_waiting else original)(*arguments, **options)
            except BaseException:
                if self._has_added_loss:
                    self._losses.drop_newest()
                raise
            finally:
                self._is_in_backward = False

        return backward

    def _followed_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self._note_scaled(scaled, outputs)
            return scaled

        return scale

    @never_compiled
    def _note_scaled(self, scaled: Any, outputs: Any) -> None:
        if not self._is_off:
            self._losses.note_scaled(scaled, outputs)

    @never_compiled
    def _backward_begins(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Follows a backward pass of the training thread; returns whether it is one."""
        if self._is_off or self._is_in_backward:
            return False
        try:
            tensors = arguments[0] if arguments else options.get("tensors")
            if self._training is None:
                losses = tensors if isinstance(tensors, list | tuple) else [tensors]
                self._begin(leaves_of(losses))
            if self._training is None or not self._is_training_thread():
                return False
            gradients = arguments[1] if len(arguments) > 1 else options.get("grad_tensors")
            in_optimizer = self._is_in_optimizer
            self._training.backward_begins(tensors, in_optimizer=in_optimizer)
            self._has_added_loss = self._losses.add(tensors, gradients, in_optimizer=in_optimizer)
            self._is_in_backward = True
        except Exception as error:  # noqa: BLE001 - the training goes on whatever happens here
            self._give_up(error)
            return False
        return True

    @never_compiled
    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if self._is_off:
            return
        try:
            if self._training is None:
                if not self._is_last_hook():
                    return
                self._begin({}, optimizer)
            if self._training is None or not (self._is_in_backward or self._is_training_thread()):
                return
            self._losses.begin_optimizer_step()
            self._is_in_optimizer = True
            self._leave(optimizer)  # a step that raised has not ended
            self._stepping.append(id(optimizer))
        except Exception as error:  # noqa: BLE001 - the training goes on whatever happens here
            self._give_up(error)

    @never_compiled
    def _step_ended(self, optimizer: Any, *_: Any) -> None:
        if self._is_off or self._training is None:
            return
        try:
            if self._is_in_backward or self._is_training_thread():
                self._leave(optimizer)
                if self._stepping:
                    return  # the optimizer that has called this one ends the step
                self._is_in_optimizer = False
                self._training.step_ended(optimizer)
                if self._training.is_over:
                    self._switch_off()
        except Exception as error:  # noqa: BLE001 - the training goes on whatever happens here
            self._give_up(error)

    def _leave(self, optimizer: Any) -> None:
        """Forgets an optimizer that is stepping, and those it has called."""
        if id(optimizer) in self._stepping:
            del self._stepping[self._stepping.index(id(optimizer)) :]

    def _is_last_hook(self) -> bool:
        """Whether further hooks can be registered while an optimizer calls this one: it must be the last."""
        hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks  # noqa: SLF001 - it has no public name
        return bool(next(reversed(hooks)) == self._before_step_hook.id)

    def _is_training_thread(self) -> bool:
        """Whether this is the thread that is followed; a new one is, once the last one has ended."""
        thread, current = self._thread, threading.get_ident()
        if thread is None or thread.ident == current:
            return True
        if thread.is_alive() or self._training is None:
            return False
        self._thread = threading.current_thread()
        self._training.move_to_this_thread()
        return True

    def _begin(self, leaves: dict[int, Any], optimizer: Any = None) -> None:
        """Begins to record, unless the program records itself or another thread is just beginning."""
        if not self._start.acquire(blocking=False):
            return
        if monitors_created():
            if self._program.trainer:
                self._program.say(f"watching the steps of {self._program.trainer}")
            self._switch_off()
            return
        from stepscope.attach.attached_training import AttachedTraining  # lazy: it imports the recorder

        self._first_batch.close()
        self._thread = threading.current_thread()
        training = AttachedTraining(self._torch, self._program, self._losses)
        if training.begin(leaves, optimizer, self._first_batch):
            self._training = training
            # The step timer has to be called first.
            self._after_step_hook.remove()
            hooks = sys.modules["torch.optim.optimizer"]
            self._after_step_hook = hooks.register_optimizer_step_post_hook(self._step_ended)
            exclude_from_compilation(self._torch)
        else:
            self._switch_off()

    def _give_up(self, error: Exception) -> None:
        self._switch_off()
        self._program.say(f"the steps of this training are no longer recorded: {shown(error)}")

    def _switch_off(self) -> None:
        # The hooks stay: they cannot be removed while an optimizer calls them.
        self._is_off, self._is_in_backward = True, False
        self._first_batch.close()
        remove_all(self._installed)
