"""`TrainingMonitor`: what user code holds."""

from __future__ import annotations

import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stepscope.errors import RecorderError
from stepscope.guard import Guard, hidden_modules, shown
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.batches import Batches, timed
from stepscope.recorder.exit.exit_reason import outcome
from stepscope.recorder.identity import rank_detection
from stepscope.recorder.identity.params import PlainParams, params_argument
from stepscope.recorder.identity.run_names import without_secrets
from stepscope.recorder.identity.run_reservation import reserved_for
from stepscope.recorder.model_changes import ModelChanges
from stepscope.recorder.monitor_settings import (
    ending_arguments,
    folder_argument,
    monitor_settings,
    resume_argument,
    strict_argument,
    text_argument,
)
from stepscope.recorder.on_demand import OnDemand
from stepscope.recorder.phases import BatchTimes, Phase
from stepscope.recorder.recording import Recording, monitors
from stepscope.recorder.stats import StepStats
from stepscope.recorder.values import as_step
from stepscope.steps.overhead import Overhead

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from stepscope.config.find import Source
    from stepscope.recorder.watched import Watched

Batch = TypeVar("Batch")

_RECORDING_CALLS = (
    "start_monitoring", "_start_once", "stop_monitoring", "log", "log_params", "log_training_step",
    "log_training_metrics", "record_metrics", "record_now", "record_late", "watch", "event",
)  # fmt: skip
"""Calls that return at once, whatever they are given, where recording is switched off."""


