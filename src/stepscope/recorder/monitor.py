"""`TrainingMonitor`: the main class of the public API."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stepscope.errors import RecorderError
from stepscope.guard import Guard, shown
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.batches import Batches, timed
from stepscope.recorder.exit.exit_reason import outcome
from stepscope.recorder.identity import notebook_kernel, rank_detection
from stepscope.recorder.identity.params import PlainParams, params_argument
from stepscope.recorder.identity.run_names import without_secrets
from stepscope.recorder.identity.run_reservation import reserve_for_monitor
from stepscope.recorder.model_changes import ModelChanges
from stepscope.recorder.monitor_settings import (
    ending_arguments,
    folder_argument,
    monitor_settings,
    resume_argument,
    strict_argument,
    text_argument,
)
from stepscope.recorder.monitor_state import State
from stepscope.recorder.on_demand import OnDemand
from stepscope.recorder.phases import BatchTimes, Phase
from stepscope.recorder.recording import Recording, monitors
from stepscope.recorder.values import as_step
from stepscope.steps.overhead import Overhead

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from stepscope.config.find import Source
    from stepscope.recorder.watched import Watched
    from stepscope.steps.step_phases import StepPhases

Batch = TypeVar("Batch")

_RECORDING_CALLS = (
    "start_monitoring", "_start_once", "stop_monitoring", "log", "log_loss", "log_params",
    "log_training_step", "log_training_metrics", "record_metrics", "record_now", "record_late", "watch",
    "event",
)  # fmt: skip
"""Methods that do nothing if recording is disabled."""


class TrainingMonitor(OnDemand):
    """Records a training run: metrics, phases, events, how it ended.

        with TrainingMonitor(run="mnist") as monitor:
            for x, y in monitor.batches(loader):
                loss = train_step(x, y)
                monitor.log_training_step(loss=loss)

    `config` has settings of stepscope: a mapping, the path of a YAML file, or nothing; `params` has the
    hyper-parameters of the run. If another run has the name, this one becomes `mnist-2`; with `resume=True`
    the newest run of that name continues. Wrong arguments raise ConfigError here. No method raises into
    training or waits for anything, except `stop_monitoring`, which returns when every point can be read; with
    `strict=True` a value that cannot be kept raises RecorderError.
    """

    def __init__(  # noqa: PLR0913 - all by name, and each optional
        self,
        config: Source = None,
        *,
        run: str | None = None,
        project: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
        params: Any = None,
        resume: bool = False,
    ) -> None:
        self.settings = monitor_settings(config, strict=strict_argument(strict))
        recorder = self.settings.recorder
        self._guard = Guard(strict=recorder.enabled and (recorder.strict if strict is None else strict))
        self._folder = folder_argument(directory, self.settings)
        name = text_argument("run", run) or self.settings.run
        identity = rank_detection.identify(name, text_argument("project", project) or self.settings.project)
        self._resumes, self._has_name = resume_argument(resume, name), name is None
        is_in_cell = notebook_kernel.is_in_cell(sys._getframe(1))  # noqa: SLF001 - the documented way to the caller
        self._cell_name = (str(self._folder), identity.project, name) if is_in_cell else None
        folder = self._folder if recorder.enabled else None
        self.identity = without_secrets(identity, folder, privacy_of(self.settings.privacy), self._guard.tell)
        self._is_copy = rank_detection.is_imported_by_worker()
        self._reset(params_argument(params))

    def _reset(self, params: PlainParams | None = None) -> None:
        """Sets the state before recording; hyper-parameters are kept until it starts."""
        super().__init__()
        self.overhead = Overhead(self.settings.recorder.max_overhead)
        """The overhead budget of watching, and what it has cost."""
        self.began_ns: int | None = monotonic_ns()
        """When recording began; None once the start-up time has been recorded."""
        self._batch_times = BatchTimes(self)
        self._watched: Watched | None = None
        self._model_changes = ModelChanges(self._guard)
        self._params = params
        if not self.settings.recorder.enabled:
            for call in _RECORDING_CALLS:
                setattr(self, call, _do_nothing)

    @property
    def directory(self) -> Path:
        """The store folder."""
        return self._folder

    @property
    def step_phases(self) -> StepPhases | None:
        """The timing of the watched models' steps, for callbacks of frameworks; None if none is watched."""
        return None if self._watched is None else self._watched.step_phases

    def start_monitoring(self) -> None:
        """Starts a segment of the run, as the first log call does; does nothing if one is open."""
        if self._recording is None:
            if self._watched is None and not self.timer.in_batches:
                self.began_ns = monotonic_ns()  # earlier time is not part of the first step
                self._batch_times.begin()
            self._start_once()

    def _start(self) -> None:
        if self._is_copy and self._join_parent():
            return
        if self._cell_name is not None:
            self._guard.attempt("Ending the run of the same name", self._end_earlier)
        if not self._has_name:
            self._has_name = True
            self._guard.attempt("Reserving the name of the run", self._reserve_name)
        self._stats.begin()
        if self.settings.logging.directory is not None:
            self._guard.attempt("Starting the log files", self.logs.start, self.identity)
        self.identity = rank_detection.started_at(self.identity, self.began_ns)
        recording = Recording(self.identity, self._folder, self.settings, self._guard)
        self._enter(State.RECORDING, recording)
        if self._alerts is not None:
            self._guard.attempt("Recording the alert rules", self._alerts.resend_rules)
        recording.on_resolved = self._follow_late_loss
        self._guard.attempt(
            "A part of the start",
            lambda: recording.begin(on_end=self.stop_monitoring, on_failure=self._on_failure),
        )
        monitors.add(self)
        params, self._params = self._params, None
        if params is not None:
            self._note_params(recording, params)

    def _end_earlier(self) -> None:
        """Ends the run of the monitor that the same cell of a notebook has made before, if it is open."""
        for earlier in [other for other in monitors if other._cell_name == self._cell_name]:  # noqa: SLF001
            if earlier is not self:
                earlier.stop_monitoring("finished", "its cell was run again")

    def _reserve_name(self) -> None:
        self.identity, first_step = reserve_for_monitor(
            self._folder, self.identity, resume=self._resumes, warn=self._guard.tell
        )
        self.timer.step = self.timer.step or first_step
        self._resumed_at = first_step or None

    def _join_parent(self) -> bool:
        """Records as a worker into the run of the parent process, whose script is imported again here.

        Returns False if the parent records nothing and the import is over: then this process has its own run.
        """
        parent = rank_detection.recording_of_parent(self._folder)
        if parent is None:
            return rank_detection.is_imported_by_worker()
        self.identity = parent
        self._record_as_worker()
        return True

    def _record_as_worker(self) -> None:
        recording = Recording.of_worker(self.identity, self._folder, self.settings, self._guard)
        self._enter(State.CHILD, recording)
        monitors.add(self)
        if self.settings.logging.directory is not None:
            self.logs.start()

    def stop_monitoring(self, status: str = "finished", reason: str = "") -> None:
        """Ends the segment; when it returns, every point is in the store."""
        recording = self._recording
        if recording is None or self._state is State.STOPPING:  # a signal handler may stop it as well
            self.unwatch()
            return
        if self._watched is None:
            self._batch_times.write()
        self._guard.attempt("Waiting for the last numbers", recording.settle)
        self._enter(State.STOPPING, recording)
        try:
            self.unwatch()
            self._close_windows()
            self._enter(State.STOPPED)
            monitors.discard(self)
            ending = ending_arguments(status, reason, self._guard)
            self._guard.attempt("Ending the run", recording.end, *ending)
        except BaseException:
            if not recording.has_ended:  # interrupted, as by Ctrl-C: the next call ends the run
                self._enter(State.RECORDING, recording)
                monitors.add(self)
            raise
        if self._logs is not None:
            self._guard.attempt("Closing the log files", self._logs.stop)
        before = self.identity  # another start is another segment
        self.identity = rank_detection.identify(before.name, before.project, joined_id=before.joined_id)

    def __enter__(self) -> TrainingMonitor:
        self.start_monitoring()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            status, reason = outcome(error)
        except Exception:  # noqa: BLE001 - an exception's own text may raise anything
            status, reason = "failed", type(error).__name__
        if error is not None and status == "failed":
            self._guard.attempt("Describing the failure", self._on_failure, error)
        self.stop_monitoring(status, reason)

    def _on_failure(self, error: BaseException) -> None:
        self._record_failure(error)
        details = None if self._watched is None else self._watched.describe_failure(error)
        if details is not None:
            self.own_event("out_of_memory", **details)

    def get_performance_summary(self) -> dict[str, Any]:
        """How the run is doing, for people and scripts to print."""
        dropped = 0 if self._recording is None else self._recording.writer.dropped
        return {"run": self.identity.name, "run_id": self.run_id, **self._stats.summary(), "dropped": dropped}

    def phase(self, name: str) -> Phase:
        """Times a block as a named part of the current step."""
        try:
            return Phase(name, self.record_now)
        except Exception as error:  # noqa: BLE001 - a name's own text may raise anything
            self._guard.complain("phase", f"A phase is called {shown(name)}; expected text.", error)
            return Phase("unnamed", self.record_now)

    def batches(self, loader: Iterable[Batch]) -> Batches[Batch]:
        """Wraps a data loader: its batches become the steps, its passes the epochs."""
        if not self.settings.recorder.enabled:
            return cast("Batches[Batch]", loader)  # the loop works the same, at no cost
        self.timer.stride = 0
        return timed(loader, self._time_pass)

    def _time_pass(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Times one pass over a loader; whether a model is watched is checked when it starts."""
        if self._watched is None:
            self.begin_epoch()
            return self._batch_times.batches(source)
        step_phases = self._watched.step_phases
        if step_phases.begins_epoch():
            self.begin_epoch()
        return step_phases.batches(source)

    def watch(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        gradients: bool = True,
        histograms: int | None = None,
        activations: int | None = None,
        attention: int | None = None,
    ) -> None:
        """Times steps and the phases of sampled steps, and measures gradients at sampled steps.

        The model is not changed; the hooks on the optimizers (all optimizers if none is passed) are removed
        by `unwatch`. The last three options cost more, and take the number of steps between samples, such as
        1000.
        """
        self.open_recording()  # so that a failure in the first step is recorded
        try:
            from stepscope.recorder.watched import (  # lazy: it needs torch, as a model does
                StatsOptions,
                watch,
            )

            options = StatsOptions(bool(gradients), histograms, activations, attention)
            self._watched = watched = watch(model, optimizer, options, self._watched, self, self._guard)
            self._ends_by_log = None if watched is None else watched.step_phases.purpose.ends_step
            self._first_keys = set() if watched is not None and self.timer.stride else self._first_keys
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - users may pass any model, training goes on
            self._guard.complain("watch", f"The model cannot be watched: {shown(error)}", error)

    def _consider_model(self, model: object, optimizer: object) -> None:
        self._considers_models = self._watched is None and self._model_changes.follow(model, optimizer)
        if self._watched is None and self._model_changes.has_changed:
            self.watch(model, self._model_changes.optimizer)
            if self._watched is not None:
                self._watched.loader_passes.before = 1  # the current pass

    def unwatch(self) -> None:
        """Removes all hooks: model and optimizer are unchanged."""
        watched, self._watched = self._watched, None
        if watched is not None:
            self._guard.attempt("Removing the hooks", watched.close)
            self._ends_by_log = None
            self._batch_times.begin()

    def end_evaluation(self) -> None:
        """Ends the evaluation in progress if the models are in training mode again; frameworks report it."""
        if self._watched is not None:
            self._watched.step_phases.begin_loader_pass()

    def log_params(self, params: Any) -> None:
        """Records hyper-parameters of the run, to show, compare and filter runs.

        Takes a mapping, nested or not, a dataclass or an argparse.Namespace; a later call updates an earlier
        one, name by name. Values other than text, numbers, booleans, None and lists are kept as text.
        """
        try:
            plain = PlainParams(params)
        except Exception as error:  # noqa: BLE001 - users may pass anything, training goes on
            self._guard.complain("params", f"{error} Nothing of the call was recorded.", error)
            return
        recording = self.open_recording()
        if recording is not None:
            self._note_params(recording, plain)
        else:
            self._guard.complain("stopped", "A log call after stop_monitoring() is not recorded.")

    def _note_params(self, recording: Recording, params: PlainParams) -> None:
        for record in params.records():
            recording.record_event("params", {"params": record}, self._last_step())
        for topic, message in params.complaints():
            self._guard.complain(topic, message)

    def event(self, kind: str, /, **fields: Any) -> None:
        """Records an event of the run; fields may have any names and values.

        An integer passed as `step` is the step of the event; the default is the last logged step.
        """
        recording = self.open_recording()
        if recording is not None:
            step = as_step(fields.get("step"))
            if step is not None:
                del fields["step"]
            recording.record_user_event(kind, fields, self._last_step() if step is None else step)

    def continue_in_child(self) -> None:
        """Separates from the parent's journal after a fork; the first log call here opens a new one."""
        if self._recording is None:
            return
        self._enter(State.CHILD, self._recording.child())
        self._batch_times.forget()
        if self._watched is not None:
            self._watched.step_phases.forget()

    def __getstate__(self) -> dict[str, Any]:
        """The state that a spawned worker needs to record into the same segment."""
        return {
            "settings": self.settings,
            "folder": self._folder,
            "identity": self.identity,
            "step": self.timer.step,
            "recording": self._recording is not None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.settings, self._folder = state["settings"], state["folder"]
        self.identity = state["identity"]
        self._guard = Guard(strict=False)
        self._is_copy, self._has_name, self._resumes = False, True, False
        self._cell_name = None
        self._reset()
        self.timer.step = state["step"]
        if state["recording"]:
            self._record_as_worker()
        else:
            self._enter(State.STOPPED)


def _do_nothing(*_: Any, **__: Any) -> None:
    """Replaces the methods of a disabled monitor."""
