"""A disk that stays full until a process has ended: how it ended and what was lost is known all the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.ingest.exit_notes import read_exit_note
from stepscope.journal.folder import list_journals

FILL = """
import os, sys, time, stepscope
place = sys.argv[1]
store = os.path.join(place, "store")
def fill():
    with open(os.path.join(place, "filler"), "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True: file.write(bytes(size))
            except OSError:
                pass
mode = sys.argv[2]
monitor = stepscope.TrainingMonitor(
    {
        "recorder": {"segment_bytes": 65536, "mapping": sys.argv[3]},
        "agent": {"mode": mode, "interval_s": 0.01},
    },
    run="full", directory=store,
)
monitor.start_monitoring()
monitor.log({"loss": 0.5}, step=0)
if mode == "process":
    while not os.path.exists(os.path.join(store, "store.sqlite")): time.sleep(0.01)
fill()
for step in range(1, 20000):
    monitor.log({"loss": 0.5}, step=step)
"""
ENDINGS = {
    "stop_monitoring": ("monitor.stop_monitoring()", "finished", ""),
    "the end of the script": ("", "finished", ""),
    "an exception": ("raise ValueError('diverged')", "failed", "ValueError: diverged"),
    "sys.exit(3)": ("monitor.stop_monitoring('failed', 'exit with 3')", "failed", "exit with 3"),
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("mapping", ["always", "never"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_how_it_ended_and_what_was_lost_is_known_once_there_is_room_again(
    ending: str, mapping: str, small_disk: Path, run_script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    last_line, status, reason = ENDINGS[ending]
    result = run_script(FILL + last_line, small_disk, "none", mapping)
    (small_disk / "filler").unlink()

    run = stepscope.open_store(small_disk / "store").run("full")
    (process,) = run.segments[0].processes
    assert (run.status, run.reason) == (status, reason)
    kept = len(run.series("loss"))
    assert process.dropped == 20000 - kept
    assert 0 < kept < 20000
    assert process.lost == 0
    assert f"{process.dropped} records are lost" in result.stderr
    assert not list(list_journals(small_disk / "store"))
    assert not list((small_disk / "store" / "journal").rglob("*.words"))


@pytest.mark.slow
def test_an_agent_that_runs_along_reports_the_end_when_there_is_room_again(
    small_disk: Path, run_script: Callable[..., subprocess.CompletedProcess[str]], until
) -> None:
    result = run_script(FILL + "monitor.stop_monitoring()", small_disk, "process", "always")
    assert result.returncode == 0
    (small_disk / "filler").unlink()
    until(lambda: stepscope.open_store(small_disk / "store").run("full").status == "finished")
    run = stepscope.open_store(small_disk / "store").run("full")
    (process,) = run.segments[0].processes
    assert process.dropped == 20000 - len(run.series("loss")) > 0


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0" * 4096,
        b"\nstepscope end {}\n",
        b"\nstepscope end [1]\n",
        b"\nstepscope end not json",
        b'\nstepscope end {"status":"happy","reason":"","dropped":0,"time":1}\n',
        b'\nstepscope end {"status":"finished","reason":5,"dropped":0,"time":1}\n',
        b'\nstepscope end {"status":"finished","reason":"","dropped":0,"time":"x"}\n',
        b"\nstepscope end " + b"[" * 100_000,
        b"\xff\xfe\0",
    ],
)
def test_a_note_of_the_end_that_makes_no_sense_is_passed_over(said: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.words"
    path.write_bytes(said)
    assert read_exit_note(path).end is None


def test_a_note_that_is_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.words")
    assert read_exit_note(tmp_path / "a.words").text == ""
