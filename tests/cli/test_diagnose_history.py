"""`stepscope diagnose` says how a run compares with similar earlier runs of its project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.cli.main import main
from tests.views.history.project import WAIT, Project
from tests.views.made import Made
from tests.web.asking import API, app_of, ask


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a project whose runs once waited for data, were fixed, and wait again."""
    folder = tmp_path_factory.mktemp("history") / "store"
    made = Made(folder)
    project = Project(made)
    project.checked(project.train(0.05, workers=0, waits=True), WAIT)
    for _ in range(5):
        project.checked(project.train(0.031, workers=4))
    project.train(0.05, workers=0, waits=True)
    made.close()
    return folder


def printed(capsys: pytest.CaptureFixture[str], store: Path, *arguments: str) -> str:
    assert main(["diagnose", *arguments, "--store", str(store)]) == 0
    return capsys.readouterr().out


def test_the_page_has_the_comparison_and_the_fix_that_helped(
    capsys: pytest.CaptureFixture[str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    page = " ".join(printed(capsys, store, "resnet-7").split())
    assert "6 similar runs took 3" in page
    assert "helped: input.exposed_wait after loader.num_workers 0 -> 4: step time -38% (" in page
    assert (
        "In run resnet-2 of this project this was fixed by loader.num_workers 0 -> 4, which saved 38%" in page
    )
    first = printed(capsys, store, "resnet-1")
    assert "similar" not in first
    assert "helped" not in first


def test_json_and_the_web_api_have_the_same_history(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    report = json.loads(printed(capsys, store, "resnet-7", "--json"))
    history = report["history"]
    assert [run["name"] for run in history["runs"]] == [f"resnet-{number}" for number in range(6, 0, -1)]
    assert history["helped"][0]["finding"] == WAIT
    assert ask(app_of(store), f"{API}/runs/{report['run']}/findings").json()["history"] == history
