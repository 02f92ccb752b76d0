"""Parts of a monitor that are made when first asked for: page address, alert rules, log files, profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.guard import shown
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.step_log import StepLog
from stepscope.recorder.values import as_step

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.profiling.window.window import ProfilerWindow
    from stepscope.recorder.alert_system import AlertSystem
    from stepscope.recorder.logs.logs import StructuredLogs
    from stepscope.schema.identity import Identity


class OnDemand(StepLog):
    """What a monitor offers beside recording; each part is imported only by those who use it."""

    settings: Settings
    identity: Identity
    _folder: Path

    def __init__(self) -> None:
        super().__init__()
        self._logs: StructuredLogs | None = None
        self._alerts: AlertSystem | None = None
        self._windows: list[ProfilerWindow] = []

    @property
    def run_id(self) -> str:
        """The run's id, by which any command and `open_store().run(...)` finds it."""
        return self.identity.run_id

    def own_event(self, kind: str, /, **fields: Any) -> None:
        """Marks a moment that stepscope itself has noticed."""
        recording = self.open_recording()
        if recording is not None:
            step = as_step(fields.get("step"))
            recording.note(kind, fields, self._last_step() if step is None else step)

    @property
    def url(self) -> str | None:
        """The address of the run's web page, token included; None where the store is not being served.

        It lets in whoever has it: print it where only you read.
        """
        if not self.settings.recorder.enabled:
            return None
        from stepscope.recorder.page_server import link_to_run  # lazy: few ask

        try:
            return link_to_run(self._folder, self.run_id)
        except Exception as error:  # noqa: BLE001 - the file that says so is anybody's to write
            self._guard.complain("url", f"The address of the page is not known: {shown(error)}", error)
            return None

    @property
    def alert_system(self) -> AlertSystem:
        """Takes alert rules written in Python; those of the settings need nobody to ask for them."""
        if self._alerts is None:
            from stepscope.recorder.alert_system import AlertSystem  # lazy: few have rules of their own

            self._alerts = AlertSystem(self.own_event, self._guard, self._judge_alerts)
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
            from stepscope.recorder.logs.logs import (
                StructuredLogs,  # lazy: it brings `logging` into the process
            )

            self._logs = StructuredLogs(
                self.identity,
                self.settings.logging,
                step=self._last_step,
                privacy=privacy_of(self.settings.privacy),
            )
        return self._logs

    def _record_failure(self, error: BaseException) -> None:
        """Keeps the traceback of what ends the training, without the values of variables."""
        recording = self.open_recording()
        if isinstance(error, Exception) and recording is not None and recording.writer.trouble is None:
            from stepscope.recorder.logs.log_entry import describe_exception  # lazy: it brings `logging`

            self.own_event("failure", **describe_exception(error))
        if self._logs is not None:
            self._logs.failed(error)

    def profile(self, **options: Any) -> ProfilerWindow:
        """A `ProfilerWindow` on chosen epochs and steps, with its options: call its `step` once a step."""
        from stepscope.profiling.window.window import ProfilerWindow, WindowOptions  # lazy: few profile

        usual = {"directory": self._folder / "profiles", "options": WindowOptions(rank=self.identity.rank)}
        try:
            window = ProfilerWindow(**{**usual, **options})
            is_resting = not self.settings.recorder.enabled
        except Exception as error:  # noqa: BLE001 - anything may be handed over, training goes on
            said = f"profile() was given {shown(options)}; nothing is profiled: {error}"
            self._guard.complain("profile", said, error)
            window, is_resting = ProfilerWindow(), True
        if is_resting:
            window.close()
        else:
            self._windows.append(window)
        return window

    def _close_windows(self) -> None:
        while self._windows:
            self._windows.pop().close()
