"""`stepscope show --schedule`: the effect of each learning-rate phase."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from stepscope import TrainingMonitor
from stepscope.cli.main import main

pytestmark = pytest.mark.usefixtures("without_agent")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schedule") / "store"
    dice = random.Random(0)
    with TrainingMonitor(run="levels", directory=folder) as monitor:
        for step in range(300):
            level = 4.0 - 3.0 * min(step, 100) / 100 - (0.5 if step >= 100 else 0.0)
            monitor.log_training_step(
                loss=level + dice.gauss(0, 0.05), learning_rate=0.1 * 0.1 ** (step // 100)
            )
    with TrainingMonitor(run="without", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    with TrainingMonitor(run="without loss", directory=folder) as monitor:
        for step in range(20):
            monitor.log({"learning_rate": 1e-3}, step=step)
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", "--schedule", *arguments]) == 0
    return capsys.readouterr().out


def shown_as_json(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    output = json.loads(shown(capsys, name, "--json"), parse_constant=pytest.fail)
    assert isinstance(output, dict)
    return output


def test_each_phase_has_a_line_of_figures_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "levels")
    assert page.startswith("levels  finished")
    assert re.search(r"^  3 levels; to step 299, loss fell by 3\.[45]\d?$", page, re.MULTILINE)
    words = [line.split() for line in page.splitlines()]
    assert [line[:3] for line in words if line[:1] == ["constant"]] == [
        ["constant", "0", "0.1"],
        ["constant", "100", "0.01"],
        ["constant", "200", "0.001"],
    ]
    flat = " ".join(page.split())
    assert "of the improvement in 33% of the steps (confidence over 99.9%)" in flat
    assert "no measurable effect in its second half" in flat
    assert "metrics" not in page


def test_the_page_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert max(map(len, shown(capsys, "levels").splitlines())) <= 80
    assert max(map(len, shown(capsys, "without").splitlines())) <= 80


def test_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    output = shown_as_json(capsys, "levels")
    assert (output["name"], output["keys"], output["events"]) == ("levels", [], [])
    schedule = output["schedule"]
    assert schedule["name"] == "3 levels"
    first, second, third = schedule["phases"]
    assert (first["first_step"], first["last_step"], first["first_rate"]) == (0, 99, 0.1)
    assert first["improvement"] == pytest.approx(3.0, abs=0.1)
    assert second["improvement"] == pytest.approx(0.5, abs=0.1)
    assert third["verdict"] == "no measurable effect"


def test_a_run_without_a_rate_says_what_to_log(capsys: pytest.CaptureFixture[str]) -> None:
    page = " ".join(shown(capsys, "without").split())
    assert "no learning_rate was logged" in page
    assert "log_training_step(loss=loss, learning_rate=rate)" in page
    schedule = shown_as_json(capsys, "without")["schedule"]
    assert schedule["phases"] == []
    assert schedule["why"].startswith("no learning_rate was logged")


def test_a_run_without_a_loss_shows_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "without loss")
    assert "has no finite loss" in page
    assert "no loss was logged" in page


def test_events_and_the_schedule_are_asked_for_one_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "levels", "--schedule", "--events"])
    assert "not allowed with" in capsys.readouterr().err
