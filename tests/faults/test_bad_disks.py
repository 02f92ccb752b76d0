"""Full, read-only, vanished and failing disks never stop training, and are reported once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.config.sections import Settings, to_dict
from stepscope.journal.folder import list_journals

STRACE = shutil.which("strace")

needs_strace = pytest.mark.skipif(STRACE is None, reason="needs strace; .ci/run installs it")


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


def test_a_full_disk_never_stops_training_and_logging_resumes_when_there_is_space(
    small_disk: Path, run_script
) -> None:
    result = run_script(
        """
        import os, sys, time, stepscope
        filler = os.path.join(sys.argv[1], "filler")
        def fill():
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True: file.write(bytes(4096))
                except OSError:
                    pass
        fill()
        monitor = stepscope.TrainingMonitor(
            {"recorder": {"segment_bytes": 65536}, "agent": {"mode": "none"}},
            run="full", directory=os.path.join(sys.argv[1], "store"),
        )
        monitor.start_monitoring()
        for step in range(200):
            monitor.log({"loss": step * 0.5}, step=step)
        for step in range(200, 3000):
            monitor.log({"loss": step * 0.5}, step=step)
        dropped = monitor.get_performance_summary()["dropped"]
        os.unlink(filler)
        time.sleep(1.2)
        for step in range(3000, 3200):
            monitor.log({"loss": step * 0.5}, step=step)
        monitor.stop_monitoring()
        print(dropped)
        """,
        small_disk,
    )
    assert result.returncode == 0
    dropped = int(result.stdout)
    assert result.stderr.count("cannot be written") == 1
    assert "No space left" in result.stderr

    run = stepscope.open_store(small_disk / "store").run("full")
    steps = run.series("loss").steps.tolist()
    assert dropped > 0
    assert steps == [*range(3000 - dropped), *range(3000, 3200)]
    (gap,) = run.events("gap")
    assert gap.fields["dropped"] == dropped
    assert run.segments[0].processes[0].dropped == dropped
    assert run.status == "finished"


@pytest.mark.slow
def test_the_agent_waits_for_space_and_loses_nothing(small_disk: Path, run_script) -> None:
    result = run_script(
        """
        import os, sys, time, stepscope
        store = os.path.join(sys.argv[1], "store")
        monitor = stepscope.TrainingMonitor(
            {"recorder": {"segment_bytes": 262144}, "agent": {"interval_s": 0.01}},
            run="tight", directory=store,
        )
        monitor.start_monitoring()
        while not os.path.exists(os.path.join(store, "store.sqlite")):
            time.sleep(0.01)
        filler = os.path.join(sys.argv[1], "filler")
        with open(filler, "wb", buffering=0) as file:
            try:
                while True: file.write(bytes(4096))
            except OSError:
                pass
        for step in range(1500):
            monitor.log({"loss": step * 0.5, "x": 1.0}, step=step)
            if step % 100 == 0: time.sleep(0.02)
        os.unlink(filler)
        monitor.stop_monitoring()
        """,
        small_disk,
    )
    assert result.returncode == 0
    run = stepscope.open_store(small_disk / "store").run("tight")
    assert run.series("loss").steps.tolist() == list(range(1500))


def test_a_disk_that_turns_read_only_is_survived_with_one_message(small_disk: Path, run_script) -> None:
    result = run_script(
        """
        import os, subprocess, sys, stepscope
        monitor = stepscope.TrainingMonitor(
            {"recorder": {"segment_bytes": 65536}, "agent": {"mode": "none"}},
            run="ro", directory=os.path.join(sys.argv[1], "store"),
        )
        monitor.start_monitoring()
        for step in range(100):
            monitor.log({"loss": 1.0}, step=step)
        subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=False)
        for step in range(100, 5000):
            monitor.log({"loss": 1.0}, step=step)
        monitor.stop_monitoring()
        """,
        small_disk,
    )
    assert result.returncode == 0
    assert result.stderr.count("\n") <= 2, result.stderr


@pytest.mark.parametrize("obstacle", ["a file in its place", "a folder above it is a file", "read-only"])
def test_a_folder_that_cannot_be_made_lets_training_run(obstacle: str, tmp_path: Path, run_script) -> None:
    target = tmp_path / "place"
    if obstacle == "a file in its place":
        target.write_text("mine")
    elif obstacle == "a folder above it is a file":
        target.write_text("mine")
        target = target / "below"
    else:
        target = Path("/proc/stepscope")
    result = run_script(
        """
        import sys, stepscope
        with stepscope.TrainingMonitor(run="x", directory=sys.argv[1]) as monitor:
            for step in range(100):
                monitor.log({"loss": 1.0})
        print("trained")
        """,
        target,
    )
    assert result.returncode == 0
    assert result.stdout == "trained\n"
    assert "The journal cannot be written" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_store_folder_deleted_under_a_run_is_made_again(folder: Path, run_script) -> None:
    result = run_script(
        """
        import shutil, sys, time, stepscope
        monitor = stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="deleted")
        monitor.start_monitoring()
        monitor.log({"loss": 1.0}, step=0)
        shutil.rmtree(sys.argv[1])
        time.sleep(1.2)
        for step in range(1, 100):
            monitor.log({"loss": 1.0}, step=step)
        monitor.stop_monitoring()
        """,
        folder,
    )
    assert result.returncode == 0
    assert "was deleted" in result.stderr
    assert stepscope.open_store(folder).run("deleted").series("loss").steps.tolist() == list(range(100))


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("error", ["EROFS", "EDQUOT", "ESTALE", "EACCES", "EIO"])
def test_any_refusal_of_the_file_system_is_survived_and_named(
    error: str, folder: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import stepscope\n"
        f"m = stepscope.TrainingMonitor({{'agent': {{'mode': 'none'}}}}, directory={str(folder)!r})\n"
        "m.start_monitoring()\n"
        "for step in range(500): m.log({'loss': 1.0})\n"
        "m.stop_monitoring()\n"
        "print('trained')\n"
    )
    inject = f"inject=fallocate:error={error}"
    result = subprocess.run(
        [STRACE, "-f", "-o", os.devnull, "-e", "trace=fallocate", "-e", inject, sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "trained\n"
    assert result.stderr.count("The journal cannot be written") == 1


@pytest.mark.slow
@needs_strace
def test_a_sync_that_fails_closes_the_file_and_a_new_one_continues(start, until, folder: Path) -> None:
    trainer = start(
        """
        import sys, stepscope
        monitor = stepscope.TrainingMonitor(run="eio")
        monitor.start_monitoring()
        step = 0
        print("ready", flush=True)
        for line in sys.stdin:
            monitor.log({"loss": 1.0}, step=step)
            step += 1
            print(step, flush=True)
        monitor.stop_monitoring()
        """,
        environment={"STEPSCOPE_AGENT__MODE": "none"},
        stdin=subprocess.PIPE,
    )
    trainer.stdout.readline()
    ((_, journal),) = list_journals(folder)
    strace = f"{STRACE} -f -o {os.devnull} -P {journal} -e trace=fdatasync -e inject=fdatasync:error=EIO"
    agent = subprocess.Popen(
        [
            *strace.split(),
            sys.executable,
            "-c",
            "from stepscope.agent.process.attend import main; main()",
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    agent.stdin.write(json.dumps({"folder": str(folder), "settings": to_dict(Settings())}))
    agent.stdin.close()

    until(lambda: len({path for _, path in list_journals(folder)} - {journal}) == 1)
    for _ in range(20):
        trainer.stdin.write("\n")
    _, err = trainer.communicate(timeout=120)
    agent.wait(timeout=120)

    assert trainer.returncode == 0
    assert "could not be synced to disk" in err
    assert stepscope.open_store(folder).run("eio").series("loss").steps.tolist() == list(range(20))
