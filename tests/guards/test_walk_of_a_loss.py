"""A loss passes each room once, from `log_training_step` to the numbers of its chart."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from stepscope import TrainingMonitor
from stepscope.agent.ingest.ingest import Ingest
from stepscope.reading import open_store
from stepscope.store.sqlite import SqliteStore
from stepscope.views.metrics.series_summaries import SeriesSummaries
from tests.journal.writing import read_all
from tests.web.asking import API, app_of, ask

UI = Path(__file__).parents[2] / "ui"
LOSSES = [1.0 / (step + 1) for step in range(50)]
DECODE = """
import { readFileSync } from "node:fs";
import { decodeSeries } from "./series.js";
const body = readFileSync("answer");
const answer = decodeSeries(body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength));
console.log(JSON.stringify(answer.series.map(({ key, start, mean }) => [key, [...start], [...mean]])));
"""


@pytest.fixture
def recorded(folder: Path) -> Path:
    """A store folder with the journal of a training; no agent has read it."""
    with TrainingMonitor({"agent": {"mode": "none"}}, run="walk", directory=folder) as monitor:
        for loss in LOSSES:
            monitor.log_training_step(loss=loss)
    return folder


@pytest.fixture
def stored(recorded: Path) -> Path:
    """The same after an agent's ingest has taken the rows into the store."""
    store = SqliteStore(recorded / "store.sqlite")
    ingest = Ingest(recorded, store, is_alive=lambda _: False)
    ingest.tick()
    ingest.close()
    assert len(store.runs()) == 1, "open_store would do the agent's work otherwise"
    store.close()
    return recorded


@pytest.fixture
def answer(stored: Path) -> bytes:
    """What the API sends to the page for the chart of the loss."""
    (run,) = open_store(stored).runs()
    response = ask(app_of(stored), f"{API}/runs/{run.id}/series?keys=loss&buckets=100&format=binary")
    assert response.status_code == 200, response.text
    return response.content


def test_the_recorder_appends_each_loss_to_the_journal(recorded: Path) -> None:
    rows = [rows for batch in read_all(recorded) for rows in batch.rows if "loss" in rows.keys]
    losses = [value for row in rows for value in row.values[:, row.keys.index("loss")].tolist()]
    assert losses == LOSSES


def test_the_agent_takes_each_loss_into_the_store(stored: Path) -> None:
    points = open_store(stored).run("walk").series("loss")
    assert points.steps.tolist() == list(range(len(LOSSES)))
    assert points.values.tolist() == LOSSES


def test_views_compute_figures_from_the_store(stored: Path) -> None:
    summaries = SeriesSummaries(open_store(stored).run("walk").summaries())
    assert summaries.loss_key() == "loss"
    assert [summary.last for summary in summaries.by_first_rank("loss")] == [LOSSES[-1]]


@pytest.mark.skipif(
    shutil.which("node") is None or not (UI / "node_modules" / ".bin" / "rolldown").exists(),
    reason="needs Node and the packages of ui/",
)
def test_the_page_decodes_each_loss_from_the_answer_of_the_api(answer: bytes, tmp_path: Path) -> None:
    bundler = UI / "node_modules" / ".bin" / "rolldown"
    series = UI / "src" / "data" / "series.ts"
    (tmp_path / "package.json").write_text('{"type": "module"}')
    subprocess.run(
        [bundler, series, "--format", "esm", "--file", tmp_path / "series.js"],
        cwd=UI,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (tmp_path / "decode.js").write_text(DECODE)
    (tmp_path / "answer").write_bytes(answer)
    printed = subprocess.run(["node", "decode.js"], check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(printed.stdout) == [["loss", list(range(len(LOSSES))), LOSSES]]
