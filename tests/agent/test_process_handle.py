"""Whether a recording process lives, by the kernel's handle of it or by /proc."""

import os
import subprocess

import pytest

from stepscope import procfs
from stepscope.agent.liveness import ProcessHandle


@pytest.fixture(params=["pidfd", "proc"])
def sleeper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    if request.param == "proc":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    started = subprocess.Popen(["sleep", "60"])
    yield started
    started.kill()
    started.wait()


def test_a_process_is_alive_until_it_ends_and_while_it_is_a_zombie_no_more(sleeper: subprocess.Popen) -> None:
    handle = ProcessHandle(procfs.mark(sleeper.pid))
    assert [handle.is_alive() for _ in range(3)] == [True] * 3
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert [handle.is_alive() for _ in range(2)] == [False] * 2
    handle.close()


def test_another_process_of_the_same_number_is_not_taken_for_it(sleeper: subprocess.Popen) -> None:
    mark = procfs.mark(sleeper.pid)
    earlier = procfs.ProcessMark(mark.pid, (mark.start_ticks or 0) - 1, mark.boot_id, mark.namespace)
    handle = ProcessHandle(earlier)
    assert handle.is_alive() is False
    handle.close()


def test_a_closed_handle_leaves_no_descriptor(sleeper: subprocess.Popen) -> None:
    before = len(os.listdir("/proc/self/fd"))
    handle = ProcessHandle(procfs.mark(sleeper.pid))
    handle.is_alive()
    handle.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert handle.is_alive() is True
    handle.close()
