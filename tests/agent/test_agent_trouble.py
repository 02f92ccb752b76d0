"""An agent that cannot work says why, once and with what to do, and nobody waits for it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.agent import Agent
from stepscope.agent.ingest.last_step import last_step
from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.election import AgentLock, agent_pid
from stepscope.agent.process.report import REPORT_NAME, own_report, read_report, write_report
from stepscope.agent.process.start import older_agent
from stepscope.cli.checks import store_checks
from stepscope.config.sections import Settings
from stepscope.errors import StoreError, StoreUnavailable
from stepscope.journal import layout
from stepscope.journal.folder import list_journals
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import writer_for

MAX_WAIT_S = 12
"""Less than the time for which a training waits for an agent that works, with room for a busy machine."""

TRAINING = """
    import time, stepscope
    monitor = stepscope.TrainingMonitor(run="run")
    monitor.start_monitoring()
    for step in range(20):
        monitor.log({"loss": 1.0}, step=step)
    began = time.monotonic()
    monitor.stop_monitoring()
    print(time.monotonic() - began)
"""


def a_newer_database(folder: Path) -> None:
    with sqlite3.connect(folder / "store.sqlite") as connection:
        connection.execute("CREATE TABLE later (x)")
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def no_database(folder: Path) -> None:
    (folder / "store.sqlite").write_text("not a database, only text " * 10)


def a_lock_that_cannot_be_opened(folder: Path) -> None:
    (folder / "agent.lock").mkdir()


TROUBLES = {
    a_newer_database: "has version 99, this stepscope knows up to 3. Upgrade with: pip install -U stepscope",
    no_database: "file is not a database. Move that file away to begin a new store",
    a_lock_that_cannot_be_opened: "agent.lock: Is a directory",
}


@pytest.mark.parametrize("prepare", TROUBLES, ids=lambda one: one.__name__)
def test_training_reports_once_why_the_agent_cannot_work_and_does_not_wait(
    prepare, folder: Path, run_script
) -> None:
    folder.mkdir()
    prepare(folder)
    result = run_script(TRAINING)
    assert result.returncode == 0
    assert float(result.stdout) < MAX_WAIT_S
    assert result.stderr.count("\n") == 1, result.stderr
    assert TROUBLES[prepare] in result.stderr
    assert f"The records are safe in {folder / 'journal'}" in result.stderr
    assert len(list(list_journals(folder))) >= 1
    check = store_checks.check_agent(folder, Settings())
    assert check.outcome == "problem"
    assert TROUBLES[prepare].split(".")[0] in check.found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    mode: str, folder: Path, tmp_path: Path, run_script
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "zstandard.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'zstandard'\", name='zstandard')"
    )
    environment = {"PYTHONPATH": str(tmp_path / "hidden"), "STEPSCOPE_AGENT__MODE": mode}
    result = run_script(TRAINING, environment=environment)
    assert result.returncode == 0
    assert float(result.stdout) < MAX_WAIT_S
    assert result.stderr.count("\n") == 1, result.stderr
    assert "the package zstandard is missing. Install it with: " in result.stderr
    assert "pip install zstandard" in result.stderr

    doctor = subprocess.run(
        [sys.executable, "-m", "stepscope", "doctor", "--store", folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert doctor.returncode == 1
    assert "pip install zstandard" in doctor.stderr
    assert "Traceback" not in doctor.stderr
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_an_exception_in_a_running_agent_is_reported_while_training_goes_on(
    folder: Path, tmp_path: Path, run_script
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('stepscope.agent' in word for word in sys.orig_argv):\n"
        "    import stepscope.agent.ingest.ingest as ingest\n"
        "    def fail(self): raise RuntimeError('planted\\nfailure')\n"
        "    ingest.Ingest.tick = fail\n"
    )
    result = run_script(TRAINING, environment={"PYTHONPATH": str(tmp_path / "broken")})
    assert result.returncode == 0
    assert float(result.stdout) < MAX_WAIT_S
    assert result.stderr.count("\n") == 1, result.stderr
    assert "RuntimeError: planted failure. See agent.log" in result.stderr
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_an_agent_that_can_work_again_takes_its_complaint_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(folder / "store.sqlite")
    writer = writer_for(folder)
    agent = Agent(folder, store, Settings())
    with monkeypatch.context() as patch:

        def refuse() -> None:
            raise StoreUnavailable("database or disk is full")

        patch.setattr(store, "transaction", refuse)
        agent.tick()
        assert read_report(folder) is None, "a moment is no trouble"
        agent.tick()
        assert "database or disk is full" in read_report(folder).trouble
    agent.tick()
    assert read_report(folder).trouble == ""
    writer.close(None)
    agent.close()
    store.close()


def newer(path: Path) -> None:
    """Makes a journal one of a version that is not known yet."""
    with path.open("r+b") as file:
        file.seek(24)
        file.write((layout.VERSION + 1).to_bytes(4, "little"))
        file.seek(56)  # the checksum, without which it is a newer version and no damage
        file.write(bytes(4))


def test_a_journal_of_a_newer_version_is_left_alone_and_not_stayed_for(folder: Path) -> None:
    writer = writer_for(folder)
    ((_, path),) = list_journals(folder)
    newer(path)
    words = path.with_name(f"{path.name.rpartition('.')[0]}.words")
    words.write_text("")
    store = SqliteStore(folder / "store.sqlite")
    clock = [0.0]
    agent = Agent(folder, store, Settings(), now=lambda: clock[0])
    for _ in range(20):
        agent.tick()
        clock[0] += 1
    assert agent.idle, "a newer agent waits for this one to end"
    assert path.exists()
    assert words.exists()
    assert store.runs() == []
    assert f"{path} has version {layout.VERSION + 1}" in read_report(folder).trouble
    agent.close()
    store.close()
    writer.close(None)


def test_a_reader_does_not_wait_for_a_journal_of_a_newer_version(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    ((_, path),) = list_journals(folder)
    newer(path)
    with AgentLock(folder):
        began = time.monotonic()
        catch_up(folder)
        assert time.monotonic() - began < 8  # a reader waits 10 s for an agent that works
    writer.close(None)


def test_an_agent_reports_its_version(folder: Path) -> None:
    with AgentLock(folder):
        report = read_report(folder)
        assert (report.pid, report.version) == (os.getpid(), stepscope.__version__)
        assert report.journal_version == layout.VERSION
        assert older_agent(folder) == ""
        # Those of earlier versions read the lock as it always was.
        who = json.loads((folder / "agent.lock").read_text())
        assert set(who) == {"host", "pid", "start_ticks", "boot_id", "namespace"}


@pytest.mark.parametrize("report", ["of an older version", "none"])
def test_an_agent_of_an_older_version_is_named_with_what_to_restart(report: str, folder: Path) -> None:
    with AgentLock(folder):
        if report == "none":
            (folder / REPORT_NAME).unlink()
        else:
            fields = json.loads((folder / REPORT_NAME).read_text())
            (folder / REPORT_NAME).write_text(json.dumps({**fields, "version": "0.0.9", "unknown": 1}))
        said = older_agent(folder)
        assert f"process {os.getpid()}" in said
        assert f"kill {os.getpid()}" in said
        assert ("0.0.9" in said) == (report != "none")
        assert store_checks.check_agent(folder, Settings()).remedy == said


@pytest.mark.slow
def test_training_reports_that_its_agent_cannot_read_its_journals(start, folder: Path, run_script) -> None:
    holder = start(
        """
        import dataclasses, sys, time
        from pathlib import Path
        from stepscope.agent.process.election import AgentLock
        from stepscope.agent.process.report import own_report, write_report
        lock = AgentLock(Path(sys.argv[1]))
        old = dataclasses.replace(own_report(), version="0.0.9", journal_version=0)
        write_report(Path(sys.argv[1]), old)
        print("held", flush=True)
        time.sleep(60)
        """,
        folder,
    )
    holder.stdout.readline()
    result = run_script(TRAINING)
    assert float(result.stdout) < MAX_WAIT_S
    assert result.stderr.count("\n") == 1, result.stderr
    assert f"process {holder.pid}, is stepscope 0.0.9" in result.stderr
    holder.kill()
    holder.wait()
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_a_report_that_is_damaged_or_of_another_agent_is_ignored(folder: Path) -> None:
    folder.mkdir()
    assert read_report(folder) is None
    for text in ("", "[]", "{}", "null", '{"pid": 1'):
        (folder / REPORT_NAME).write_text(text)
        assert read_report(folder) is None
    write_report(folder, own_report("trouble"))
    assert read_report(folder).trouble == "trouble"
    assert agent_pid(folder) is None


NOT_PYTHON = """
    import os, stat, sys, time, stepscope
    program = os.path.abspath(sys.argv[1])
    with open(program, "w") as file:
        file.write("#!/bin/sh\\necho _STEPSCOPE_STARTED=$_STEPSCOPE_STARTED >> started.txt\\nexit 3\\n")
    os.chmod(program, 0o755)
    sys.executable = program
    monitor = stepscope.TrainingMonitor(run="run")
    for step in range(20):
        monitor.log({"loss": 1.0}, step=step)
    began = time.monotonic()
    monitor.stop_monitoring()
    print(time.monotonic() - began)
