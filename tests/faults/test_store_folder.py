"""A store folder that is deleted, moved or replaced under a run costs nothing silently."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope import procfs
from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.election import AgentLock, agent_pid
from stepscope.agent.process.start import ensure_agent
from stepscope.config.sections import Agent, Settings
from stepscope.journal.folder import list_journals
from stepscope.journal.reader import JournalReader
from stepscope.journal.segment import MappedSegment
from stepscope.recorder.folder_watch import FolderWatch
from stepscope.store.sqlite import SqliteReader, SqliteStore
from tests.journal.writing import read_all, steps_of, writer_for


def delete(folder: Path) -> None:
    """Deletes a folder in which an agent may be creating files."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


STEPPING = """
    import sys, time, stepscope
    monitor = stepscope.TrainingMonitor(
        {"recorder": {"segment_bytes": 65536}, "agent": {"interval_s": 0.05}}, run="run", strict=True
    )
    monitor.start_monitoring()
    step = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            monitor.log({"loss": step * 0.5}, step=step)
            step += 1
        print(step, flush=True)
    began = time.monotonic()
    monitor.stop_monitoring()
    print(time.monotonic() - began)
"""


class Training:
    """A training process that logs steps on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.steps = 0

    def log(self, steps: int) -> None:
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.steps = int(self.process.stdout.readline())

    def stop(self) -> str:
        """Ends it, which must be quick, and returns what it said."""
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, err
        assert float(out) < 8, "stop_monitoring waited for something that would not come"
        assert "Traceback" not in err
        return err


@pytest.fixture
def training(start, until, folder: Path) -> Training:
    started = Training(start(STEPPING, stdin=subprocess.PIPE))
    started.log(50)
    until(lambda: _stored(folder) == 50)
    return started


def _stored(folder: Path) -> int:
    """Steps that the store has, without taking any in."""
    try:
        reader = SqliteReader(folder / "store.sqlite")
    except stepscope.StepscopeError:
        return 0
    try:
        return sum(info.points for run in reader.runs() for info in reader.keys(run.id) if info.key == "loss")
    finally:
        reader.close()


def _steps(folder: Path) -> list[int]:
    return stepscope.open_store(folder).run("run").series("loss").steps.tolist()


def test_a_deleted_folder_is_made_again_with_every_row_that_is_still_at_hand(
    training: Training, folder: Path
) -> None:
    delete(folder)
    training.log(50)
    said = training.stop()
    assert _steps(folder) == list(range(100))
    run = stepscope.open_store(folder).run("run")
    assert run.status == "finished"
    assert run.segments[0].processes[0].lost == 0
    assert said.count("\n") == 1
    assert f"The store folder {folder} was deleted during the run" in said


@pytest.mark.slow
def test_rows_that_were_in_the_deleted_database_alone_are_counted_in_one_line(
    training: Training, until, folder: Path
) -> None:
    training.log(2000)  # some files are filled, taken in and deleted
    until(lambda: len(list(list_journals(folder))) == 1)
    until(lambda: _stored(folder) == 2050)
    time.sleep(0.6)  # the keeper looks twice a second which files the store has
    delete(folder)
    training.log(50)
    said = training.stop()
    steps = _steps(folder)
    assert steps == list(range(steps[0], 2100))
    assert steps[0] > 0
    assert said.count("\n") == 1
    lost = int(
        said.partition(" records and figures of the machine stored before are lost")[0]
        .split()[-1]
        .replace(",", "")
    )
    assert 0 <= lost - steps[0] <= 3, "openings are records too"


@pytest.mark.slow
def test_a_moved_folder_stays_complete_and_the_run_continues_in_a_new_one(
    training: Training, until, folder: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    folder.rename(moved)
    training.log(10)
    until((folder / "journal").exists)
    training.log(40)
    said = training.stop()
    assert _steps(moved) + _steps(folder) == list(range(100))
    left = stepscope.open_store(moved).run("run")
    assert (left.status, left.reason) == (
        "finished",
        f"the store folder was moved; the run continues in {folder}",
    )
    assert stepscope.open_store(folder).run("run").status == "finished"
    assert said.count("\n") == 1
    assert f"was moved to {moved} during the run" in said


@pytest.mark.slow
@pytest.mark.parametrize("part", ["store.sqlite", "agent.lock", "journal", "agent.wake"])
def test_a_part_of_the_folder_that_is_deleted_costs_no_row(
    part: str, training: Training, folder: Path
) -> None:
    path = folder / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    training.log(50)
    said = training.stop()
    assert _steps(folder) == list(range(100))
    assert stepscope.open_store(folder).run("run").status == "finished"
    # A database that was not there yet when the run last looked is missed by nobody: no row is lost.
    expected = {"store.sqlite": (0, 1), "journal": (1,)}
    assert said.count("\n") in expected.get(part, (0,)), said


@pytest.mark.slow
def test_a_journal_folder_that_is_moved_away_alone_costs_no_row(
    training: Training, folder: Path, tmp_path: Path
) -> None:
    (folder / "journal").rename(tmp_path / "elsewhere")
    training.log(50)
    training.stop()
    assert _steps(folder) == list(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("replacement", ["fresh", "copy"])
def test_a_folder_that_is_replaced_by_another_has_the_run_too(
    replacement: str, training: Training, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    if replacement == "copy":
        shutil.copytree(folder, other, ignore=shutil.ignore_patterns("agent.wake"))
    else:
        other.mkdir()
    training.log(10)
    delete(folder)
    other.rename(folder)
    training.log(40)
    training.stop()
    assert _steps(folder) == list(range(100))


@pytest.mark.slow
def test_a_link_to_a_folder_that_was_deleted_leads_to_one_again(
    start, until, folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    folder.symlink_to(target)
    training = Training(start(STEPPING, stdin=subprocess.PIPE))
    training.log(50)
    until(lambda: _stored(folder) == 50)
    shutil.rmtree(target)
    training.log(50)
    training.stop()
    assert _steps(folder) == list(range(100))
    assert target.is_dir()


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_again_is_named_and_what_is_lost_is_counted(
    training: Training, folder: Path
) -> None:
    delete(folder)
    folder.write_text("in its place")
    training.log(50)
    said = training.stop()
    assert "The journal cannot be written" in said
    assert "102 records of this process are lost" in said, said  # with its beginning and its end


@pytest.mark.slow
def test_a_process_that_is_terminated_after_the_folder_was_deleted_has_its_reason(
    training: Training, until, folder: Path
) -> None:
    delete(folder)
    until(lambda: any(list_journals(folder)))
    until(lambda: list(folder.rglob("*.words")))
    training.process.terminate()
    training.process.wait()
    run = stepscope.open_store(folder).run("run")
    assert run.reason == "terminated by SIGTERM"


@pytest.mark.slow
def test_a_loader_worker_continues_in_the_new_folder_as_well(start, until, folder: Path) -> None:
    process = start(
        """
        import os, sys, time, stepscope
        monitor = stepscope.TrainingMonitor(run="run")
        monitor.start_monitoring()
        monitor.log({"loss": 0.0})
        worker = os.fork()
        if worker == 0:
            for step, line in enumerate(sys.stdin):
                monitor.log({"drawn": float(step)}, step=step)
                print(step, flush=True)
            time.sleep(1.2)
            os._exit(0)
        os.waitpid(worker, 0)
        monitor.stop_monitoring()
        """,
        stdin=subprocess.PIPE,
    )

    def log() -> None:
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()

    log()
    delete(folder)
    log()
    until(lambda: len(list(list_journals(folder))) == 2)
    process.communicate(timeout=120)
    run = stepscope.open_store(folder).run("run")
    assert run.series("drawn").steps.tolist() == [0, 1]
    assert len(run.series("loss")) == 1


def test_the_agent_of_a_deleted_folder_ends_and_touches_nothing_in_the_next_one(until, folder: Path) -> None:
    writer = writer_for(folder)
    ensure_agent(folder, Settings(agent=Agent(linger_s=600)))
    until(lambda: agent_pid(folder))
    first = agent_pid(folder)
    delete(folder)
    with AgentLock(folder, as_agent=False):  # nobody else may take them in
        other = writer_for(folder)
        other.append_row({"loss": 1.0}, 0)
        other.close({"status": "finished", "reason": ""})
        until(lambda: _has_ended(first))
        assert len(list(list_journals(folder))) == 1
    catch_up(folder)
    assert len(stepscope.open_store(folder).run("a run").series("loss")) == 1
    writer.close(None)


def test_files_that_the_agent_deletes_during_the_search_are_not_written_again(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(5000):
        writer.append_row({"loss": 1.0}, step)
    assert writer.whereabouts() == "in place"
    full = list(list_journals(folder))[:-1]
    for _, path in full:
        reader = JournalReader(path)
        reader.mark_stored()
        path.unlink()
        reader.close()
    assert writer.sealed.whereabouts() == "in place"
    assert writer.carry_over() == 0
    assert len(full) > 1
    assert len(list(list_journals(folder))) == 1
    writer.close(None)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_files_that_are_deleted_just_before_their_folder_are_written_again(
    is_made_again: bool, folder: Path
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    [(_, path)] = list_journals(folder)
    path.unlink()  # as `rm -rf` does; the agent would have marked it
    assert writer.whereabouts() == "in place"
    assert writer.sealed.uncertain() == [path]
    delete(folder)
    if is_made_again:  # by the agent: many file systems give it the number of the deleted one
        path.parents[1].mkdir(parents=True)
    assert writer.whereabouts() == "deleted"
    assert writer.carry_over()
    assert writer.sealed.uncertain() == []
    catch_up(folder)
    run = stepscope.open_store(folder).run("a run")
    assert (run.status, run.series("loss").values.tolist()) == ("finished", [1.0])


def test_the_end_of_a_run_waits_for_files_whose_folder_was_deleted(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    [(_, path)] = list_journals(folder)
    delete(folder)
    folder.write_text("in the way")  # as when the new folder is deleted as well
    assert writer.whereabouts() == "deleted"
    assert writer.carry_over() is None
    assert writer.sealed.uncertain() == [path]
    folder.unlink()
    writer.supply.try_at_once()
    assert writer.carry_over()
    assert writer.sealed.uncertain() == []


def test_rows_continue_after_a_folder_was_deleted_twice_and_then_replaced_by_an_old_copy(
    folder: Path, tmp_path: Path
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    shutil.copytree(folder, tmp_path / "copy")
    delete(folder)
    assert writer.carry_over()
    writer.append_row({"loss": 2.0}, 1)
    delete(folder)
    (tmp_path / "copy").rename(folder)  # the number of its file is not that of the file deleted last
    assert writer.carry_over()
    writer.append_row({"loss": 3.0}, 2)
    writer.close({"status": "finished", "reason": ""})
    catch_up(folder)
    assert stepscope.open_store(folder).run("a run").series("loss").values.tolist() == [1.0, 2.0, 3.0]


def test_rows_continue_where_an_old_copy_takes_the_place_of_the_folder_while_a_file_is_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    shutil.copytree(folder, tmp_path / "copy")
    delete(folder)
    create, copies = MappedSegment.create, iter([tmp_path / "copy"])

    def replace_folder_first(*arguments: Any) -> MappedSegment:
        copy = next(copies, None)
        if copy is not None:
            delete(folder)
            copy.rename(folder)
        return create(*arguments)

    monkeypatch.setattr(MappedSegment, "create", replace_folder_first)
    assert writer.carry_over()
    writer.append_row({"loss": 2.0}, 1)
    writer.close({"status": "finished", "reason": ""})
    catch_up(folder)
    run = stepscope.open_store(folder).run("a run")
    assert (run.status, run.series("loss").values.tolist()) == ("finished", [1.0, 2.0])


def delete_before_naming(folder: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes the folder just before each of the next journal files gets its name."""
    rename, deletions = Path.rename, iter(range(times))

    def delete_first(path: Path, target: Path) -> Path:
        if next(deletions, None) is not None:
            delete(folder)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", delete_first)


