"""List, page, comparison, command line and Python show the same figures of a run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope import TrainingMonitor
from stepscope.cli.main import main
from stepscope.views.formatting import duration, rate
from stepscope.views.run_figures import figures_of
from tests.web.asking import API, app_of, ask

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")

KILLED = """
import os, signal, stepscope, sys
monitor = stepscope.TrainingMonitor(run="killed", directory=sys.argv[1])
monitor.start_monitoring()
for step in range(40):
    monitor.log_training_step(loss=1.0 / (step + 1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def train(monitor: TrainingMonitor, steps: int, *, with_batches: bool = True) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor.watch(model, optimizer)
    data = [torch.randn(2, 4) for _ in range(steps)]
    for x in monitor.batches(data) if with_batches else data:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.log_training_step(loss=loss)


def logged(folder: Path, name: str, losses: list[float], **options: Any) -> None:
    with TrainingMonitor(run=name, directory=folder, **options) as monitor:
        for loss in losses:
            monitor.log_training_step(loss=loss)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of eight runs, no two of a kind."""
    folder = tmp_path_factory.mktemp("eight") / "store"
    with TrainingMonitor(run="watched", directory=folder) as monitor:
        train(monitor, 600)
    with TrainingMonitor(run="plain", directory=folder) as monitor:
        train(monitor, 50, with_batches=False)
    logged(folder, "logged", [1.0 / (step + 1) for step in range(30)])
    logged(folder, "nan", [1.0, 0.5, math.nan])
    logged(folder, "resumed", [3.0, 2.0])
    logged(folder, "resumed", [1.5, 1.25], resume=True)
    failing = TrainingMonitor(run="failed", directory=folder)
    train(failing, 20)
    failing.stop_monitoring("failed", "ValueError: bad")
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    deadline = time.monotonic() + 60
    while stepscope.open_store(folder).run("killed").status != "crashed":
        assert time.monotonic() < deadline  # an agent may see it later, but not that late
        time.sleep(0.05)
    with TrainingMonitor(run="own names", directory=folder) as monitor:
        for step in range(10):
            monitor.log({"reward": float(step)}, step=2 * step)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """What the list of the page has of each run, by name."""
    rows = ask(app_of(folder), f"{API}/runs").json()["runs"]
    assert len(rows) == 8
    return {row["name"]: row for row in rows}


NAMES = ("watched", "plain", "logged", "nan", "resumed", "failed", "killed", "own names")


@pytest.fixture(autouse=True)
def _in_the_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_says_what_the_list_says(rows, capsys, name: str) -> None:
    row = rows[name]
    assert main(["show", name, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["step"] == row["step"]
    assert output["loss_best"] == row["loss_best"]
    assert output["loss_last"] == ("NaN" if name == "nan" else row["loss_last"])
    assert output["steps_per_second"] == pytest.approx(row["steps_per_second"])
    assert output["duration_seconds"] == pytest.approx(row["duration_s"])
    assert main(["runs", "--json"]) == 0
    (listed,) = [run for run in json.loads(capsys.readouterr().out) if run["name"] == name]
    shared = ("step", "loss_last", "loss_best", "loss_key", "steps_per_second", "duration_seconds", "status")
    assert {key: listed[key] for key in shared} == {key: output[key] for key in shared}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_python_says_what_the_list_says(folder: Path, rows, name: str) -> None:
    run, row = stepscope.open_store(folder).run(name), rows[name]
    figures = figures_of(run)
    assert (figures.step, figures.loss_last, figures.loss_best) == (
        row["step"],
        row["loss_last"],
        row["loss_best"],
    )
    key = "reward" if name == "own names" else "loss"
    points = run.series(key)
    assert int(points.steps.max()) == row["step"]
    if key == "loss":
        assert float(points.values[-1]) == pytest.approx(row["loss_last"] or math.nan, nan_ok=True)
        assert row["loss_best"] == points.values[~(points.values != points.values)].min()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_run_says_what_the_list_says(folder: Path, rows, name: str) -> None:
    row = rows[name]
    page = ask(app_of(folder), f"{API}/runs/{row['id']}/overview").json()
    assert page["ended"]["last_step"] == row["step"]
    assert page["ended"]["duration_s"] == pytest.approx(row["duration_s"])
    assert page["ended"]["status"] == row["status"]
    if page["wall_time"] is not None:
        assert page["wall_time"]["seconds"] == pytest.approx(row["duration_s"], rel=0.05, abs=0.05)
    (throughput,) = [tile for tile in page["tiles"] if tile["id"] == "throughput"]
    if row["steps_per_second"] and row["steps_per_second"] >= 0.1 and name != "own names":
        texts = [throughput["value"], *throughput["detail"]]
        assert rate(row["steps_per_second"], "steps") in texts


def test_a_comparison_says_what_list_and_pages_say(folder: Path, rows) -> None:
    app, several = app_of(folder), [rows[name] for name in NAMES]
    ids = ",".join(row["id"] for row in several)
    compared = ask(app, f"{API}/compare?runs={ids}").json()["figures"]
    figures = {row["name"]: [cell["value"] for cell in row["cells"]] for row in compared}
    assert figures["Steps per second"] == [pytest.approx(row["steps_per_second"]) for row in several]
    assert figures["Loss, last"] == [row["loss_last"] for row in several]
    assert figures["Loss, best"] == [row["loss_best"] for row in several]
    for row, p50 in zip(several, figures["Step time, p50"], strict=True):
        page = ask(app, f"{API}/runs/{row['id']}/overview").json()
        (tile,) = [tile for tile in page["tiles"] if tile["id"] == "step_time"]
        if p50 is not None:
            assert tile["value"] == duration(p50)
    assert sum(p50 is not None for p50 in figures["Step time, p50"]) >= 6
