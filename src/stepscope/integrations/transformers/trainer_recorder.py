"""Records what a `Trainer` does: its steps, logged values, evaluations and checkpoints."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from stepscope.integrations.transformers.gpu_callback import FIGURES, recording
from stepscope.recorder.identity.rank_detection import RUN_ID_VARIABLE
from stepscope.recorder.values import as_number, is_on_device
from stepscope.schema.keys import EVAL_GAP_SECONDS, phase_key
from stepscope.steps.phase_timer import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.integrations.callback_monitor import CallbackMonitor
    from stepscope.recorder.monitor import TrainingMonitor
    from stepscope.steps.step_phases import StepPhases

PREFIXES = {"eval_": "eval/", "test_": "test/"}
"""How the names of logged values begin, and how they are recorded; all others are recorded as `train/…`."""

WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "OptimizedModule"})
"""Modules that a trainer puts around a model, and calls instead of it."""

NEVER_ENDED = "an exception ended the training"
DEFAULT_PROJECT = "huggingface"
"""The project that newer versions of Transformers use if the user passes none."""


class TrainerRecorder:
    """Records the trainings of one trainer, one after another.

    The optimizer ends steps, as in any loop; the trainer's own count decides their numbers, and ends a step
    that no optimizer hook has seen, as with DeepSpeed.
    """

    def __init__(self, monitors: CallbackMonitor) -> None:
        self.monitors = monitors
        self.is_training = False
        self.checkpoint_run: dict[str, Any] | None = None
        """The run of the last training, as a checkpoint stores it."""
        self._offset = 0
        """The number of a step minus the trainer's own number of it."""
        self._watches = self._accumulates = False
        self._steps_made = self._logged_step = self._trials = 0
        self._phase_before_saving: int | None = None
        self._evaluation_began_ns: int | None = None

    def begin_training(self, args: Any, state: Any, model: Any, optimizer: Any, stored_run: Any) -> None:
        """Starts recording, and watches the model and its optimizer."""
        if self.is_training:
            self.end_training("failed", NEVER_ENDED)
        stored = StoredRun.of_checkpoint(stored_run) if state.global_step else None
        monitor = self._open(args, state, stored)
        self.is_training = True
        self._number_steps(monitor, state, stored)
        identity = monitor.identity
        self.checkpoint_run = asdict(StoredRun(identity.name, identity.project, self._offset))
        if monitor.step_phases is None:
            self._watches = True
            for wrapper in wrappers_of(model, args):
                monitor.watch(wrapper, gradients=False)
            monitor.watch(model, optimizer)
        self._steps_made = monitor.timer.steps_made
        self._accumulates = args.gradient_accumulation_steps > 1
        monitor.timer.batches = int(self._accumulates)
        recording[id(args)] = monitor

    def describe_training(self, args: Any, state: Any, model: Any) -> None:
        """Records the number of steps and the hyper-parameters, in the first process."""
        monitor = self.monitors.current
        if monitor is not None and state.is_world_process_zero:
            monitor.own_event("total_steps", total_steps=state.max_steps + self._offset)
            monitor.log_params({**hyper_parameters(args, model), **(state.trial_params or {})})

    def begin_batch(self) -> None:
        """Counts a further batch of a step, which begins."""
        if self.monitors.current is not None:
            self.monitors.current.timer.batches += 1

    def end_step(self, state: Any, control: Any) -> None:
        """Gives the step the trainer's number, after an optimizer has ended it."""
        monitor = self.monitors.current
        if monitor is None:
            return
        timer, number = monitor.timer, state.global_step + self._offset
        if timer.steps_made == self._steps_made:
            timer.make_step()
        self._steps_made = timer.steps_made
        if timer.step != number:
            timer.step = number
        timer.batches = int(self._accumulates)
        self.follow_saving(state, control)

    def log(self, args: Any, state: Any, logs: Mapping[str, Any] | None) -> None:
        """Records logged values: those of the process that the trainer lets log."""
        if not logs or not state.is_world_process_zero:
            return
        monitor = self.monitors.current or self._open(args, state)
        number = state.global_step + self._offset
        metrics, texts = _renamed(logs)
        if "loss" in logs:
            self._logged_step = state.global_step
            monitor.log_training_step(
                loss=logs["loss"],
                learning_rate=logs.get("learning_rate"),
                epoch=state.epoch,
                custom_metrics=metrics,
                step=number,
            )
        elif metrics:
            epoch = {} if state.epoch is None else {"epoch": state.epoch}
            monitor.log({**epoch, **metrics}, step=number)
        if texts:
            monitor.event("log", **{**texts, "step": number})

    def begin_evaluation(self, args: Any, state: Any) -> None:
        """Starts recording at the first batch of an evaluation outside a training."""
        if not self.is_training and self._evaluation_began_ns is None:
            self._evaluation_began_ns = monotonic_ns()
            self._open(args, state)

    def end_evaluation(self, state: Any) -> None:
        """Ends an evaluation; what follows is not part of it."""
        monitor, began_ns = self.monitors.current, self._evaluation_began_ns
        self._evaluation_began_ns = None
        if monitor is None:
            return
        if self.is_training:
            if monitor.step_phases is not None:
                monitor.step_phases.mode.end()
            return
        if began_ns is not None:
            seconds = (monotonic_ns() - began_ns) * 1e-9
            times = {phase_key("eval"): seconds, EVAL_GAP_SECONDS: seconds}
            monitor.record_late(times, state.global_step + self._offset)
        self.monitors.end()

    def follow_saving(self, state: Any, control: Any) -> None:
        """Starts the time of a checkpoint if the trainer saves one next, after logging and evaluating."""
        logs_first = control.should_log and state.global_step > self._logged_step
        step_phases = self._step_phases()
        if (
            control.should_save
            and not logs_first
            and not control.should_evaluate
            and self._phase_before_saving is None
            and step_phases is not None
        ):
            self._phase_before_saving = step_phases.phase_timer.enter(CHECKPOINT)

    def end_saving(self) -> None:
        """Ends the time of a checkpoint."""
        before, self._phase_before_saving = self._phase_before_saving, None
        step_phases = self._step_phases()
        if before is not None and step_phases is not None:
            step_phases.phase_timer.enter(before)

    def end_training(self, status: str = "finished", reason: str = "") -> None:
        """Ends the segment; removes the hooks from a model of the user's own monitor."""
        self.end_saving()
        monitor, self.is_training = self.monitors.current, False
        watches, self._watches = self._watches, False
        for trainer in [trainer for trainer, recorded in recording.items() if recorded is monitor]:
            del recording[trainer]
        self.monitors.end(status, reason)
        if monitor is not None and watches:
            monitor.unwatch()

    def _open(self, args: Any, state: Any, stored: StoredRun | None = None) -> TrainingMonitor:
        """The monitor of this training, recording: in a new run, or in the one that a checkpoint belongs to.

        Each trial of a search is a run.
        """
        passed = self.monitors.arguments
        run = passed.get("run") or _run_name(args)
        project = passed.get("project") or _project(args)
        if state.is_hyper_param_search:
            self._trials += 1
            trial = state.trial_name or f"trial-{self._trials}"
            return self.monitors.begin(
                run=f"{run}-{trial}" if run else None, project=project, is_new_run=self._trials > 1
            )
        if stored is not None and stored.matches(run, project):
            return self.monitors.begin(run=stored.run, project=stored.project, resume=True)
        return self.monitors.begin(run=run, project=project)

    def _number_steps(self, monitor: TrainingMonitor, state: Any, stored: StoredRun | None) -> None:
        """Continues after the last step of the run; steps after a checkpoint continue its numbers."""
        timer = monitor.timer
        if not state.global_step:
            self._offset = max(timer.step + timer.is_over - 1, 0)
        elif stored is not None and stored.run == monitor.identity.name:
            self._offset = stored.offset
        timer.step = timer.first_step = state.global_step + self._offset + 1
        timer.is_over = False
        self._logged_step = state.global_step

    def _step_phases(self) -> StepPhases | None:
        monitor = self.monitors.current
        return None if monitor is None or not self.is_training else monitor.step_phases