@pytest.mark.parametrize("times", [3, 50])
def test_a_folder_that_is_deleted_while_its_files_are_replaced_is_not_called_unwritable(
    times: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[str] = []
    writer = writer_for(folder, complaints=complaints)
    writer.append_row({"loss": 1.0}, 0)
    delete(folder)
    delete_before_naming(folder, times, monkeypatch)
    for _ in range(times):  # the folder is checked twice a second, and at the end of the run more often
        if writer.carry_over():
            break
    assert complaints == []
    writer.close(None)
    assert steps_of(read_all(folder)) == [0]


def test_a_folder_that_is_deleted_again_and_again_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[str] = []
    clock = itertools.count(step=1_000_000_000).__next__
    writer = writer_for(folder, complaints=complaints, clock=clock)
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    delete(folder)
    delete_before_naming(folder, 1000, monkeypatch)
    for _ in range(10):
        assert writer.carry_over() is None
    assert len(complaints) == 1
    assert complaints[0].startswith("The journal cannot be written: No such file or directory")
    assert writer.unsaved == 3


def test_a_deletion_that_takes_a_while_is_reported_once(folder: Path) -> None:
    complaints: list[str] = []
    clock = iter([0.0, 0.2, 0.4, 0.6]).__next__
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    watch = FolderWatch(folder, folder / "store.sqlite", writer, complaints.append, now=clock)
    delete(folder / "journal")
    watch.check()
    delete(folder)
    watch.check()
    assert not folder.exists()
    watch.check()
    assert steps_of(read_all(folder)) == [0]
    watch.check()
    (complaint,) = complaints
    assert complaint.startswith(f"The store folder {folder} was deleted during the run.")
    writer.close(None)


def test_a_file_that_is_written_again_after_the_end_of_the_run_does_not_reopen_it(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(2000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": "", "exit_code": 3})
    (_, first), *_, (_, last) = list_journals(folder)
    first.rename(last.with_suffix(".99"))
    catch_up(folder)
    run = stepscope.open_store(folder).run("a run")
    assert (run.status, run.segments[0].processes[0].exit_code) == ("finished", 3)
    assert len(run.series("loss")) == 2000


def _has_ended(pid: int) -> bool:
    return procfs.start_ticks(pid) is None


def test_the_log_of_a_new_database_survives_the_end_of_the_old_agent(until, folder: Path) -> None:
    """SQLite deletes a write-ahead log by its path when the database that had it is closed."""
    writer = writer_for(folder)
    ensure_agent(folder, Settings(agent=Agent(linger_s=600)))
    until(lambda: _stored(folder) == 0 and (folder / "store.sqlite-wal").exists() and agent_pid(folder))
    first = agent_pid(folder)
    delete(folder)
    store = SqliteStore(folder / "store.sqlite")
    until(lambda: _has_ended(first))
    assert (folder / "store.sqlite-wal").exists()
    store.close()
    writer.close(None)


TRAINING = """
    import sys, stepscope
    with stepscope.TrainingMonitor(run=sys.argv[1]) as monitor:
        for step in range(20):
            monitor.log({"loss": float(step)}, step=step)
"""


def rounds(few: int, many: int) -> pytest.MarkDecorator:
    marked = [pytest.param(few, id="sampled"), pytest.param(many, id="all", marks=pytest.mark.slow)]
    return pytest.mark.parametrize("times", marked)


@pytest.mark.slow
@rounds(4, 30)
def test_a_run_after_the_folder_of_the_last_one_was_deleted_is_never_lost(
    times: int, run_script, folder: Path
) -> None:
    for _ in range(times):
        assert run_script(TRAINING, "first").returncode == 0
        delete(folder)
        second = run_script(TRAINING, "second")
        assert (second.returncode, second.stderr) == (0, "")
        assert len(stepscope.open_store(folder).run("second").series("loss")) == 20
        delete(folder)


@pytest.mark.slow
def test_two_runs_at_once_both_continue_in_the_new_folder(start, until, folder: Path) -> None:
    first = Training(start(STEPPING, stdin=subprocess.PIPE))
    second = Training(start(STEPPING.replace('run="run"', 'run="other"'), stdin=subprocess.PIPE))
    first.log(20)
    second.log(20)
    delete(folder)
    first.log(20)
    second.log(20)
    first.stop()
    second.stop()
    store = stepscope.open_store(folder)
    for name in ("run", "other"):
        assert store.run(name).series("loss").steps.tolist() == list(range(40))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_folder_that_is_made_read_only_costs_no_row(tmp_path: Path) -> None:
    place = tmp_path / "home"
    place.mkdir()
    for path in (tmp_path, *tmp_path.parents):  # pytest's own, which are its user's alone
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    os.chown(place, 1000, 1000)
    code = """
        import os, sys, time, stepscope
        monitor = stepscope.TrainingMonitor(run="run", directory=sys.argv[1])
        monitor.start_monitoring()
        for step in range(50):
            monitor.log({"loss": 1.0}, step=step)
        time.sleep(1)
        for root, folders, files in os.walk(sys.argv[1]):
            os.chmod(root, 0o555)
        for step in range(50, 100):
            monitor.log({"loss": 1.0}, step=step)
        began = time.monotonic()
        monitor.stop_monitoring()
        print(time.monotonic() - began)
    """
    folder = place / "store"
    result = subprocess.run(
        [
            "setpriv",
            "--reuid=1000",
            "--regid=1000",
            "--clear-groups",
            sys.executable,
            "-c",
            textwrap.dedent(code),
            folder,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "HOME": str(place)},
    )
    if "No module named" in result.stderr or "Permission denied: '/root" in result.stderr:
        pytest.skip("this Python cannot be used by another user")
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 12
    assert result.stderr.count("\n") <= 1, result.stderr
    assert "Traceback" not in result.stderr
    assert _steps(folder) == list(range(100))
