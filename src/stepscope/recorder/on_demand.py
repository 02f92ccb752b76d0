"""Parts of a monitor that are created on first use: page address, alert rules, log files, profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.guard import shown
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.monitor_state import MonitorState, State
from stepscope.recorder.values import as_step

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.profiling.window.profiler_window import ProfilerWindow
    from stepscope.recorder.alert_system import AlertSystem
    from stepscope.recorder.logs.logs import StructuredLogs
    from stepscope.schema.identity import Identity


class OnDemand(MonitorState):
    """Further parts of a monitor; each is imported only when it is used."""

    settings: Settings
    identity: Identity
    _folder: Path

    def __init__(self) -> None:
        super().__init__()
        self._logs: StructuredLogs | None = None
        self._alerts: AlertSystem | None = None
        self._windows: list[ProfilerWindow] = []

    def __repr__(self) -> str:
        state = "recording" if self.is_recording else self._state.name.lower()
        return f"<{type(self).__name__} {self.identity.name!r} ({state})>"

    def _repr_html_(self) -> str | None:
        """The run as a notebook shows it; None before it has started."""
        if self._state is State.UNSTARTED or not self.settings.recorder.enabled:
            return None
        from stepscope.notebook.run_picture import picture_of_stored  # lazy: it reads the store

        return picture_of_stored(self._folder, self.run_id)

    @property
    def run_id(self) -> str:
        """The run's id, for any command and `open_store().run(...)`."""
        return self.identity.run_id

    def own_event(self, kind: str, /, **fields: Any) -> None:
        """Records an event of stepscope's own."""
        recording = self.open_recording()
        if recording is not None:
            step = as_step(fields.get("step"))
            recording.record_event(kind, fields, self._last_step() if step is None else step)

    @property
    def url(self) -> str | None:
        """The address of the run's web page, including the token; None if no server runs.

        The token grants access to the page: print the address only where others cannot read it.
        """
        if not self.settings.recorder.enabled:
            return None
        from stepscope.recorder.page_server import link_to_run  # lazy: rarely used

        try:
            return link_to_run(self._folder, self.run_id)
        except Exception as error:  # noqa: BLE001 - other processes may write that file
            self._guard.complain("url", f"The address of the page is not known: {shown(error)}", error)
            return None

    @property
    def alert_system(self) -> AlertSystem:
        """Adds alert rules written in Python; those of the settings are always active."""
        if self._alerts is None:
            from stepscope.recorder.alert_system import AlertSystem  # lazy: rarely used

            self._alerts = AlertSystem(self.own_event, self._guard, self._judge_alerts)
        return self._alerts

    def _judge_alerts(self, system: AlertSystem) -> None:
        """Evaluates the user's own rules on each row."""
        recording = self.open_recording()
        if recording is not None:
            recording.alerts = system
            self._enter(State.RECORDING, recording)

    @property
    def logs(self) -> StructuredLogs:
        """The log files of the run; written while it is recorded, if `logging.directory` is set."""
        if self._logs is None:
            from stepscope.recorder.logs.logs import (
                StructuredLogs,  # lazy: it imports `logging`
            )

            self._logs = StructuredLogs(
                self.identity,
                self.settings.logging,
                step=self._last_step,
                privacy=privacy_of(self.settings.privacy),
            )
        return self._logs

    def _record_failure(self, error: BaseException) -> None:
        """Records the traceback of the exception that ends the training, without the values of variables."""
        recording = self.open_recording()
        if isinstance(error, Exception) and recording is not None and recording.writer.trouble is None:
            from stepscope.recorder.logs.log_entry import describe_exception  # lazy: it imports `logging`

            self.own_event("failure", **describe_exception(error))
        if self._logs is not None:
            self._logs.failed(error)

    def profile(self, **options: Any) -> ProfilerWindow:
        """Creates a `ProfilerWindow` with these options; call its `step` once a step."""
        from stepscope.profiling.window.profiler_window import (  # lazy: rarely used
            ProfilerWindow,
            WindowOptions,
        )

        defaults = {"directory": self._folder / "profiles", "options": WindowOptions(rank=self.identity.rank)}
        try:
            window = ProfilerWindow(**{**defaults, **options})
            is_off = not self.settings.recorder.enabled
        except Exception as error:  # noqa: BLE001 - users may pass anything, training goes on
            message = f"profile() was given {shown(options)}; nothing is profiled: {error}"
            self._guard.complain("profile", message, error)
            window, is_off = ProfilerWindow(), True
        if is_off:
            window.close()
        else:
            self._windows.append(window)
        return window

    def _close_windows(self) -> None:
        while self._windows:
            self._windows.pop().close()
