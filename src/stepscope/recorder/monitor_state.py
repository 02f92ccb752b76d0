"""Whether a monitor records: before the start, while recording, in a child process, after the end."""

from __future__ import annotations

import enum
import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from stepscope.guard import hidden_modules, shown
from stepscope.recorder.stats import StepStats
from stepscope.recorder.step_log import StepLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.recorder.recording import Recording


class State(enum.Enum):
    """What a monitor does with a log call."""

    UNSTARTED = "starts the recording"
    STARTING = "waits for the thread that starts the recording"
    RECORDING = "appends it"
    CHILD = "opens the journal of this child process, and appends it"
    STOPPING = "appends it, while the last values are written"
    STOPPED = "warns once: it is too late"
    FAILED = "ignores it: the start has failed, and was reported"


_STARTABLE = frozenset({State.UNSTARTED, State.STOPPED, State.FAILED})

_created = 0


def monitors_created() -> int:
    """How many monitors this process has created, recording or not."""
    return _created


class MonitorState(StepLog):
    """The part of a monitor that starts its recording, and knows its state."""

    _is_copy: bool
    """Whether this process is a worker that imports the script of the training."""

    def __init__(self) -> None:
        global _created  # noqa: PLW0603 - one number for the process
        _created += 1
        super().__init__()
        self._start_lock = threading.RLock()  # a signal handler may log while its thread starts
        self._enter(State.UNSTARTED)

    @abstractmethod
    def _start(self) -> None:
        """Opens a recording and enters its state; enters none if there is nothing to record into yet."""

    def _enter(self, state: State, recording: Recording | None = None) -> None:
        """Sets the state, the recording and what a log call does: all three here and nowhere else."""
        self._state, self._recording = state, recording
        if state is State.CHILD:
            self._append = self._append_in_child
        elif state is State.RECORDING and recording is not None:
            self._append = recording.row_appender()
        elif state is State.STOPPED:
            self._append = self._warn_of_late_call
        elif state is State.FAILED:
            self._append = _ignore
        elif state is not State.STOPPING:  # then as before: a child that has logged nothing opens no journal
            self._append = self._start_and_append

    def _start_once(self) -> None:
        with self._start_lock:
            before = self._state
            if before not in _STARTABLE:
                return
            self._enter(State.STARTING)
            if before is not State.UNSTARTED:
                self._stats = StepStats()
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - training must continue on any failure
                self._enter(State.FAILED)
                message = f"Recording could not start; training continues without it: {shown(error)}"
                self._guard.complain("start", message + hidden_modules(), error)
            finally:
                if self._state is State.STARTING:
                    self._enter(before)

    def open_recording(self) -> Recording | None:
        """The current recording, started by this call if necessary; None after the end."""
        if self._state is State.UNSTARTED or self._state is State.STARTING:
            self._start_once()
        return self._recording

    @property
    def is_recording(self) -> bool:
        """Whether a segment is open."""
        return self._recording is not None

    def _start_and_append(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        self._start_once()
        if self._recording is not None:
            self._append(metrics, step, at_ns)
        elif self._is_copy:
            self._guard.complain(
                "import", "A log call while a worker imports the training script is not recorded."
            )

    def _append_in_child(self, metrics: Mapping[Any, Any], step: int, at_ns: int | None = None) -> None:
        self._enter(State.RECORDING, self._recording)
        self._append(metrics, step, at_ns)

    def _warn_of_late_call(self, *_: Any) -> None:
        self._guard.complain("stopped", "A log call after stop_monitoring() is not recorded.")


def _ignore(*_: Any) -> None:
    """Takes the log calls of a monitor that could not start."""
