"""Starts an agent for a store folder, as its own process or as a thread; standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.agent.process.detached import AGENT_MODULE, open_log, start_process
from stepscope.agent.process.election import agent_pid
from stepscope.agent.process.report import explain_error, read_report
from stepscope.journal.folder import ALL, stored_so_far
from stepscope.journal.layout import VERSION
from stepscope.procfs import is_stopped
from stepscope.store.place import database, point_to
from stepscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.agent.process.detached import Child
    from stepscope.agent.process.report import AgentReport
    from stepscope.config.sections import Settings

LOG_NAME = "agent.log"
MAX_START_S = 30.0
"""An agent that is not named in the lock after this time has failed to start."""
TROUBLE_GRACE_S = 2.0
"""How long to wait for an agent that reports trouble."""
RETRY_S = 5.0
MAX_RETRY_S = 60.0

_threads: dict[Path, AgentThread] = {}
_children: dict[Path, Child] = {}
"""The agent this process started last for each folder; it may not have the lock yet."""
_failures: dict[Path, Failure] = {}


@dataclass
class Failure:
    """Repeated failures to start the agent of a folder."""

    reason: str
    retry_at: float
    pause_s: float = RETRY_S


class AgentThread:
    """An agent inside this process, for systems where no process may be started."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._stop = threading.Event()
        self.failure = ""
        """Why it failed; empty while it runs, and after a normal end."""
        self._thread = threading.Thread(
            target=self._attend, args=(folder, settings), name="stepscope-agent", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def _attend(self, folder: Path, settings: Settings) -> None:
        try:
            from stepscope.agent.process.attend import attend, log_to
            from stepscope.errors import StoreLocked

            log_to(open_log(folder / LOG_NAME))
            with contextlib.suppress(StoreLocked):
                attend(folder, settings, self._stop.is_set)
        except Exception as error:  # noqa: BLE001 - our thread must not print a traceback into the training's output
            self.failure = explain_error(error)


def database_of(folder: Path) -> Path:
    """The path of a store folder's database, for the recorder, which must not import the store."""
    return database(folder)


def ensure_agent(folder: Path, settings: Settings) -> None:
    """Starts an agent unless one runs or the mode is `none`; raises OSError if the folder cannot be made."""
    if settings.store.url is not None:
        point_to(folder, settings.store.url)
    if settings.agent.mode == "none" or agent_pid(folder) is not None or _is_starting(folder):
        return
    _note_failure(folder)
    failure = _failures.get(folder)
    if failure is not None and time.monotonic() < failure.retry_at:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if settings.agent.mode == "process":
        child = start_process(AGENT_MODULE, folder, settings, LOG_NAME)
        if child is not None:
            _children[folder] = child
            return
    known = _threads.get(folder)
    if known is None or not known.is_alive():
        _threads[folder] = AgentThread(folder, settings)


def agent_trouble(folder: Path, waited_s: float = TROUBLE_GRACE_S) -> str:
    """Why the agent of a folder cannot work, and what to do about it; empty where no trouble is known.

    A live agent may recover, so it is given some time without progress.
    """
    pid = agent_pid(folder)
    if pid is None:
        return _trouble_at_start(folder)
    _failures.pop(folder, None)
    if waited_s < TROUBLE_GRACE_S:
        return ""
    report = read_report(folder)
    if report is not None and report.pid == pid:
        if report.trouble:
            return f"{report.trouble} (the agent is process {pid})"
        if report.journal_version < VERSION:
            return restart_older(pid, report)
    if is_stopped(pid):
        return f"the agent, process {pid}, is stopped. Resume it with: kill -CONT {pid}"
    return _other_user(pid)


def _trouble_at_start(folder: Path) -> str:
    if not _is_starting(folder):
        _note_failure(folder)
    elif delay := _children[folder].delay(MAX_START_S):
        return delay
    return _failures[folder].reason if folder in _failures else ""


def older_agent(folder: Path) -> str:
    """What to do about an agent of an older version; empty where there is none."""
    pid = agent_pid(folder)
    if pid is None:
        return ""
    report = read_report(folder)
    if report is None or report.pid != pid:
        # A folder that cannot be written has no report.
        return restart_older(pid, None) if os.access(folder, os.W_OK) else ""
    return restart_older(pid, report) if _numbers(report.version) < _numbers(__version__) else ""


def restart_older(pid: int, report: AgentReport | None) -> str:
    """A message that says which process to restart."""
    version = "an older version" if report is None else f"stepscope {report.version} ({report.python})"
    return (
        f"The agent of this store, process {pid}, is {version}; this is stepscope {__version__}. Restart it "
        f"with: kill {pid} (a new one is started within seconds, and nothing is lost)"
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _other_user(pid: int) -> str:
    """A message where the agent of another user may not read this user's journals."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    if owner in (0, os.geteuid()):
        return ""
    return (
        f"process {pid} of user {owner} is the agent of this store, and cannot read records of user "
        f"{os.geteuid()}. Use a folder of your own with STEPSCOPE_DIR, or wait until it has ended."
    )


def _note_failure(folder: Path) -> None:
    """Remembers why the last agent failed, and doubles the pause before the next start."""
    child, thread = _children.pop(folder, None), _threads.get(folder)
    reason = ""
    if child is not None:
        reason = child.failure()
        child.close()
    if thread is not None and not thread.is_alive():
        reason, thread.failure = reason or thread.failure, ""
    if reason:
        known = _failures.get(folder)
        pause_s = RETRY_S if known is None else min(2 * known.pause_s, MAX_RETRY_S)
        _failures[folder] = Failure(reason, time.monotonic() + pause_s, pause_s)


def wait_until_read(
    unread_files: Callable[[], Sequence[Path]],
    patience_s: float,
    nudge: Callable[[], None],
    trouble: Callable[[float], str],
) -> bool:
    """Waits until an agent has stored and deleted files; False after `patience_s` in which it stored nothing.

    It also stops when `trouble`, called with the seconds without progress, returns a message. A file that is
    stored is deleted after a diagnosis and exports, for which it waits `patience_s` at most.
    """
    waiting: set[tuple[Path, int]] = set()
    since = time.monotonic()
    pause = 0.002
    while left := {(path, stored_so_far(path)) for path in unread_files()}:
        if left != waiting:
            waiting, since = left, time.monotonic()
        waited_s = time.monotonic() - since
        if waited_s > patience_s or trouble(waited_s):
            return all(stored == ALL for _, stored in left)
        nudge()
        select.select([], [], [], pause)  # unlike time.sleep, not affected by clock changes
        pause = min(pause * 1.5, 0.05)
    return True


def _is_starting(folder: Path) -> bool:
    child = _children.get(folder)
    if child is None or not child.is_running():
        return False
    return not child.has_begun() or time.monotonic() - child.started_at < MAX_START_S
