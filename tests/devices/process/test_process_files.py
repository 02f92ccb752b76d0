"""Files of processes stay open while they are read, tell of no other process, and are few."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.devices.process.processes import ProcessFiles

WAITS = [sys.executable, "-c", "input()"]


def open_files() -> int:
    """How many files of processes are open here: threads of other tests may open others meanwhile."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return sum(re.fullmatch(r"/proc/\d+/(stat|status|io)", target) is not None for target in targets)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(WAITS, stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_file_that_is_read_again_is_opened_once_and_has_current_contents(child) -> None:
    files = ProcessFiles()
    before = open_files()
    first = files.read(child.pid, "stat")
    assert open_files() == before + 1
    assert first is not None
    os.sched_setaffinity(child.pid, {min(os.sched_getaffinity(child.pid))})
    status = [files.read(child.pid, "status") for _ in range(3)]
    assert all(text is not None and text.startswith("Name:") for text in status)
    assert open_files() == before + 2
    files.close()
    assert open_files() == before


def test_a_process_that_has_ended_cannot_be_read_and_leaves_nothing_open(child) -> None:
    files = ProcessFiles()
    before = open_files()
    assert files.read(child.pid, "io") is not None
    child.kill()
    child.wait()
    assert files.read(child.pid, "io") is None
    assert files.read(child.pid, "stat") is None
    assert open_files() == before


def test_files_of_processes_that_are_no_longer_watched_are_closed(child) -> None:
    files = ProcessFiles()
    before = open_files()
    files.read(child.pid, "stat")
    files.read(os.getpid(), "stat")
    files.keep_only({os.getpid()})
    assert open_files() == before + 1
    files.close()


def test_beyond_a_number_of_files_none_is_kept_open_and_all_are_read(child) -> None:
    files = ProcessFiles(max_open=1)
    before = open_files()
    assert all(files.read(child.pid, name) for name in ("stat", "status", "io"))
    assert open_files() == before + 1
    files.close()


def test_files_of_another_folder_are_not_kept_open(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (python) S")
    files = ProcessFiles(tmp_path)
    assert files.read(7, "stat") == "7 (python) S"
    (tmp_path / "7" / "stat").unlink()
    assert files.read(7, "stat") is None