"""


def test_an_interpreter_that_cannot_start_is_named_with_its_exit_code_and_not_waited_for(
    folder: Path, tmp_path: Path, run_script
) -> None:
    result = run_script(NOT_PYTHON, "python-wrapper", cwd=tmp_path)
    assert result.returncode == 0
    assert float(result.stdout) < MAX_WAIT_S
    assert result.stderr.count("\n") == 1, result.stderr
    assert "python-wrapper ended with exit code 3 before it had begun" in result.stderr
    assert f"See {folder / 'agent.log'}" in result.stderr
    assert "STEPSCOPE_AGENT__MODE=thread" in result.stderr
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_a_program_that_embeds_python_is_not_started_again_as_its_agent(
    folder: Path, tmp_path: Path, run_script
) -> None:
    result = run_script(NOT_PYTHON, "train", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert not (tmp_path / "started.txt").exists()
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_a_frozen_program_is_not_started_again_as_its_agent(folder: Path, tmp_path: Path, run_script) -> None:
    frozen = NOT_PYTHON.replace("monitor = ", "sys.frozen = True; monitor = ")
    result = run_script(frozen, "python-wrapper", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert not (tmp_path / "started.txt").exists()
    assert len(stepscope.open_store(folder).run("run").series("loss")) == 20


def test_a_program_that_is_started_in_place_of_its_agent_records_nothing_and_starts_none(
    folder: Path, tmp_path: Path, run_script
) -> None:
    run_script(NOT_PYTHON, "python-train", cwd=tmp_path)
    mark = (tmp_path / "started.txt").read_text().split()[0]
    name, _, value = mark.partition("=")
    again = run_script(NOT_PYTHON, "python-again", environment={name: value, "STEPSCOPE_DIR": "second"})
    assert again.returncode == 0
    assert "records nothing in a process that it has started itself" in again.stderr
    assert again.stderr.count("\n") == 1
    assert not (tmp_path / "second").exists()


def test_a_training_that_waits_for_all_its_children_does_not_wait_for_the_agent(
    folder: Path, run_script, read
) -> None:
    result = run_script(
        """
        import os, time, stepscope
        from stepscope.agent.process.election import agent_pid
        monitor = stepscope.TrainingMonitor(run="parent")
        monitor.log({"loss": 1.0})
        while agent_pid(monitor.directory) is None:
            time.sleep(0.01)
        if os.fork() == 0:
            os._exit(0)
        waited = 0
        try:
            while os.wait():
                waited += 1
        except ChildProcessError:
            print(waited)
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")
    assert read("parent").status == "finished"