class TrainingMonitor(OnDemand):
    """Records a training run: metrics, phases, events, how it ended.

        with TrainingMonitor(run="mnist") as monitor:
            for x, y in monitor.batches(loader):
                loss = train_step(x, y)
                monitor.log_training_step(loss=loss)

    `config` has settings of stepscope: a mapping, the path of a YAML file, or nothing; `params` has the
    hyper-parameters of the run. A name that another run has becomes `mnist-2`; with `resume=True` the newest
    run of that name goes on. Wrong arguments raise ConfigError here. No method raises into training or waits
    for anything, but for `stop_monitoring`, which returns when every point can be read; with `strict=True` a
    value that cannot be kept raises RecorderError.
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
        folder = self._folder if recorder.enabled else None
        self.identity = without_secrets(identity, folder, privacy_of(self.settings.privacy), self._guard.tell)
        self._is_copy = rank_detection.is_imported_by_worker()
        self._begin_anew(params_argument(params))

    def _begin_anew(self, params: PlainParams | None = None) -> None:
        """Nothing is recorded yet, in this process; hyper-parameters wait for the beginning."""
        super().__init__()
        self._append = self._append_unstarted
        self._was_stopped = False
        self.overhead = Overhead(self.settings.recorder.max_overhead)
        """What watching costs the training, and may cost it."""
        self.began_ns: int | None = monotonic_ns()
        """When recording began; None once the first step has told how long it took to begin."""
        self._batch_times = BatchTimes(self)
        self._watched: Watched | None = None
        self._model_changes = ModelChanges(self._guard)
        self._params = params
        self._start_lock = threading.RLock()  # a signal handler may log while its thread starts
        self._is_starting = False
        if not self.settings.recorder.enabled:
            for call in _RECORDING_CALLS:
                setattr(self, call, _do_nothing)

    @property
    def directory(self) -> Path:
        """The store folder."""
        return self._folder

    def start_monitoring(self) -> None:
        """Begins a segment of the run, as the first log call does by itself; nothing when one is open."""
        if self._recording is None:
            if self._watched is None and not self.timer.in_batches:
                self.began_ns = monotonic_ns()  # what came before is no part of the first step
                self._batch_times.begin()
            self._start_once()

    def _start_once(self) -> None:
        with self._start_lock:
            if self._recording is not None or self._is_starting:
                return
            self._is_starting = True
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - training goes on whatever the machine is like
                self._append, self._recording, self._was_stopped = _do_nothing, None, True
                said = f"Recording could not begin, training goes on without it: {shown(error)}"
                self._guard.complain("start", said + hidden_modules(), error)
            finally:
                self._is_starting = False

    def _start(self) -> None:
        if self._is_copy and self._join_parent():
            return
        if not self._has_name:
            self._has_name = True
            self._guard.attempt("Reserving the name of the run", self._reserve_name)
        if self._was_stopped:
            self._stats = StepStats()
        self._stats.begin()
        if self.settings.logging.directory is not None:
            self._guard.attempt("Starting the log files", self.logs.start, self.identity)
        self.identity = rank_detection.started_at(self.identity, self.began_ns)
        recording = Recording(self.identity, self._folder, self.settings, self._guard)
        self._append = recording.writer.append_row
        self._recording = recording
        if self._alerts is not None:
            self._guard.attempt("Telling the alert rules", self._alerts.begin_anew)
        recording.on_resolved = self._follow_late_loss
        self._guard.attempt(
            "A part of the start",
            lambda: recording.begin(on_end=self.stop_monitoring, on_failure=self._tell_of_failure),
        )
        monitors.add(self)
        params, self._params = self._params, None
        if params is not None:
            self._note_params(recording, params)

    def _reserve_name(self) -> None:
        found = reserved_for(self._folder, self.identity, resume=self._resumes, tell=self._guard.tell)
        self.identity, first_step = found
        self.timer.step = self.timer.step or first_step

    def _join_parent(self) -> bool:
        """Records as a worker into the run of the process whose script is imported again here.

        False where that process records nothing, and the import is over: then this process is on its own.
        """
        parent = rank_detection.recording_of_parent(self._folder)
        if parent is None:
            return rank_detection.is_imported_by_worker()
        self.identity = parent
        self._record_as_worker()
        return True

    def _record_as_worker(self) -> None:
        self._recording = Recording.of_worker(self.identity, self._folder, self.settings, self._guard)
        self._append = self._append_in_child
        monitors.add(self)
        if self.settings.logging.directory is not None:
            self.logs.start()

    def stop_monitoring(self, status: str = "finished", reason: str = "") -> None:
        """Ends the segment; when it returns, every point is in the store."""
        if self._recording is not None:
            if self._watched is None:
                self._batch_times.write()
            self._guard.attempt("Waiting for the last numbers", self._recording.settle)
        recording, self._recording = self._recording, None
        self.unwatch()
        if recording is None:
            return
        self._close_windows()
        self._append = self._append_unstarted
        self._was_stopped = True
        monitors.discard(self)
        self._guard.attempt("Ending the run", recording.end, *ending_arguments(status, reason, self._guard))
        if self._logs is not None:
            self._guard.attempt("Closing the log files", self._logs.stop)
        before = self.identity  # a further start is a further segment: nothing recorded so far is added to
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
            self._guard.attempt("Describing the failure", self._tell_of_failure, error)
        self.stop_monitoring(status, reason)

    def _tell_of_failure(self, error: BaseException) -> None:
        self._record_failure(error)
        told = None if self._watched is None else self._watched.describe_failure(error)
        if told is not None:
            self.own_event("out_of_memory", **told)

    def get_performance_summary(self) -> dict[str, Any]:
        """How the run is doing, for people and scripts to print."""
        dropped = 0 if self._recording is None else self._recording.writer.dropped
        return {"run": self.identity.name, "run_id": self.run_id, **self._stats.summary(), "dropped": dropped}

    def phase(self, name: str) -> Phase:
        """Times a block as a named part of the step in hand."""
        try:
            return Phase(name, self.record_now)
        except Exception as error:  # noqa: BLE001 - a name's own text may raise anything
            self._guard.complain("phase", f"A phase is called {shown(name)}; expected text.", error)
            return Phase("unnamed", self.record_now)

    def batches(self, loader: Iterable[Batch]) -> Batches[Batch]:
        """Wraps a data loader: its batches become the steps, its passes the epochs."""
        if not self.settings.recorder.enabled:
            return cast("Batches[Batch]", loader)  # a loop cannot tell, and pays nothing
        self.timer.stride = 0
        return timed(loader, self._time_pass)

    def _time_pass(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """One pass over a loader; whether a model is watched is asked when it begins."""
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
        """Times steps, and of some of them every phase; looks at the gradients of some.

        Nothing is put into the model; the hooks of the optimizers (without one, of whichever steps) go with
        `unwatch`. The last three cost more, and take the number of steps between two looks, such as 1000.
        """
        self.open_recording()  # so that a failure in the very first step is recorded
        try:
            from stepscope.recorder.watched import Looks, watch  # lazy: it needs torch, as a model does

            looks = Looks(bool(gradients), histograms, activations, attention)
            self._watched = watched = watch(model, optimizer, looks, self._watched, self, self._guard)
            self._ends_by_log = None if watched is None else watched.step_phases.purpose.ends_step
            self._first_keys = set() if watched is not None and self.timer.stride else self._first_keys
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of any kind may be handed over, training goes on
            self._guard.complain("watch", f"The model cannot be watched: {shown(error)}", error)

    def _consider_model(self, model: object, optimizer: object) -> None:
        self._considers_models = self._watched is None and self._model_changes.follow(model, optimizer)
        if self._watched is None and self._model_changes.found:
            self.watch(model, self._model_changes.optimizer)
            if self._watched is not None:
                self._watched.loader_passes.before = 1  # the one that it is handed over in

    def unwatch(self) -> None:
        """Takes all hooks away: model and optimizer are as they were."""
        watched, self._watched = self._watched, None
        if watched is not None:
            self._guard.attempt("Taking the hooks away", watched.close)
            self._ends_by_log = None
            self._batch_times.begin()

    def log_params(self, params: Any) -> None:
        """Records hyper-parameters of the run, which are shown, compared and filtered by.

        Takes a mapping, nested or not, a dataclass or an argparse.Namespace; a later call updates an earlier
        one, name by name. What is no text, number, boolean, None or list is kept as text.
        """
        try:
            plain = PlainParams(params)
        except Exception as error:  # noqa: BLE001 - anything may be handed over, training goes on
            self._guard.complain("params", f"{error} Nothing of the call was recorded.", error)
            return
        recording = self.open_recording()
        if recording is not None:
            self._note_params(recording, plain)
        else:
            self._guard.complain("stopped", "A log call after stop_monitoring() is not recorded.")

    def _note_params(self, recording: Recording, params: PlainParams) -> None:
        for record in params.records():
            recording.note("params", {"params": record}, self._last_step())
        for topic, said in params.complaints():
            self._guard.complain(topic, said)

    def event(self, kind: str, /, **fields: Any) -> None:
        """Marks a moment of the run; fields may have any names and values.

        A whole number given as `step` is the step it belongs to, in place of the one logged last.
        """
        recording = self.open_recording()
        if recording is not None:
            step = as_step(fields.get("step"))
            if step is not None:
                del fields["step"]
            recording.note_of_user(kind, fields, self._last_step() if step is None else step)

    def open_recording(self) -> Recording | None:
        """What records now, begun by this call where nobody has done so; None after the end."""
        if self._recording is None and not self._was_stopped:
            self._start_once()
        return self._recording

    def _append_unstarted(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        """Starts on the first call of a monitor nobody has started; after its end, says so once."""
        if self._was_stopped:
            self._guard.complain("stopped", "A log call after stop_monitoring() is not recorded.")
            return
        self._start_once()
        if self._recording is not None:
            self._append(metrics, step, at_ns)
        elif self._is_copy:
            self._guard.complain(
                "import", "A log call while a worker imports the training script is not recorded."
            )

    def continue_in_child(self) -> None:
        """Parts from the parent's journal after a fork; the first log call here opens an own one."""
        if self._recording is None:
            return
        self._recording = self._recording.child()
        self._append = self._append_in_child
        self._batch_times.forget()
        if self._watched is not None:
            self._watched.step_phases.forget()

    def _append_in_child(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        if self._recording is not None:
            self._append = self._recording.writer.append_row
            self._append(metrics, step, at_ns)

    def __getstate__(self) -> dict[str, Any]:
        """What a spawned worker needs to record into the same segment."""
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
        self._begin_anew()
        self.timer.step, self._was_stopped = state["step"], not state["recording"]
        if state["recording"]:
            self._record_as_worker()


def _do_nothing(*_: Any, **__: Any) -> None:
    """What a monitor does that is switched off."""
