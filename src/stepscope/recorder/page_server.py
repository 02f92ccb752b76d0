"""Finds the server of a store folder's web page, or starts one with a run; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from stepscope import procfs
from stepscope.agent.process.detached import start_process
from stepscope.filesystem import read_regular

if TYPE_CHECKING:
    from stepscope.agent.process.detached import Child
    from stepscope.config.sections import Settings

NAME = "server.json"
LOG_NAME = "server.log"
MAX_WAIT_S = 5.0
"""How long to wait for a server that is starting."""

_children: dict[Path, Child] = {}
"""The server this process started last for each folder."""


@dataclass(frozen=True)
class Served:
    """A server that runs on this host."""

    address: str
    """Where it listens, without a slash at the end."""
    token_file: str | None
    """The path of its token file; None if it needs no token."""
    pid: int

    def link(self, path: str = "/") -> str:
        """The address of a page, with the token where one is needed."""
        token = ""
        if self.token_file is not None:
            with contextlib.suppress(OSError):
                token = f"?token={quote(Path(self.token_file).read_text().strip())}"
        return f"{self.address}{path}{token}"


def find_server(folder: Path) -> Served | None:
    """The running server of a folder; None if there is none on this host of this user."""
    path = folder / NAME
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if path.stat().st_uid != os.getuid():
            return None
        entry = json.loads(read_regular(path))
        marks = procfs.ProcessMark(**entry["process"])
        if entry["host"] == os.uname().nodename and procfs.is_alive(marks):
            return Served(str(entry["address"]), entry["token_file"], marks.pid)
    return None


def ensure_server(folder: Path, settings: Settings) -> None:
    """Starts a server unless one is running or starting; returns immediately."""
    if _is_starting(folder) or find_server(folder) is not None:
        return
    child = start_process("stepscope.web.server.serving", folder, settings, LOG_NAME)
    if child is not None:
        _children[folder] = child


def forget_server(folder: Path) -> None:
    """Allows another server to be started for a recreated folder: the old one is not registered in it."""
    child = _children.pop(folder, None)
    if child is not None:
        child.close()


def link_to_run(folder: Path, run_id: str) -> str | None:
    """The address of a run's page; None if no server runs. Waits for a server that is starting."""
    server = started_server(folder, MAX_WAIT_S)
    return None if server is None else server.link(f"/run/{quote(run_id)}")


def started_server(folder: Path, max_wait_s: float) -> Served | None:
    """The server of a folder; waits for one that this process has started. None if no server runs."""
    deadline = time.monotonic() + max_wait_s
    while (server := find_server(folder)) is None:
        if not _is_starting(folder) or time.monotonic() > deadline:
            return None
        time.sleep(0.05)
    return server


def _is_starting(folder: Path) -> bool:
    child = _children.get(folder)
    return child is not None and child.is_running()
