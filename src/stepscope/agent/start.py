"""Starts an agent for a store folder, as a process of its own or as a thread; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stepscope.agent.election import agent_pid
from stepscope.config.plain import to_dict
from stepscope.procfs import start_ticks
from stepscope.store.place import point_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.config.sections import Settings

LOG_NAME = "agent.log"
MOST_LOG_BYTES = 1 << 20

_threads: dict[Path, AgentThread] = {}
_children: dict[Path, int] = {}
"""The agent this process started last for each folder; it may still be on its way to the lock."""


class AgentThread:
    """An agent inside this process, for places where no process may be started."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._attend, args=(folder, settings), name="stepscope-agent", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still attends."""
        return self._thread.is_alive()

    def _attend(self, folder: Path, settings: Settings) -> None:
        from stepscope.agent.attend import attend
        from stepscope.errors import StoreLocked

        with contextlib.suppress(StoreLocked):
            attend(folder, settings, self._stop.is_set)


def ensure_agent(folder: Path, settings: Settings) -> None:
    """Starts an agent unless there is one, or none is wanted; raises OSError if the folder cannot be made."""
    if settings.store.url is not None:
        point_to(folder, settings.store.url)
    if settings.agent.mode == "none" or agent_pid(folder) is not None or _is_starting(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    if settings.agent.mode == "process":
        pid = start_process("stepscope.agent.attend", folder, settings, LOG_NAME)
        if pid is not None:
            _children[folder] = pid
            return
    known = _threads.get(folder)
    if known is None or not known.is_alive():
        _threads[folder] = AgentThread(folder, settings)


def wait_until_read(
    unread: Callable[[], Sequence[Path]], patience_s: float, nudge: Callable[[], None]
) -> bool:
    """Waits until an agent has taken in and deleted files; False when it gets on with none for so long."""
    waiting: set[Path] = set()
    deadline = 0.0
    pause = 0.002
    while left := set(unread()):
        if left != waiting:
            waiting, deadline = left, time.monotonic() + patience_s
        elif time.monotonic() > deadline:
            return False
        nudge()
        select.select([], [], [], pause)  # unlike time.sleep, indifferent to a clock that jumps
        pause = min(pause * 1.5, 0.05)
    return True


def start_process(module: str, folder: Path, settings: Settings, log_name: str) -> int | None:
    """Runs `main` of a module in a process that outlives this one; its number, None where none may start."""
    import subprocess  # lazy: the second monitor of a host starts none

    package = str(Path(__file__).parents[2])
    # The working directory may hold files named like modules we need: it is not searched.
    code = f"import sys; sys.path[0] = {package!r}; from {module} import main; sys.exit(main())"
    try:
        with _open_log(folder / log_name) as log, _told(folder, settings) as told:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=told,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # a signal to the training's group must not take it along
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
    except (OSError, ValueError):
        return None
    # Its end is nobody's business here; without this, Python warns of a child not waited for.
    process.returncode = 0
    return process.pid


def _told(folder: Path, settings: Settings) -> IO[bytes]:
    """What such a process reads first, written before it starts: this process may be stopped right after."""
    if hasattr(os, "memfd_create"):
        told: IO[bytes] = os.fdopen(os.memfd_create("stepscope-settings"), "w+b")  # works on a full disk
    else:
        import tempfile  # lazy: only where there is no memory file

        told = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    told.write(json.dumps({"folder": str(folder.absolute()), "settings": to_dict(settings)}).encode())
    told.seek(0)
    return told


def _is_starting(folder: Path) -> bool:
    pid = _children.get(folder)
    return pid is not None and is_running(pid)


def is_running(pid: int) -> bool:
    """Whether a process that was started here still runs; one that has ended is let go."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return start_ticks(pid) is not None


def _open_log(path: Path) -> IO[bytes]:
    """A log, begun anew when it has grown large; nowhere on a disk that takes no more files."""
    try:
        too_large = path.exists() and path.stat().st_size > MOST_LOG_BYTES
        return path.open("wb" if too_large else "ab")
    except OSError:
        return Path(os.devnull).open("wb")
