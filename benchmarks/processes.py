"""Runs a command and accounts for every process it starts, detached ones included.

The benchmark declares itself the subreaper of its descendants (Linux, prctl(2)): a helper that
outlives its parent becomes the benchmark's child, and wait4(2) hands over its exact CPU time.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.005
TERMINATE_S = 3.0


def become_subreaper() -> None:
    """Adopt orphaned descendants from now on."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


class Tree:
    """A trainer and everything it starts; one at a time."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.log = folder / "log.txt"
        self.cpu_s = 0.0
        self.processes = 0
        self.helpers_left = 0
        with self.log.open("w") as log:
            self._trainer = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    @property
    def returncode(self) -> int | None:
        """Exit code of the trainer, None while it runs."""
        return self._trainer.returncode

    def wait_for_trainer(self, limit_s: float) -> None:
        """Reap until the trainer has ended; kill everything when it takes longer."""
        deadline = time.monotonic() + limit_s
        while self._trainer.returncode is None:
            if time.monotonic() > deadline:
                self.kill_tree()
            self._reap()

    def wait_for_helpers(self, limit_s: float) -> None:
        """Waits for helpers to end, then terminates them, then kills them."""
        if self._reap_until_none(limit_s):
            return
        left = psutil.Process().children(recursive=True)
        self.helpers_left = len(left)
        _signal(left, signal.SIGTERM)
        if not self._reap_until_none(TERMINATE_S):
            _signal(psutil.Process().children(recursive=True), signal.SIGKILL)
            self._reap_until_none(TERMINATE_S)

    def kill_trainer(self) -> None:
        """Kill the training process alone."""
        os.kill(self._trainer.pid, signal.SIGKILL)

    def kill_group(self) -> None:
        """Kill the process group the trainer leads."""
        os.killpg(self._trainer.pid, signal.SIGKILL)

    def kill_tree(self) -> None:
        """Kill the trainer and every helper, detached or not."""
        _signal(psutil.Process().children(recursive=True), signal.SIGKILL)

    def _reap_until_none(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        try:
            while time.monotonic() < deadline:
                self._reap()
        except ChildProcessError:
            return True
        return False

    def _reap(self) -> None:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(POLL_S)
            return
        self.processes += 1
        self.cpu_s += usage.ru_utime + usage.ru_stime
        if pid == self._trainer.pid:
            self._trainer.returncode = os.waitstatus_to_exitcode(status)


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
