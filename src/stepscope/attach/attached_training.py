"""Records a training whose script does not mention stepscope: opens a monitor and watches its models."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.attach.find_models import find_models, leaves_of, name_of, parameters_of
from stepscope.attach.step_owner import StepOwner
from stepscope.recorder.identity.run_reservation import first_step_of_rank
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.monitor_state import monitors_created
from stepscope.recorder.values import learning_rate_of
from stepscope.schema.keys import ANOTHER_TRAINING_EVENT
from stepscope.steps.phase_timer import DATA, FORWARD

if TYPE_CHECKING:
    from stepscope.attach.step_losses import StepLosses
    from stepscope.attach.torch_hooks import FirstBatch, Program
    from stepscope.recorder.watched import Watched
    from stepscope.schema.identity import Identity

MAX_SEARCH_RATIO = {False: 0.005, True: 0.05}
"""Share of the time that searches for models may take, after the first ones: if the last one has found a
model, as in a program that trains many models one after another, and if it has not."""

HOOK_CALLS = 20
"""What the hooks on `backward` and optimizers cost in a step, in hook calls: the time that they add to a step
on a CPU (`python -m benchmarks.step_overhead --with process,unedited`), divided by that of a call."""

MAX_RESETS = 8
"""After so many changes of parameters that their optimizer has not made, they are updates by hand."""

FREE_SEARCHES = 3
"""Number of searches that are made at once: a GAN has two models, an actor-critic method three."""


class AttachedTraining:
    """One training, or several one after another, recorded by a monitor that no script has opened."""

    def __init__(self, torch: Any, program: Program, losses: StepLosses) -> None:
        self._torch, self._program, self._losses = torch, program, losses
        self._monitor = TrainingMonitor(strict=False, params=program.params())
        self._monitors_created = monitors_created()
        self._timer = self._monitor.timer
        self._monitor.overhead.count_hooks(HOOK_CALLS)
        self._watched: Watched | None = None
        self._owner = StepOwner(self._timer, self._trains, self._is_separate, self._begin_another)
        self._models: list[weakref.ref[Any]] = []
        self._stand_in: Any = None
        """The newest model of tensors that no module contains; nothing else keeps it, and it keeps them."""
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """The name of the model that each optimizer changes; empty for tensors that no module contains."""
        self._held: tuple[str, Any] | None = None
        """Name and loss of a step of another model, until it is known whether it ends a training step."""
        self._steps_made = self._changes = 0
        self._has_optimizer = False
        """Whether an optimizer has the parameters of the first model, though it may not have stepped yet."""
        self._is_announced = self._has_modules = self._was_fruitful = False
        self._replaces_tensors = False
        """Whether each update creates new tensors."""
        self._searches = self._searching_ns = 0
        self._began_ns = monotonic_ns()
        self._stop = self._monitor.stop_monitoring
        self.is_over = False
        """Whether the program has opened a monitor itself."""

    def begin(self, leaves: dict[int, Any], optimizer: Any, first_batch: FirstBatch) -> bool:
        """Starts to record, in the middle of the first step; returns False if nothing can be recorded."""
        monitor = self._monitor
        if not monitor.settings.recorder.enabled:
            return False
        monitor.began_ns = self._program.began_ns
        monitor.identity = _ranked(monitor.identity, self._torch)
        with contextlib.suppress(OSError):
            self._timer.step = first_step_of_rank(monitor.directory, monitor.identity)
        monitor.stop_monitoring = self._finish  # type: ignore[method-assign]  # it calls the original
        self._search(leaves if optimizer is None else parameters_of(optimizer), optimizer)
        self._watched = watched = monitor._watched  # noqa: SLF001 - it is this module's own monitor
        if watched is None:
            return False
        self._timer.on_other = self._owner.kind
        watched.step_phases.purpose.begin_within_step()
        watched.step_phases.phase_timer.own_ns = monotonic_ns() - self._timer.began_ns
        if first_batch.got_ns:
            watched.loader_passes.before = 1
            forward_ns = self._began_ns - first_batch.got_ns
            spent = {DATA: first_batch.got_ns - first_batch.asked_ns, FORWARD: forward_ns}
            watched.step_phases.phase_timer.begin_earlier(spent)
        return True

    def backward_begins(self, losses: Any, *, in_optimizer: bool) -> None:
        """Ends a step that no optimizer has ended: a scaler has skipped it, or it was updated by hand."""
        if self._timer.steps_made != self._steps_made:
            self._end_step()
        elif (
            not self._timer.steps_made
            and not in_optimizer
            and (self._has_changed() or self._was_replaced(losses))
        ):
            self._follow_change()

    def step_ended(self, optimizer: Any) -> None:
        """Records the loss of a step, or that of an optimizer which does not end steps."""
        if monitors_created() != self._monitors_created:
            self.is_over = True
            self._stop()
        elif self._timer.steps_made != self._steps_made:
            self._end_step()
            if not self._is_announced:
                self._announce(type(optimizer).__name__, self._names.get(optimizer, ""))
        elif optimizer is not self._timer.last_optimizer:
            loss, name = self._losses.take(), self._names.get(optimizer)
            if loss is None or not name:
                return
            self._record_held()
            self._held = (name, loss)
            if not self._owner.is_undecided(optimizer):
                self._record_held()

    def move_to_this_thread(self) -> None:
        """Follows another thread from now on."""
        if self._watched is not None:
            self._watched.step_phases._thread.move()  # noqa: SLF001 - the monitor is this module's own

    def _record_held(self, steps: int = 0) -> None:
        """Records a loss that was held back: of the step before the last if both have ended just now."""
        if self._held is None:
            return
        (name, loss), self._held = self._held, None
        if steps < 2:
            self._monitor.log({f"loss/{name}": loss})
            return
        timer = self._timer
        step = timer.step
        self._monitor.log({"loss": loss}, step - 1)
        timer.step = step

    def _end_step(self) -> None:
        timer = self._timer
        self._record_held(timer.steps_made - self._steps_made)
        self._steps_made = timer.steps_made
        loss = self._losses.take()
        if loss is not None:
            stepped = timer.last_optimizer
            self._monitor.log_loss(loss, None if stepped is None else learning_rate_of(stepped))

    def _follow_change(self) -> None:
        """Ends a step, unless parameters were only reset, as after a trial of the size of batches."""
        self._changes += 1
        if self._has_optimizer and self._changes < MAX_RESETS:
            self._losses.take()
        else:
            self._end_hand_written_step()

    def _end_hand_written_step(self) -> None:
        self._monitor._ends_by_log = None  # noqa: SLF001 - then each call of `log_training_step` ends a step
        self._monitor.log_training_step(loss=self._losses.take())
        if not self._is_announced:
            self._announce("hand-written updates", ", ".join(self._parameters_by_name()))

    def _has_changed(self) -> bool:
        return self._watched is not None and self._watched.step_phases.purpose.has_changed()

    def _was_replaced(self, losses: Any) -> bool:
        """Whether tensors were updated by new ones, which are watched from now on."""
        stand_in = self._stand_in
        if stand_in is None:
            return False
        leaves = leaves_of(losses if isinstance(losses, list | tuple) else [losses])
        if not leaves or not leaves.keys().isdisjoint(map(id, stand_in.parameters())):
            return False
        self._replaces_tensors = True
        stand_in.replace(leaves.values())
        self._has_changed()  # compares with the new tensors from now on
        return True

    def _trains(self, optimizer: Any) -> bool:
        """Whether an optimizer trains a model, which is watched from then on."""
        if optimizer not in self._names:
            tensors = parameters_of(optimizer)
            if set().union(*self._parameters_by_name().values()).issuperset(tensors):
                self._names[optimizer] = self._name_for(tensors)
            elif self._may_search():
                self._search(tensors, optimizer)
            else:  # its steps count, although its model is not watched
                return any(isinstance(tensor, self._torch.nn.Parameter) for tensor in tensors.values())
        name = self._names.get(optimizer)
        if name or (name is not None and not self._has_modules):
            return True
        # An attack on a model optimizes its inputs, which is no training of its own. But an optimizer of a
        # model that was replaced ends the steps of the loop: it updates nothing, and the diagnosis says so.
        return name is not None and all(tensor.grad is None for tensor in parameters_of(optimizer).values())

    def _is_separate(self, last: Any) -> bool:
        """Whether the newest loss does not depend on what another optimizer changes: another training."""
        leaves = self._losses.newest_leaves()
        return bool(leaves) and leaves.keys().isdisjoint(parameters_of(last))

    def _begin_another(self) -> None:
        """Records that another model is trained from this step on: the loss starts again."""
        self._losses.keep_step()
        self._monitor.own_event(ANOTHER_TRAINING_EVENT, step=self._timer.step + self._timer.is_over)

    def _may_search(self) -> bool:
        allowed_ns = MAX_SEARCH_RATIO[self._was_fruitful] * (monotonic_ns() - self._began_ns)
        return self._searches < FREE_SEARCHES or self._searching_ns < allowed_ns

    def _search(self, tensors: dict[int, Any], optimizer: Any = None) -> None:
        """Finds and watches the models of some tensors."""
        began_ns = monotonic_ns()
        search = find_models(self._torch, tensors, optimizer)
        self._was_fruitful = search.has_modules
        known = (parameters_of(candidate) for candidate in search.optimizers)
        self._has_optimizer |= any(not tensors.keys().isdisjoint(others) for others in known)
        if search.has_modules or not self._has_modules:
            self._has_modules |= search.has_modules
            if not search.has_modules:
                self._stand_in = search.models[-1]
            self._models = [reference for reference in self._models if reference() is not None]
            for model in search.models:
                if all(reference() is not model for reference in self._models):
                    self._models.append(weakref.ref(model))
                    self._monitor.watch(model)
        self._owner.add_known(other for other in search.optimizers if other is not optimizer)
        if optimizer is not None:
            self._names[optimizer] = self._name_for(tensors)
        self._searches += 1
        took_ns = monotonic_ns() - began_ns
        self._searching_ns += took_ns
        if self._watched is not None:  # within a step, of which it is no part
            self._watched.step_phases.phase_timer.own_ns += took_ns
            self._timer.is_special = True

    def _parameters_by_name(self) -> dict[str, set[int]]:
        """The ids of the parameters of the watched models that still exist, by the name of the model."""
        models = [model for reference in self._models if (model := reference()) is not None]
        parameters: dict[str, set[int]] = {}
        for model in models:
            name = "" if model is self._stand_in else name_of(model)
            parameters.setdefault(name, set()).update(map(id, model.parameters()))
        return parameters

    def _name_for(self, tensors: dict[int, Any]) -> str:
        """The names of the watched models that contain some of the tensors; empty if none does."""
        known = self._parameters_by_name()
        return ", ".join(name for name, ids in known.items() if name and not ids.isdisjoint(tensors))

    def _announce(self, updates: str, model: str) -> None:
        self._is_announced = True
        if self._monitor.identity.rank == 0:
            self._program.say(f"watching the steps of {updates} on {model or 'tensors'}")

    def _finish(self, status: str = "finished", reason: str = "") -> None:
        """Records a last step that nothing has ended, and ends the segment."""
        self._record_held()
        if self._timer.steps_made != self._steps_made:
            self._end_step()
        elif not self._timer.steps_made and (self._has_changed() or self._replaces_tensors):
            self._follow_change()
        self._stop(status, reason)


def _ranked(identity: Identity, torch: Any) -> Identity:
    """The identity with the rank that the program has given itself, where its environment has none."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return replace(identity, rank=distributed.get_rank(), world_size=distributed.get_world_size())
    process = sys.modules.get("multiprocessing.process")
    numbers = () if process is None else getattr(process.current_process(), "_identity", ())
    if not numbers or "RANK" in os.environ:
        return identity
    rank = numbers[-1] - 1  # the processes that one program starts are numbered from 1
    return replace(identity, rank=rank, world_size=max(identity.world_size, rank + 1))
