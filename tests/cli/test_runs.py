"""`stepscope runs`: the list of runs, for people and for scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import TrainingMonitor
from stepscope.cli.main import main

pytestmark = pytest.mark.usefixtures("without_agent")

NAMES = ["first", "second", "third \x1b[31m\u202e\nrun"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "store"
    with TrainingMonitor(run="first", directory=folder) as monitor:
        for step in range(5000):
            monitor.log({"loss": 5.0 - step / 1000, "accuracy": 0.5}, step=step)
    with TrainingMonitor(run="second", project="other", directory=folder) as monitor:
        monitor.log({"loss": float("nan")}, step=7)
        monitor.stop_monitoring("failed", "out of memory " * 20)
    with TrainingMonitor(run=NAMES[2], directory=folder):
        pass
    with TrainingMonitor(run="first", directory=folder, resume=True) as monitor:
        monitor.log({"loss": 0.25, "accuracy": 0.5}, step=5000)
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))
    monkeypatch.setenv("COLUMNS", "160")


def listed(capsys, *arguments):
    assert main(["runs", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_lists_the_newest_run_last(capsys):
    assert main(["runs"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "RUN PROJECT STATUS STARTED DURATION STEP LOSS REASON"
    assert [line.split()[0] for line in lines] == ["first", "second", "third"]
    assert [" 5,000 " in line for line in lines] == [True, False, False]
    assert [" 0.25" in line for line in lines] == [True, False, False]
    assert " NaN " in lines[1]


@pytest.mark.parametrize("columns", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= max(columns, 80)
    assert any("out of memory" in line and line.endswith("…") for line in lines)


def test_what_is_piped_is_not_shortened(store):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "runs", "--store", str(store)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert ("out of memory " * 20).strip() in done.stdout
    assert "\x1b" not in done.stdout


def test_json_says_what_is_known_of_each_run(capsys, store):
    first, second, third = listed(capsys)
    assert " ".join(first) == (
        "id name project status reason started ended duration_seconds step steps_per_second loss_key"
        " loss_last loss_best segments dropped lost folder"
    )
    assert [run["name"] for run in (first, second, third)] == NAMES
    assert [run["segments"] for run in (first, second, third)] == [2, 1, 1]
    assert (second["status"], second["project"]) == ("failed", "other")
    assert first["folder"] == str(store)
    assert first["started"] < first["ended"]
    assert 0 < first["duration_seconds"] <= first["ended"] - first["started"]


def test_runs_are_chosen_by_project_status_and_number(capsys):
    assert [run["name"] for run in listed(capsys, "--project", "other")] == ["second"]
    assert [run["name"] for run in listed(capsys, "--status", "finished")] == ["first", NAMES[2]]
    assert [run["name"] for run in listed(capsys, "--limit", "2")] == NAMES[1:]
    assert listed(capsys, "--limit", "0") == []
    assert listed(capsys, "--status", "crashed") == []


def test_a_live_run_has_no_end(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(tmp_path / "live"))
    with TrainingMonitor(run="live") as monitor:
        monitor.log({"loss": 1.0})
        (live,) = listed(capsys)
    assert live["status"] == "running"
    assert live["ended"] is None
    assert live["duration_seconds"] > 0


def test_a_missing_store_fails_and_says_what_to_do(capsys, tmp_path):
    assert main(["runs", "--json", "--store", str(tmp_path / "nowhere")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nowhere" in captured.err
    assert "Record a run" in captured.err
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_store_is_fine_and_says_what_to_do(capsys, tmp_path):
    from stepscope.store.place import database
    from stepscope.store.sqlite import SqliteStore

    SqliteStore(database(tmp_path)).close()
    assert main(["runs", "--json", "--store", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "stepscope demo" in captured.err
    assert main(["runs", "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_a_name_cannot_steer_the_terminal(capsys):
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "third  run" in out or "third run" in out
    assert not set(out) & set("\x1b\u202e\r\t")


def test_an_empty_list_of_runs_has_no_remark_about_their_kind(store, capsys):
    assert main(["runs", "--limit", "0", "--store", str(store)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, "matches" in captured.err) == ("", False)


def test_the_name_of_a_run_that_there_is_not_ends_its_sentence_once(store, capsys):
    assert main(["show", "firs", "--store", str(store)]) == 1
    assert capsys.readouterr().err.rstrip().endswith("did you mean 'first'?")


def command(*arguments, **streams):
    words = [*streams.pop("become", ()), sys.executable, "-m", "stepscope", *arguments]
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **streams)


def test_a_full_disk_behind_the_output_is_an_error_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = command("runs", stdout=full)
    assert done.returncode == 1
    assert done.stderr == "stepscope: The output could not be written: No space left on device.\n"


def test_a_command_without_an_output_prints_nothing():
    done = command("runs", preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runs", "doctor"])
def test_a_store_that_may_not_be_entered_is_explained(tmp_path, name):
    closed, become = tmp_path / "closed", ()
    closed.mkdir(mode=0)
    if os.geteuid() == 0:
        os.chown(closed, 1000, 1000)
        become = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    done = command(name, "--store", str(closed), become=become, stdout=subprocess.PIPE)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"This user may not enter {closed}." in done.stdout + done.stderr


def test_an_unknown_option_is_explained_with_the_usage_of_its_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["runs", "--newest"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("stepscope runs: error: unrecognized arguments: --newest\n")
