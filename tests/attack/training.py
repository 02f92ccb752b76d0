"""Starts trainings as processes of their own, and kills them and their agents."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepscope.agent.process.election import agent_pid
from tests.attack import trainer
from tests.attack.trainer import PAGE, PHASES

SCRIPT = Path(trainer.__file__)
ENDLESS = 2**62
LAST_PHASE = len(PHASES)
MARK = "ATTACK_FOLDER"
"""Tells by the environment, which agents inherit, which case a process belongs to."""


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Waits until something is true; False when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


class Training:
    """One training process, which goes from phase to phase as it is allowed to."""

    def __init__(
        self,
        scratch: Path,
        store: Path,
        run: str,
        *,
        rows: int = ENDLESS,
        keys: int = 1,
        burst: int = 20,
        pause_s: float = 0.001,
        salt: float = 0.0,
        settings: dict[str, Any] | None = None,
        hold_at: str | None = None,
    ) -> None:
        self.run, self.rows, self.salt, self.keys = run, rows, salt, keys
        page = scratch / f"{run}.page"
        allowed = LAST_PHASE if hold_at is None else PHASES.index(hold_at) - 1
        page.write_bytes(PAGE.pack(0, 0, max(allowed, 0), 0.0, rows))
        page.chmod(0o666)
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), PAGE.size)
        self._errors = scratch / f"{run}.stderr"
        task = {
            "page": str(page),
            "folder": str(store),
            "run": run,
            "keys": keys,
            "burst": burst,
            "pause_s": pause_s,
            "salt": salt,
            "settings": settings or {},
            "event_at": 10,
        }
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(task)],
                stdout=errors,
                stderr=errors,
                cwd=scratch,
                env={**os.environ, MARK: str(scratch)},
                start_new_session=True,
            )

    @property
    def acknowledged(self) -> int:
        """Rows whose log call has returned."""
        return PAGE.unpack_from(self._page)[0]

    @property
    def longest_call_s(self) -> float:
        """What the slowest log call took."""
        return PAGE.unpack_from(self._page)[3]

    @property
    def stderr(self) -> str:
        """What the process has printed so far."""
        return self._errors.read_text(errors="replace")

    def has_reached(self, phase: str) -> bool:
        """Whether it has come to a phase, or has ended."""
        return PAGE.unpack_from(self._page)[1] >= PHASES.index(phase) or self.process.poll() is not None

    def reach(self, phase: str, seconds: float = 60.0) -> bool:
        """Lets it go on to a phase and waits until it is there."""
        self._allow(PHASES.index(phase) - 1)
        return wait_for(lambda: self.has_reached(phase), seconds)

    def go_on(self) -> None:
        """Lets it go on to its end."""
        self._allow(LAST_PHASE)

    def log_until(self, rows: int, seconds: float = 60.0) -> bool:
        """Waits until it has logged so many rows."""
        return wait_for(lambda: self.acknowledged >= rows or self.process.poll() is not None, seconds)

    def ask_to_stop(self) -> None:
        """Lets it stop after the row it is at."""
        memoryview(self._page)[32:40].cast("Q")[0] = 0
        self.go_on()

    def end(self, seconds: float = 60.0) -> int | None:
        """Lets it end by itself; its exit code, or None when it had to be killed for taking too long."""
        self.go_on()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        """Kills it and waits until it is dead."""
        self.process.kill()
        self.process.wait()

    def _allow(self, phase: int) -> None:
        memoryview(self._page)[16:24].cast("Q")[0] = phase


@contextlib.contextmanager
def trainings() -> Iterator[Callable[..., Training]]:
    """Gives a function that starts trainings; whatever still runs afterwards is killed."""
    started: list[Training] = []

    def start(*arguments: object, **options: object) -> Training:
        started.append(Training(*arguments, **options))
        return started[-1]

    try:
        yield start
    finally:
        for training in started:
            if training.process.poll() is None:
                training.kill()


def kill_agent(store: Path) -> bool:
    """Kills the agent of a store folder; False when there is none."""
    pid = agent_pid(store)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: agent_pid(store) != pid)
    return True


def processes_of(scratch: Path) -> list[int]:
    """The trainings of a case that still run, and their agents."""
    mark = f"{MARK}={scratch}".encode()
    pids = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                pids.append(int(environment.parent.name))
    return pids


def end_agents(scratch: Path) -> None:
    """Kills the agents that a case has left behind; where a folder is spoilt they may stay for ever."""
    for pid in processes_of(scratch):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def agent_log(store: Path) -> str:
    """What the agents of a folder have printed; nothing where its place is taken by something odd."""
    path = store / "agent.log"
    if path.is_symlink() or not path.is_file():
        return ""
    return path.read_text(errors="replace")
