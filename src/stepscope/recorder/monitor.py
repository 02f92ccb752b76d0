"""`TrainingMonitor`: what user code holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope.config.find import settings_for
from stepscope.guard import Guard
from stepscope.recorder.alert_system import check_alerts
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.last_words import outcome
from stepscope.recorder.phases import Batches, BatchTimes, Phase
from stepscope.recorder.recording import Recording, monitors
from stepscope.recorder.stats import StepStats
from stepscope.recorder.step_log import StepLog
from stepscope.recorder.whoami import identify
from stepscope.schema.identity import run_id
from stepscope.steps.overhead import Overhead

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from stepscope.config.find import Source
    from stepscope.profiling.window import ProfilerWindow
    from stepscope.recorder.alert_system import AlertSystem
    from stepscope.recorder.logs import StructuredLogs
    from stepscope.recorder.watched import Watched

Batch = TypeVar("Batch")

STORE_FOLDER = ".stepscope"


class TrainingMonitor(StepLog):
    """Records a training run: metrics, phases, events, how it ended.

        with TrainingMonitor(run="mnist") as monitor:
            for x, y in monitor.batches(loader):
                loss = train_step(x, y)
                monitor.log_training_step(loss=loss)

    `config` is a mapping, the path of a YAML file, or nothing. No method raises into training or waits for
    anything, but for `stop_monitoring`, which returns when every point can be read; with `strict=True` a
    value that cannot be kept raises RecorderError.
    """

    def __init__(
        self,
        config: Source = None,
        *,
        run: str | None = None,
        project: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
    ) -> None:
        self.settings = settings_for(config)
        recorder = self.settings.recorder
        privacy_of(self.settings.privacy)  # raises here, where mistakes in the settings do
        check_alerts(self.settings.alerts)
        self._guard = Guard(strict=recorder.strict if strict is None else strict)
        self._folder = Path(directory or self.settings.directory or STORE_FOLDER).absolute()
        self.identity = identify(run or self.settings.run, project or self.settings.project)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing is recorded yet, in this process."""
        StepLog.__init__(self)
        self._append = self._append_unstarted
        self._was_stopped = False
        self._logs: StructuredLogs | None = None
        self._alerts: AlertSystem | None = None
        self._overhead = Overhead(self.settings.recorder.max_overhead)
        self._batch_times = BatchTimes(self, self._overhead)
        self._watched: Watched | None = None
        self._windows: list[ProfilerWindow] = []

    @property
    def run_id(self) -> str:
        """The run's id, by which any command and `open_store().run(...)` finds it."""
        return run_id(self.identity.project, self.identity.name)

    @property
    def directory(self) -> Path:
        """The store folder."""
        return self._folder

    @property
    def url(self) -> str | None:
        """The address of the run's web page, token included; None where the store is not being served.

        It lets in whoever has it: print it where only you read.
        """
        from stepscope.recorder.page_server import link_to_run  # lazy: few ask

        return link_to_run(self._folder, self.run_id)

    @property
    def alert_system(self) -> AlertSystem:
        """Takes alert rules written in Python; those of the settings need nobody to ask for them."""
        if self._alerts is None:
            from stepscope.recorder.alert_system import AlertSystem  # lazy: few have rules of their own

            self._alerts = AlertSystem(self.event, self._guard, self._judge_alerts)
        return self._alerts

    def _judge_alerts(self, system: AlertSystem) -> None:
        """From now on each row is judged by rules of the user's own."""
        recording = self.open_recording()
        if recording is not None:
            self._append = recording.judge_by(system)

    @property
    def logs(self) -> StructuredLogs:
        """The log files of the run, written while it is recorded if `logging.directory` is set."""
        if self._logs is None:
            from stepscope.recorder.logs import StructuredLogs  # lazy: it brings `logging` into the process

            self._logs = StructuredLogs(
                self.identity,
                self.settings.logging,
                # Between two calls of log(), the step that has just been logged.
                step=lambda: max(self._step - self._stride, 0),
                privacy=privacy_of(self.settings.privacy),
            )
        return self._logs

    def start_monitoring(self) -> None:
        """Begins a segment of the run, as the first log call does by itself; nothing when one is open."""
        if self._recording is not None or not self.settings.recorder.enabled:
            return
        self._stats = StepStats()
        if self.settings.logging.directory is not None:
            self.logs.start(self.identity)
        self._recording = Recording(self.identity, self._folder, self.settings, self._guard)
        self._append = self._recording.writer.append_row
        if self._alerts is not None:
            self._alerts.begin_anew()
        self._recording.on_resolved = self._follow_late_loss
        self._recording.begin(on_end=self.stop_monitoring, on_failure=self._tell_of_failure)
        monitors.add(self)

    def stop_monitoring(self, status: str = "finished", reason: str = "") -> None:
        """Ends the segment; when it returns, every point is in the store."""
        if self._recording is not None:
            self._batch_times.write()
            self._recording.settle()
        recording, self._recording = self._recording, None
        self.unwatch()
        if recording is None:
            return
        while self._windows:
            self._windows.pop().close()
        self._append = self._append_unstarted
        self._was_stopped = True
        monitors.discard(self)
        recording.end(status, reason)
        if self._logs is not None:
            self._logs.stop()
        # A further start is a further segment: nothing recorded so far is added to.
        self.identity = identify(self.identity.name, self.identity.project)

    def __enter__(self) -> TrainingMonitor:
        self.start_monitoring()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        status, reason = outcome(error)
        if error is not None and status == "failed":
            self._tell_of_failure(error)
        self.stop_monitoring(status, reason)

    def _tell_of_failure(self, error: BaseException) -> None:
        if self._logs is not None:
            self._logs.failed(error)
        told = None if self._watched is None else self._watched.describe_failure(error)
        if told is not None:
            self.event("out_of_memory", **told)

    def get_performance_summary(self) -> dict[str, Any]:
        """How the run fares, for people and scripts to print."""
        dropped = 0 if self._recording is None else self._recording.writer.dropped
        return {"run": self.identity.name, "run_id": self.run_id, **self._stats.summary(), "dropped": dropped}

    def phase(self, name: str) -> Phase:
        """Times a block as a named part of the step in hand."""
        return Phase(name, self.record_now)

    def batches(self, loader: Iterable[Batch]) -> Batches[Batch]:
        """Wraps a data loader: its batches become the steps, its passes the epochs."""
        self._stride = 0
        anatomy = None if self._watched is None else self._watched.anatomy
        return Batches(loader, self, self._batch_times, anatomy)

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
        """Times every step phase by phase, and looks at the gradients of some.

        Hooks go on the model, its inner modules left alone, and on the optimizer (or several, in a list;
        without one, on whichever steps). `unwatch`, or the end of the run, takes them away again. The last
        three cost more and are asked for by the number of steps between two looks, such as 1000.
        """
        try:
            from stepscope.recorder.watched import Looks, Watched  # lazy: it needs torch, as a model does

            if self._watched is None:
                self._watched = Watched(self, self._guard, self._overhead)
            self._watched.add(model, optimizer, Looks(gradients, histograms, activations, attention))
        except Exception as error:  # noqa: BLE001 - a model of any kind may be handed over, training goes on
            self._guard.complain("watch", f"The model cannot be watched: {error!r}", error)

    def profile(self, **options: Any) -> ProfilerWindow:
        """A `ProfilerWindow` on chosen epochs and steps, with its options: call its `step` once a step."""
        from stepscope.profiling.window import ProfilerWindow, WindowOptions  # lazy: few profile

        usual = {"directory": self._folder / "profiles", "options": WindowOptions(rank=self.identity.rank)}
        window = ProfilerWindow(**{**usual, **options})
        self._windows.append(window)
        return window

    def unwatch(self) -> None:
        """Takes all hooks away: model and optimizer are as they were."""
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.anatomy.close()

    def event(self, kind: str, **fields: Any) -> None:
        """Marks a moment of the run."""
        recording = self.open_recording()
        if recording is not None:
            # Between two calls of log(), the step that has just been logged.
            step = max(self._step - self._stride, 0)
            recording.note({"kind": kind, "step": step, **fields})

    def open_recording(self) -> Recording | None:
        """What records now, begun by this call where nobody has done so; None after the end."""
        if self._recording is None and not self._was_stopped:
            self.start_monitoring()
        return self._recording

    def _append_unstarted(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        """Starts on the first call of a monitor nobody has started; after its end, says so once."""
        if not self.settings.recorder.enabled:
            return
        if self._was_stopped:
            self._guard.complain("stopped", "A log call after stop_monitoring() is not recorded.")
            return
        self.start_monitoring()
        self._append(metrics, step, at_ns)

    def continue_in_child(self) -> None:
        """Parts from the parent's journal after a fork; the first log call here opens an own one."""
        if self._recording is None:
            return
        self._recording = self._recording.child()
        self._append = self._append_in_child
        self._batch_times.forget()
        if self._watched is not None:
            self._watched.anatomy.forget()

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
            "step": self._step,
            "recording": self._recording is not None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.settings, self._folder = state["settings"], state["folder"]
        self.identity = state["identity"]
        self._guard = Guard(strict=False)
        self._begin_anew()
        self._step, self._was_stopped = state["step"], not state["recording"]
        if state["recording"]:
            self._recording = Recording.of_worker(self.identity, self._folder, self.settings, self._guard)
            self._append = self._append_in_child
            if self.settings.logging.directory is not None:
                self.logs.start()
