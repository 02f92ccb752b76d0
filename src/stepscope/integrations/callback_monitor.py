"""The monitor of a framework's callback: the user's own, one that already records, or one it opens."""

from __future__ import annotations

import weakref
from typing import Any

from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.monitor import TrainingMonitor
from stepscope.recorder.monitor_settings import check_arguments
from stepscope.recorder.recording import monitors

_opened: weakref.WeakSet[TrainingMonitor] = weakref.WeakSet()
"""Monitors that callbacks have opened: another callback does not record into them."""


class CallbackMonitor:
    """Chooses the monitor of each training, starts it if necessary, and stops what it has started.

    Wrong arguments raise ConfigError here, before the training starts. A monitor is opened when a training
    begins and not before: only then is it known that the process trains.
    """

    def __init__(self, monitor: TrainingMonitor | None = None, **arguments: Any) -> None:
        if not isinstance(monitor, TrainingMonitor | None):
            raise ConfigError(f"argument: monitor is {shown(monitor)}; it must be a TrainingMonitor.")
        passed = [name for name, value in arguments.items() if value is not None and value is not False]
        if monitor is not None and passed:
            raise ConfigError(
                f"argument: monitor and {passed[0]} are both set. Pass {passed[0]} to the TrainingMonitor."
            )
        check_arguments(**arguments)
        self.given = monitor
        """The user's monitor."""
        self.arguments = arguments
        """The arguments of a monitor that is opened here."""
        self.current: TrainingMonitor | None = None
        """The monitor that records now; None between two trainings."""
        self.newest: TrainingMonitor | None = None
        """The monitor of the current or the last training."""
        self._own: TrainingMonitor | None = None
        self._is_started_here = False
        self._has_arguments = bool(passed)

    def begin(self, *, is_new_run: bool = False, **arguments: Any) -> TrainingMonitor:
        """Returns the monitor, recording; arguments that are not None replace those of the user.

        A second call after `end` adds a segment to the run, unless it is to be a new run.
        """
        monitor = self.given or self._recording_already()
        if monitor is None:
            if self._own is None or is_new_run:
                known = {name: value for name, value in arguments.items() if value is not None}
                self._own = TrainingMonitor(**{**self.arguments, **known})
                _opened.add(self._own)
            monitor = self._own
        if monitor not in monitors:
            monitor.start_monitoring()
            self._is_started_here = True
        self.current = self.newest = monitor
        return monitor

    def end(self, status: str = "finished", reason: str = "") -> None:
        """Stops the monitor if `begin` has started it."""
        monitor, self.current = self.current, None
        is_started_here, self._is_started_here = self._is_started_here, False
        if monitor is not None and is_started_here:
            monitor.stop_monitoring(status, reason)

    def copy(self) -> CallbackMonitor:
        """The same choice for a copied callback, which opens a run of its own."""
        return CallbackMonitor(self.given, **self.arguments)

    def _recording_already(self) -> TrainingMonitor | None:
        """The monitor of the user that records in this process, if the callback has no arguments."""
        if self._has_arguments:
            return None
        users = [monitor for monitor in monitors if monitor not in _opened]
        return users[0] if len(users) == 1 else None