@dataclass(frozen=True)
class StoredRun:
    """The run that a checkpoint belongs to."""

    run: str
    project: str
    offset: int
    """The number of a step minus the trainer's own number of it."""

    @classmethod
    def of_checkpoint(cls, stored: Any) -> StoredRun | None:
        """Reads it from what a callback has stored; None if that is something else, or nothing."""
        try:
            run, project, offset = stored["run"], stored["project"], stored["offset"]
        except (KeyError, TypeError):
            return None
        is_valid = isinstance(run, str) and isinstance(project, str) and isinstance(offset, int)
        return cls(run, project, max(offset, 0)) if is_valid else None

    def matches(self, run: str | None, project: str | None) -> bool:
        """Whether a resumed training continues the run: the user has asked for no other one."""
        if RUN_ID_VARIABLE in os.environ:
            return False  # `stepscope run` has chosen the run
        names = (None, self.run, re.sub(r"-\d+$", "", self.run))
        return run in names and project in (None, self.project)


def hyper_parameters(args: Any, model: Any) -> dict[str, Any]:
    """The arguments of a training that are set, as plain values, with the configuration of its model."""
    params = dict(args.to_dict())  # without the tokens of hubs
    config = getattr(model, "config", None)
    if config is not None:
        params["model"] = config if isinstance(config, dict) else config.to_dict()
    adapters = getattr(model, "peft_config", None)
    if isinstance(adapters, dict):
        params["peft"] = {
            name: adapter.to_dict() if hasattr(adapter, "to_dict") else adapter
            for name, adapter in adapters.items()
        }
    plain: dict[str, Any] = json.loads(
        json.dumps(params, default=_as_plain, skipkeys=True), object_hook=_without_none
    )
    return plain


def wrappers_of(model: Any, args: Any) -> list[Any]:
    """The modules around a model that the trainer calls instead of it, such as that of a compiled model.

    A callback gets only the model itself, so they are searched for among all objects, once.
    """
    if args.world_size <= 1 and args.n_gpu <= 1 and not getattr(args, "torch_compile", False):
        return []
    kind = sys.modules["torch.nn"].Module
    modules = [
        module
        for module in gc.get_objects()
        if type(module).__name__ in WRAPPERS and issubclass(type(module), kind)
    ]
    inside, wrappers = model, []
    for _ in modules:
        inside = next((module for module in modules if inside in module.children()), None)
        if inside is None:
            break
        wrappers.append(inside)
    return wrappers


def _without_none(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if value is not None}


def _as_plain(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


def _run_name(args: Any) -> str | None:
    """The name of the run in the arguments; older versions set it to the folder if the user passes none."""
    name = getattr(args, "run_name", None)
    return name if isinstance(name, str) and name and name != args.output_dir else None


def _project(args: Any) -> str | None:
    project = getattr(args, "project", None)
    return project if isinstance(project, str) and project != DEFAULT_PROJECT else None


def _renamed(logs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Logged numbers under their names in a run, and logged values of other types.

    The epoch has its own place, and the callback of a GPU records its figures itself.
    """
    numbers: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in logs.items():
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
        key = f"{PREFIXES.get(prefix, 'train/')}{name.removeprefix(prefix)}"
        if name != "epoch" and name not in FIGURES:
            is_number = is_on_device(value) or as_number(value) is not None
            (numbers if is_number else others)[key] = value
    return numbers, others
