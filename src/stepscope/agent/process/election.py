"""Makes sure that a store folder has at most one agent, and names it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from stepscope import procfs
from stepscope.agent.process.report import own_report, write_report
from stepscope.descriptors import hold
from stepscope.errors import StoreLocked
from stepscope.filesystem import open_regular, read_regular, share

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK_NAME = "agent.lock"


class AgentLock:
    """The right to write a store: a kernel lock on a file, released when the process that holds it ends."""

    def __init__(self, folder: Path, *, as_agent: bool = True) -> None:
        """Takes the lock; with `as_agent=False` this process is not named as the folder's agent."""
        self._path = folder / LOCK_NAME
        folder.mkdir(parents=True, exist_ok=True)
        # Readable by all: other users of a shared folder must see that there is an agent.
        self._held = hold(open_regular(self._path, os.O_RDWR | os.O_CREAT, 0o644))
        share(self._path, folder)
        try:
            fcntl.flock(self._held.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._held.close()
            raise StoreLocked(
                f"The store {folder} is being written by {_describe(self._path)}; a store has one "
                "writer. Wait until it ends, or use another folder with STEPSCOPE_DIR."
            ) from error
        os.ftruncate(self._held.number, 0)
        if as_agent:
            # Before it is named as the agent: a process that finds the name reads the report.
            write_report(folder, own_report())
            holder = {"host": os.uname().nodename, **asdict(procfs.mark(os.getpid()))}
            os.pwrite(self._held.number, json.dumps(holder).encode(), 0)

    def is_in_place(self) -> bool:
        """Whether the lock is still the file at its path; raises OSError where that is unknown."""
        return self._held.is_own() and _is_at(self._path, os.fstat(self._held.number))

    def release(self) -> None:
        """Releases the lock for another agent."""
        if self._held.is_own():
            os.ftruncate(self._held.number, 0)
        self._held.close()

    def __enter__(self) -> AgentLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _is_at(path: Path, opened: os.stat_result) -> bool:
    try:
        return os.path.samestat(opened, path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def agent_pid(folder: Path) -> int | None:
    """The process number of a folder's agent; None when there is none on this host."""
    holder = _holder(folder / LOCK_NAME)
    if holder is None or not procfs.is_alive(holder):
        return None
    return holder.pid


def _holder(path: Path) -> procfs.ProcessMark | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        holder = json.loads(read_regular(path))
        if holder.pop("host") == os.uname().nodename:
            return procfs.ProcessMark(**holder)
    return None


def _describe(path: Path) -> str:
    try:
        holder = json.loads(read_regular(path))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
