"""Journals that cannot be read are named by the commands and the web page, with what to do about them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.journal.folder import JournalName
from tests.journal.writing import writer_for
from tests.web.asking import app_of, get

PIPE = JournalName("odd-run", "seg9", 0, 77)


@pytest.fixture
def odd(folder: Path) -> Path:
    """A named pipe where a journal should be, beside a run that is fine."""
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="fine", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    path = PIPE.path(folder / "journal")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    return path


def test_the_list_of_runs_says_so_in_one_line_beside_the_runs(
    odd: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--store", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "fine" in shown.out
    (line,) = shown.err.splitlines()
    assert f"{odd} (is a named pipe, expected a file)" in line
    assert "stepscope doctor" in line


def test_the_list_of_runs_stays_json_where_that_is_asked_for(
    odd: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert odd.exists()
    assert main(["runs", "--json", "--store", str(folder)]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)] == ["fine"]


@pytest.mark.slow
@pytest.mark.parametrize("was_read", [True, False])
def test_the_doctor_names_each_once_with_a_reason_and_what_to_do(
    was_read: bool, odd: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if was_read:
        stepscope.open_store(folder).close()
    assert main(["doctor", "--json", "--store", str(folder)]) == 0
    checks = json.loads(capsys.readouterr().out)
    (check,) = [check for check in checks if str(odd) in check["found"]]
    assert check["outcome"] == "note"
    assert "named pipe" in check["found"]
    assert check["remedy"]


@pytest.mark.slow
def test_no_message_if_all_journals_can_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer_for(folder).append_row({"loss": 1.0}, 0)
    assert main(["runs", "--store", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["doctor", "--store", str(folder)]) == 0
    assert "set aside" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["runs"], ["show", "fine"], ["export", "fine", "--format", "json"]])
def test_no_command_waits_for_it(
    command: list[str], odd: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert odd.exists()
    assert main([*command, "--store", str(folder)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_the_api_lists_journals_that_were_set_aside(odd: Path, folder: Path) -> None:
    stepscope.open_store(folder).close()
    (journal,) = get(app_of(folder), "/meta")["set_aside"]
    assert journal["path"] == str(odd.relative_to(folder))
    assert "named pipe" in journal["reason"]
    assert journal["advice"]