@pytest.mark.slow
def test_a_stopped_agent_is_named_with_the_command_that_lets_it_go_on(folder: Path, run_script, read) -> None:
    result = run_script(
        """
        import os, signal, time, stepscope
        from stepscope.agent.process.election import agent_pid
        monitor = stepscope.TrainingMonitor(run="run")
        monitor.log({"loss": 1.0})
        while (agent := agent_pid(monitor.directory)) is None:
            time.sleep(0.01)
        os.kill(agent, signal.SIGSTOP)
        began = time.monotonic()
        monitor.stop_monitoring()
        print(time.monotonic() - began, agent)
        os.kill(agent, signal.SIGCONT)
        """
    )
    seconds, agent = result.stdout.split()
    assert float(seconds) < MAX_WAIT_S
    assert f"process {agent}, is stopped. Resume it with: kill -CONT {agent}" in result.stderr
    assert len(read("run").series("loss")) == 1


def test_a_reader_of_journals_that_cannot_be_stored_says_where_they_are_and_why(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    a_lock_that_cannot_be_opened(folder)
    with pytest.raises(StoreError, match=rf"waiting in {folder / 'journal'} .*agent.lock: Is a directory"):
        stepscope.open_store(folder)


def test_the_last_step_of_a_run_whose_journals_cannot_be_stored_is_not_known(folder: Path) -> None:
    writer_for(folder).append_row({"loss": 1.0}, 0)
    a_lock_that_cannot_be_opened(folder)
    assert last_step(folder, "a-run") is None
