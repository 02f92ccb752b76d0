"""Commands with wrong environment variables, or with stepscope disabled by one."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import TrainingMonitor
from stepscope.cli import doctor

NO_AGENT = {"agent": {"mode": "none"}}
WRONG = {"STEPSCOPE_AGNET__MODE": "thread"}
WARNING = (
    'stepscope ignores the environment variable STEPSCOPE_AGNET__MODE="thread": '
    "there is no such setting; did you mean STEPSCOPE_AGENT__MODE?"
)


def stepscope(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [("runs", "--json"), ("show", "a", "--json"), ("diagnose", "a", "--json")])
def test_a_command_works_and_names_a_wrong_variable_in_one_line(words: tuple[str, ...], folder: Path) -> None:
    with TrainingMonitor(NO_AGENT, run="a", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    done = stepscope(*words, STEPSCOPE_DIR=str(folder), **WRONG)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert done.stderr.splitlines() == [WARNING]


@pytest.mark.slow
def test_a_command_is_run_and_recorded_beside_a_wrong_variable(folder: Path) -> None:
    done = stepscope("run", "--", sys.executable, "-c", "exit(3)", STEPSCOPE_DIR=str(folder), **WRONG)
    assert done.returncode == 3
    assert WARNING in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert (folder / "store.sqlite").exists()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("STEPSCOPE_AGNET__MODE", "thread", "environment STEPSCOPE_AGNET__MODE: there is no such setting"),
        ("STEPSCOPE_DISABLED", "1", "STEPSCOPE_DISABLED is set"),
    ],
)
def test_the_doctor_notes_a_wrong_variable_and_that_recording_is_switched_off(
    name: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    (check,) = [check for check in itertools.islice(doctor._checks(None), 2) if check.name == "settings"]
    assert check.outcome == "note"
    assert expected in check.found


def test_a_command_runs_unrecorded_when_switched_off(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import stepscope\n"
        "with stepscope.TrainingMonitor() as monitor:\n"
        "    monitor.log({'loss': 1.0})\n"
        "print('trained')\n"
        "raise SystemExit(5)\n"
    )
    done = stepscope(
        "run", "--", sys.executable, str(script), STEPSCOPE_DIR=str(folder), STEPSCOPE_DISABLED="1"
    )
    assert (done.returncode, done.stdout) == (5, "trained\n")
    assert done.stderr == (
        "stepscope: Nothing is recorded: STEPSCOPE_DISABLED is set. The command runs anyway.\n"
    )
    assert list(tmp_path.iterdir()) == [script]


def test_the_demo_runs_unrecorded_when_switched_off(tmp_path: Path) -> None:
    done = stepscope("demo", "--simulate", "--steps", "5", "--exit", STEPSCOPE_DISABLED="1")
    assert done.returncode == 0
    assert "Nothing was recorded: STEPSCOPE_DISABLED is set." in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_machine_is_shown_unrecorded_when_switched_off(tmp_path: Path) -> None:
    done = stepscope("watch", "--json", "--interval", "0.1", "--for", "0.5", STEPSCOPE_DISABLED="1")
    assert done.returncode == 0
    assert "Nothing is recorded: STEPSCOPE_DISABLED is set." in done.stderr
    assert list(tmp_path.iterdir()) == []
