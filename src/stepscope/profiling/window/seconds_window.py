"""Profiles some seconds of an unmodified program.

A thread waits until the window begins and sends a signal to the main thread. The signal handler starts the
profiler, because torch's profiler records the thread that starts it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.result_files import write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from stepscope.profiling.window.session import Detail, Session

POLL_INTERVAL_S = 0.05
WARM_UP_S = 0.3
_NEEDED = "torch.profiler"
_IMPORTING = "importlib._bootstrap"


@dataclass(frozen=True)
class WindowRequest:
    """Which part of a program to profile, and what to keep."""

    after_s: float
    """Seconds from the start of the program to the start of the window."""
    length_s: float
    base: Path
    """Path prefix of the result files."""
    detail: Detail
    top: int


class SecondsWindow:
    """One profiled window of a process; created and ended in its main thread."""

    def __init__(self, request: WindowRequest) -> None:
        self._request = request
        self._began_at = time.monotonic()
        self._process = os.getpid()
        self._signal = _unused_signal()
        self._session: Session | None = None
        self._is_recording = False
        self._problem: str | None = None
        self._stages: list[Callable[[], None]] = [self._prepare, self._record, self._finish]
        self._handled = threading.Event()
        self._over = threading.Event()

    def begin(self) -> None:
        """Starts the thread that waits for the window."""
        signal.signal(self._signal, self._on_signal)
        signal.siginterrupt(self._signal, False)  # noqa: FBT003 - the standard library takes it by position
        threading.Thread(target=self._time_stages, name="stepscope-profile", daemon=True).start()

    def end(self) -> None:
        """Ends the window when the program ends: writes the profile, or the reason why there is none."""
        if os.getpid() != self._process:
            return  # a forked child
        self._over.set()
        signal.signal(self._signal, signal.SIG_IGN)  # a pending signal would kill the process
        if self._is_recording:
            self._run_stage(self._finish)
        elif self._session is not None:
            self._session.abandon()
            self._problem = "it ended during the warm-up of the window"
        if self._stages:
            summary = self._request.base.with_name(f"{self._request.base.name}.json")
            write_json(summary, {"reason": self._problem or self._missing_reason()})

    def _time_stages(self) -> None:
        pauses = (self._request.after_s, WARM_UP_S, self._request.length_s)
        for pause, stage in zip(pauses, tuple(self._stages), strict=True):
            if self._over.wait(pause):
                return
            while stage in self._stages and self._problem is None:
                if _NEEDED in sys.modules:
                    self._ask_main_thread()
                if self._over.wait(POLL_INTERVAL_S):
                    return

    def _ask_main_thread(self) -> None:
        """Sends a signal and waits for its handler, so that signals do not accumulate."""
        self._handled.clear()
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, self._signal)
            while not self._handled.wait(POLL_INTERVAL_S) and not self._over.is_set():
                pass

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        """Runs the next stage, unless the program is importing: torch may be partially loaded."""
        try:
            if self._stages and self._problem is None and not _is_importing(frame):
                self._run_stage(self._stages[0])
        finally:
            self._handled.set()

    def _run_stage(self, stage: Callable[[], None]) -> None:
        try:
            stage()
            self._stages.remove(stage)
        except Exception as error:  # noqa: BLE001 - a failure of the profiler must not stop the program
            self._problem = str(error) if isinstance(error, StepscopeError) else repr(error)
            session, self._session, self._is_recording = self._session, None, False
            if session is not None:
                session.abandon()

    def _prepare(self) -> None:
        from stepscope.profiling.window.session import (
            Session,  # lazy: the program may bring its own torch path
        )

        self._session = Session(self._request.detail)
        self._session.prepare()

    def _record(self) -> None:
        if self._session is not None:
            self._session.record()
            self._is_recording = True

    def _finish(self) -> None:
        from stepscope.profiling.window.finish import finish_session  # lazy: it loads numpy, as torch does
        from stepscope.profiling.window.window_profile import Place

        session, self._session, self._is_recording = self._session, None, False
        if session is not None:
            finish_session(session, Place(), self._request.top, self._request.base)
        self._stages.clear()

    def _missing_reason(self) -> str:
        ran_s = time.monotonic() - self._began_at
        if _NEEDED not in sys.modules:
            return f"it ran for {ran_s:.1f} s and did not import torch"
        if ran_s <= self._request.after_s:
            return f"it ended after {ran_s:.1f} s, before the window began; pass a smaller --after"
        return "its main thread never reached a point at which the profiler could start"


def _unused_signal() -> int:
    """A real-time signal without a handler; the highest numbers first, which libraries use least."""
    for number in range(signal.SIGRTMAX, signal.SIGRTMIN - 1, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            return number
    raise StepscopeError("Every real-time signal of this process is in use; the profiler needs one.")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if _IMPORTING in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
