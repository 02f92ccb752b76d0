"""Makes sure that a store folder has one agent, and says who it is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.errors import StoreLocked

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK_NAME = "agent.lock"


class AgentLock:
    """The right to write a store: the kernel's lock on a file, gone with the process that holds it."""

    def __init__(self, folder: Path, *, attends: bool = True) -> None:
        """Takes the lock; one who only passes by (`attends=False`) is not named as the folder's agent."""
        self._path = folder / LOCK_NAME
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise StoreLocked(
                f"The store {folder} is being written by {_describe(self._path)}; a store has one "
                "writer. Wait until it ends, or use another folder with STEPSCOPE_DIR."
            ) from error
        os.ftruncate(self._descriptor, 0)
        if attends:
            who = {"host": os.uname().nodename, **asdict(procfs.mark(os.getpid()))}
            os.pwrite(self._descriptor, json.dumps(who).encode(), 0)

    def release(self) -> None:
        """Lets another agent take over."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def __enter__(self) -> AgentLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def agent_pid(folder: Path) -> int | None:
    """The process that attends to a folder; None when there is none, or it is not of this host."""
    holder = _holder(folder / LOCK_NAME)
    if holder is None or not procfs.is_alive(holder):
        return None
    return holder.pid


def _holder(path: Path) -> procfs.ProcessMark | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        who = json.loads(path.read_text())
        if who.pop("host") == os.uname().nodename:
            return procfs.ProcessMark(**who)
    return None


def _describe(path: Path) -> str:
    try:
        who = json.loads(path.read_text())
    except (OSError, ValueError):
        return "another process"
    return f"process {who['pid']} on {who['host']}"
