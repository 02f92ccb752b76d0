"""Two users may share a store folder: what one of them records is stored, or it is said why not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.process.election import agent_pid

OTHER = 1000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")

TRAINING = """
    import os, sys, time, stepscope
    os.umask(int(sys.argv[2], 8))
    monitor = stepscope.TrainingMonitor(run=sys.argv[1])
    monitor.start_monitoring()
    for step in range(20):
        monitor.log({"loss": 1.0}, step=step)
    print("logged", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    monitor.stop_monitoring()
    print(time.monotonic() - began)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def shared(folder: Path, tmp_path: Path) -> Path:
    """A folder that everybody may write."""
    for path in (tmp_path, *tmp_path.parents):  # pytest's own, which are its user's alone
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    (folder / "journal").mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "journal").chmod(0o777)
    return folder


@pytest.fixture
def start_as(shared: Path) -> Iterator[Start]:
    package = Path(stepscope.__file__)
    if any(not path.stat().st_mode & 0o001 for path in package.parents):
        pytest.skip(f"other users may not read {package.parent}")
    started: list[subprocess.Popen[str]] = []

    def start(run: str, user: int, umask: str = "022") -> subprocess.Popen[str]:
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        process = subprocess.Popen(
            [*become, sys.executable, "-c", textwrap.dedent(TRAINING), run, umask],
            env={**os.environ, "STEPSCOPE_DIR": str(shared), "STEPSCOPE_AGENT__LINGER_S": "600"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()
    agent = agent_pid(shared)
    if agent is not None:
        os.kill(agent, 15)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate("\n", timeout=120)
    assert process.returncode == 0, err
    assert float(out) < 8, err
    return err


def end_agent(folder: Path, until) -> None:
    agent = agent_pid(folder)
    if agent is not None:
        os.kill(agent, 15)
    until(lambda: agent_pid(folder) is None)


@pytest.mark.slow
def test_what_another_user_records_is_stored_by_the_agent_of_root(
    shared: Path, start_as: Start, until
) -> None:
    mine = start_as("mine", 0)
    until(lambda: agent_pid(shared))
    theirs = start_as("theirs", OTHER)
    assert finish(theirs) == ""
    assert finish(mine) == ""
    for name in ("mine", "theirs"):
        assert len(stepscope.open_store(shared).run(name).series("loss")) == 20


@pytest.mark.slow
@pytest.mark.parametrize("umask", ["002", "022", "077"])
def test_users_of_a_folder_that_all_may_write_need_no_umask_for_it(
    umask: str, shared: Path, start_as: Start, until
) -> None:
    (shared / "journal").rmdir()
    theirs = start_as("theirs", OTHER, umask)
    until(lambda: agent_pid(shared))
    assert finish(start_as("mine", 0, umask)) == ""
    assert finish(theirs) == ""
    for name, user in (("third", OTHER + 1), ("fourth", OTHER)):
        end_agent(shared, until)  # that of somebody else goes on with the same database
        assert finish(start_as(name, user, umask)) == ""
    for name in ("mine", "theirs", "third", "fourth"):
        assert stepscope.open_store(shared).run(name).series("loss").steps.tolist() == list(range(20))


@pytest.mark.slow
def test_what_the_agent_of_another_user_may_not_read_is_kept_and_named(
    shared: Path, start_as: Start, until
) -> None:
    theirs = start_as("theirs", OTHER)
    until(lambda: agent_pid(shared))
    mine = start_as("mine", 0, "077")
    for folder in (shared / "journal").glob("mine-*"):
        folder.chmod(0o700)
    said = finish(mine)
    assert said.count("\n") == 1, said
    assert f"user {OTHER}" in said
    assert "STEPSCOPE_DIR" in said
    assert finish(theirs) == ""
    end_agent(shared, until)
    for name in ("mine", "theirs"):
        assert stepscope.open_store(shared).run(name).series("loss").steps.tolist() == list(range(20))


@pytest.mark.slow
def test_what_the_agent_of_another_user_may_read_and_not_delete_is_stored_once(
    shared: Path, start_as: Start, until
) -> None:
    theirs = start_as("theirs", OTHER)
    until(lambda: agent_pid(shared))
    mine = start_as("mine", 0, "022")
    for folder in (shared / "journal").glob("mine-*"):
        folder.chmod(0o755)
    assert finish(mine) == ""
    assert stepscope.open_store(shared).run("mine").series("loss").steps.tolist() == list(range(20))
    assert finish(theirs) == ""
    end_agent(shared, until)
    for name in ("mine", "theirs"):
        assert stepscope.open_store(shared).run(name).series("loss").steps.tolist() == list(range(20))


@pytest.mark.slow
def test_files_that_a_reader_of_another_user_left_beside_the_database_stop_nobody(
    shared: Path, start_as: Start, until
) -> None:
    assert finish(start_as("first", OTHER)) == ""
    end_agent(shared, until)
    stepscope.open_store(shared).close()
    (shared / "store.sqlite").chmod(0o644)  # as earlier versions made it
    for suffix in ("-wal", "-shm"):
        left = Path(f"{shared / 'store.sqlite'}{suffix}")
        left.unlink(missing_ok=True)
        left.touch(0o644)
    assert finish(start_as("second", OTHER)) == ""
    assert len(stepscope.open_store(shared).run("second").series("loss")) == 20


def test_a_folder_of_another_user_is_named_when_it_may_not_be_written(shared: Path, start_as: Start) -> None:
    (shared / "journal").chmod(0o755)
    said = finish(start_as("theirs", OTHER))
    assert "The journal cannot be written: Permission denied" in said
    assert "20 records are lost" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", ["runs", "doctor"])
def test_a_store_of_another_user_that_may_not_be_read_is_named(
    command: str, shared: Path, start_as: Start
) -> None:
    finish(start_as("mine", 0))
    (shared / "store.sqlite").chmod(0o600)
    become = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
    done = subprocess.run(
        [*become, sys.executable, "-m", "stepscope", command],
        env={**os.environ, "STEPSCOPE_DIR": str(shared)},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "may not be read" in said
    assert "STEPSCOPE_DIR" in said
    assert "Restore" not in said
    assert "Traceback" not in said


def test_a_training_that_gives_up_its_rights_says_what_is_lost_and_how_it_ended(
    until, folder: Path, run_script
) -> None:
    result = run_script(
        """
        import os, stepscope
        os.umask(0o077)
        monitor = stepscope.TrainingMonitor({"recorder": {"segment_bytes": 65536}}, run="nobody")
        monitor.start_monitoring()
        monitor.log({"loss": 1.0}, step=0)
        os.setgid(65534)
        os.setuid(65534)
        for step in range(1, 10_000):
            monitor.log({"loss": 1.0}, step=step)
        monitor.stop_monitoring()
        """,
        cwd="/",
    )
    assert result.returncode == 0
    assert "The journal cannot be written: Permission denied" in result.stderr
    assert "records are lost" in result.stderr
    # It could not see whether the agent had stored its end.
    until(lambda: stepscope.open_store(folder).run("nobody").status == "finished")
    run = stepscope.open_store(folder).run("nobody")
    assert run.reason == ""
    assert len(run.series("loss")) + sum(process.dropped for process in run.segments[0].processes) >= 10_000
