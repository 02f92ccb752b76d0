"""Starts a stepscope process that outlives this one and is not its child; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stepscope.agent.process.election import agent_pid
from stepscope.agent.process.report import explain_error, own_report, write_report
from stepscope.config.find import STARTED_VARIABLE
from stepscope.config.sections import to_dict
from stepscope.descriptors import hold
from stepscope.errors import StepscopeError
from stepscope.filesystem import open_regular
from stepscope.procfs import start_ticks

if TYPE_CHECKING:
    from stepscope.config.sections import Settings
    from stepscope.descriptors import HeldDescriptor

AGENT_MODULE = "stepscope.agent.process.attend"
MAX_LOG_BYTES = 1 << 20

_HANDSHAKE_START = b'{"process": '
_PROCESS_DIGITS = 10
_PYTHON = re.compile("python|pypy|graalpy", re.IGNORECASE)


class Child:
    """A process that was started here, and the handshake file it shares with this one.

    The file holds the arguments of the process. The process writes its number into it, and if it fails it
    overwrites the file with the reason; the file is in memory, so that this works on a full disk too.
    """

    def __init__(self, starter: int, handshake: HeldDescriptor, log: Path) -> None:
        self._starter, self._handshake, self._log = starter, handshake, log
        self._has_started = False
        self._exit_code: int | None = None
        self.started_at = time.monotonic()
        # Waited for at once: a training that waits for all of its children would get this one.
        self._waiting = threading.Thread(target=self._wait, name="stepscope-start", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread can be started any more
            self._waiting.start()

    def has_begun(self) -> bool:
        """Whether it has begun to run its module."""
        return self._pid() != 0

    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._is_starting() or start_ticks(self._pid()) is not None

    def delay(self, after_s: float) -> str:
        """A message when it has not begun after `after_s`; empty otherwise."""
        waited_s = time.monotonic() - self.started_at
        if waited_s < after_s or self.has_begun():
            return ""
        return (
            f"{sys.executable} was started as process {self._starter}, and has not begun in {waited_s:.0f} s"
        )

    def failure(self) -> str:
        """Why it failed, and what to do about it; empty while it runs, and after a normal end."""
        if not self._handshake.is_own():
            return ""
        written = os.pread(self._handshake.number, 1 << 16, 0)
        if not written.startswith(_HANDSHAKE_START):
            return written.decode(errors="replace")
        if self.has_begun() or self._is_starting():
            return ""
        code = "" if self._exit_code is None else f" with exit code {self._exit_code}"
        return (
            f"{sys.executable} ended{code} before it had begun. See {self._log}, or have the agent inside "
            "the training process with STEPSCOPE_AGENT__MODE=thread"
        )

    def close(self) -> None:
        """Closes the handshake file."""
        self._handshake.close()

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):  # other code has waited for it
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self._starter, 0)[1])
        self._has_started = True

    def _is_starting(self) -> bool:
        """Whether the intermediate process that starts it still runs."""
        if not self._has_started and start_ticks(self._starter) is None:
            if self._waiting.is_alive():
                self._waiting.join()
            else:
                self._wait()
        return not self._has_started

    def _pid(self) -> int:
        """Its process number; 0 when it has not begun."""
        if not self._handshake.is_own():
            return 0
        digits = os.pread(self._handshake.number, _PROCESS_DIGITS, len(_HANDSHAKE_START))
        return int(digits) if digits.strip().isdigit() else 0


def start_process(module: str, folder: Path, settings: Settings, log_name: str) -> Child | None:
    """Runs `main` of a module in a process that outlives this one; None where none can be started."""
    if STARTED_VARIABLE in os.environ or not _is_python():
        return None
    import subprocess  # lazy: the second monitor of a host starts none

    package = str(Path(__file__).parents[3])
    # The process must not be a child of the training, which may wait for all of its children: an intermediate
    # process starts it and ends.
    detach = (
        f"import os, sys; pid = os.fork(); pid and os.pwrite(0, b'%{_PROCESS_DIGITS}d' % pid, "
        f"{len(_HANDSHAKE_START)}) and os._exit(0)"
    )
    # The working directory may contain files named like modules we need: it is not searched.
    start = f"from {__name__} import run; run({module!r})"
    code = f"{detach}; sys.path[0] = {package!r}; {start}"
    arguments = json.dumps({"folder": str(folder.absolute()), "settings": to_dict(settings)}).encode()
    try:
        handshake = hold(_open_handshake(_HANDSHAKE_START + b"%*d, " % (_PROCESS_DIGITS, 0) + arguments[1:]))
    except OSError:
        return None
    log_path = folder / log_name
    try:
        with open_log(log_path) as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=handshake.number,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # a signal to the training's process group must not reach it
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                    STARTED_VARIABLE: "1",
                },
            )
    except (OSError, ValueError):
        handshake.close()
        return None
    # Its exit code is not used here; without this, Python warns about a child that was not waited for.
    process.returncode = 0
    return Child(process.pid, handshake, log_path)


def run(module: str) -> None:
    """Runs `main` of a module in a process that `start_process` started; reports why where it fails."""
    import importlib

    os.environ.pop(STARTED_VARIABLE, None)
    handshake = sys.stdin.fileno()
    folder = Path(json.loads(os.pread(handshake, os.fstat(handshake).st_size, 0))["folder"])
    try:
        sys.exit(importlib.import_module(module).main())
    except Exception as error:
        reason = explain_error(error)
        os.ftruncate(handshake, 0)
        os.pwrite(handshake, reason.encode(), 0)
        if module == AGENT_MODULE and agent_pid(folder) is None:
            write_report(folder, own_report(reason))  # for processes that did not start it
        if not isinstance(error, OSError | StepscopeError | ModuleNotFoundError):
            raise
        sys.stderr.write(f"Cannot work: {reason}\n")
        sys.exit(1)


def open_log(path: Path) -> IO[bytes]:
    """Opens a log file, emptied when it is large; opens the null device where no file can be made."""
    try:
        descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.ftruncate(descriptor, 0)
        return os.fdopen(descriptor, "ab")
    except OSError:
        return Path(os.devnull).open("wb")


def _is_python() -> bool:
    """Whether `sys.executable` is Python: a frozen program, or one that embeds Python, would start itself."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return False
    return _PYTHON.search(Path(sys.executable).name) is not None


def _open_handshake(content: bytes) -> int:
    """Writes the handshake file before the process starts: this process may be stopped right after."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stepscope-settings")
    else:
        import tempfile  # lazy: only where there is no memory file

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
