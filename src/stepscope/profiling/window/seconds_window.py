"""Profiles some seconds of a program that knows nothing of it.

A thread waits for the moment and sends the main thread a signal; what is to be done is done in its handler,
because torch's profiler records the thread that starts it.
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

LOOK_EVERY_S = 0.05
WARM_UP_S = 0.3
_NEEDED = "torch.profiler"
_IMPORTING = "importlib._bootstrap"


@dataclass(frozen=True)
class Wanted:
    """Which part of a program is to be profiled, and what is kept of it."""

    after_s: float
    """How long to wait from its start."""
    length_s: float
    base: Path
    """What the names of its files begin with."""
    detail: Detail
    top: int


class SecondsWindow:
    """One window in the life of a process; made and ended on its main thread."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._began_at = time.monotonic()
        self._process = os.getpid()
        self._signal = _unused_signal()
        self._session: Session | None = None
        self._is_recording = False
        self._trouble: str | None = None
        self._stages: list[Callable[[], None]] = [self._prepare, self._record, self._finish]
        self._answered = threading.Event()
        self._over = threading.Event()

    def begin(self) -> None:
        """Waits for its moment in a thread of its own."""
        signal.signal(self._signal, self._on_signal)
        signal.siginterrupt(self._signal, False)  # noqa: FBT003 - that is how the standard library has it
        threading.Thread(target=self._time_stages, name="stepscope-profile", daemon=True).start()

    def end(self) -> None:
        """Ends the window with the program: keeps what was recorded, or writes down why nothing was."""
        if os.getpid() != self._process:
            return  # a fork that leaves by the same door
        self._over.set()
        signal.signal(self._signal, signal.SIG_IGN)  # one may be under way, and would kill the process
        if self._is_recording:
            self._do(self._finish)
        elif self._session is not None:
            self._session.abandon()
            self._trouble = "it ended during the warm-up of the window"
        if self._stages:
            summary = self._wanted.base.with_name(f"{self._wanted.base.name}.json")
            write_json(summary, {"reason": self._trouble or self._why_nothing()})

    def _time_stages(self) -> None:
        pauses = (self._wanted.after_s, WARM_UP_S, self._wanted.length_s)
        for pause, stage in zip(pauses, tuple(self._stages), strict=True):
            if self._over.wait(pause):
                return
            while stage in self._stages and self._trouble is None:
                if _NEEDED in sys.modules:
                    self._ask_main_thread()
                if self._over.wait(LOOK_EVERY_S):
                    return

    def _ask_main_thread(self) -> None:
        """Sends one signal and waits for its handler: another one before that would only disturb."""
        self._answered.clear()
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, self._signal)
            while not self._answered.wait(LOOK_EVERY_S) and not self._over.is_set():
                pass

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        """Does what is due next, unless the program is importing: torch may be half there."""
        try:
            if self._stages and self._trouble is None and not _is_importing(frame):
                self._do(self._stages[0])
        finally:
            self._answered.set()

    def _do(self, stage: Callable[[], None]) -> None:
        try:
            stage()
            self._stages.remove(stage)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a profiler, the program goes on
            self._trouble = str(error) if isinstance(error, StepscopeError) else repr(error)
            session, self._session, self._is_recording = self._session, None, False
            if session is not None:
                session.abandon()

    def _prepare(self) -> None:
        from stepscope.profiling.window.session import (
            Session,  # lazy: the program may bring its own torch path
        )

        self._session = Session(self._wanted.detail)
        self._session.prepare()

    def _record(self) -> None:
        if self._session is not None:
            self._session.record()
            self._is_recording = True

    def _finish(self) -> None:
        from stepscope.profiling.window.finish import finished  # lazy: it loads numpy, as torch does
        from stepscope.profiling.window.window_profile import Place

        session, self._session, self._is_recording = self._session, None, False
        if session is not None:
            finished(session, Place(), self._wanted.top, self._wanted.base)
        self._stages.clear()

    def _why_nothing(self) -> str:
        ran_s = time.monotonic() - self._began_at
        if _NEEDED not in sys.modules:
            return f"it ran for {ran_s:.1f} s and did not import torch"
        if ran_s <= self._wanted.after_s:
            return f"it ended after {ran_s:.1f} s, before the window began; pass a smaller --after"
        return "its main thread never came by a moment at which the profiler could start"


def _unused_signal() -> int:
    """A real-time signal that nobody handles, from the end that libraries use least."""
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
