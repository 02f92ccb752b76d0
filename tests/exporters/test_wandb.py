"""W&B has what was recorded, with steps of its own; the training's own run of W&B is not touched."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.exporters.wandb import Wandb
from stepscope.mirrors.tool_process import ToolError
from stepscope.model_stats.histograms import BUCKETS
from stepscope.reading import Run
from stepscope.views.export.replay import replay
from tests.mirrors.runs import ODD_VALUES, array, logged, process, record, rows, same, wandb_runs

pytestmark = [
    pytest.mark.slow,  # W&B takes seconds to load
    pytest.mark.usefixtures("without_agent"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of W&B, when it is imported
]


@pytest.fixture
def run(folder: Path) -> Run:
    record(folder)
    (recorded,) = stepscope.open_store(folder).runs()
    return recorded


def copy(run: Run, folder: Path, existing: str = "refuse") -> list[str]:
    feed = Wandb(mode="offline", points_per_second=1e9, _directory=folder, _existing=existing)
    try:
        replay(run, feed)
        feed.flush()
        return feed.addresses
    finally:
        feed.close()


def test_w_and_b_has_every_value_below_stepscope_with_steps_of_its_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "of-the-training")
    monkeypatch.setenv("WANDB_NAME", "of the training")
    monkeypatch.setenv("WANDB_SERVICE", "3-1-tcp-localhost-9")
    addresses = copy(run, tmp_path)
    by_id = {copied.id: copied for copied in wandb_runs(tmp_path)}
    first, second = (by_id[f"{run.id}-{segment.id}"] for segment in run.segments)
    for copied, segment in zip((first, second), run.segments, strict=True):
        assert (copied.name, copied.group, copied.project) == (run.name, run.name, "lab")
        for key in ("loss", "epoch", "val/loss", "odd"):
            steps, values = copied.series(f"stepscope/{key}")
            if steps:
                assert steps == logged(run, segment.id, key)[0]
                assert same(values, logged(run, segment.id, key)[1])
    assert len(first.series("stepscope/odd")[0]) == len(ODD_VALUES)
    assert first.config["lr"] == 0.1
    assert first.config["optimizer"] == {"name": "sgd", "betas": [0.9, 0.99]}
    assert (first.exit_code, second.exit_code) == (1, 0)
    keys = {key for row in first.rows for key in row if not key.startswith("_")}
    assert {key.partition("/")[0] for key in keys} == {"stepscope"}
    assert first.step_metrics["stepscope/*"] == "stepscope/step"
    assert first.step_metrics["stepscope/system/*"] == "stepscope/system/seconds"
    (gradient,) = [row for row in first.rows if "stepscope/histogram/gradient/0" in row]
    assert gradient["stepscope/histogram/gradient/0"]["values"] == list(range(1, BUCKETS + 1))
    assert [Path(address).is_dir() for address in addresses] == [True, True]
    assert not (tmp_path / "wandb" / "latest-run").exists()


def test_a_second_copy_is_refused_and_with_force_it_is_another_run(run: Run, tmp_path: Path) -> None:
    copy(run, tmp_path)
    with pytest.raises(ToolError, match="exported to W&B already: .* Delete it there, or use --force"):
        copy(run, tmp_path)
    copy(run, tmp_path, "duplicate")
    assert len({copied.id for copied in wandb_runs(tmp_path)}) == 4


def test_a_process_that_is_killed_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    feed = Wandb(mode="offline", _directory=tmp_path)
    feed.begin(process())
    feed.take(rows({"loss": [1.0]}))
    feed.flush()
    os.kill(feed._tool._process.pid, signal.SIGKILL)
    feed.take(rows({"loss": [2.0]}, 1))
    with pytest.raises(ToolError, match="it is started again"):
        feed.flush()
    feed.flush()
    feed.take_array(array("equal", np.full(3, 2.0)))
    feed.begin(process("crashed", exit_code=-9))
    feed.finish("run-1", "s1", 0)
    feed.take(rows({"cpu/load_1m": [1.0]}, axis="seconds", rank=None))  # a reading that comes late
    feed.close()
    (last,) = [copied for copied in wandb_runs(tmp_path) if copied.exit_code is not None]
    assert last.series("stepscope/loss") == ([1], [2.0])
    assert last.exit_code != 0


def test_how_many_values_were_left_out_is_in_the_summary(tmp_path: Path) -> None:
    feed = Wandb(mode="offline", points_per_second=0.1, _directory=tmp_path)
    feed.begin(process())
    feed.take(rows({"loss": [1.0] * 100}))
    feed.begin(process("finished"))
    feed.finish("run-1", "s1", 0)
    feed.close()
    (copied,) = wandb_runs(tmp_path)
    assert copied.summary["stepscope/left_out"] == 100 - len(copied.series("stepscope/loss")[0]) > 80


def test_a_folder_that_cannot_be_written_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    feed = Wandb(mode="offline", directory="in the way/below", _directory=tmp_path)
    feed.begin(process())
    folder = re.escape(str(tmp_path / "in the way" / "below"))
    message = f"^The folder {folder} for W&B cannot be written: Not a directory. Choose another.$"
    with pytest.raises(ToolError, match=message):
        feed.flush()
    with pytest.raises(ToolError):
        feed.close()


def test_a_folder_that_can_be_written_again_gets_the_run(tmp_path: Path) -> None:
    blocked = tmp_path / "later"
    (blocked / "wandb").parent.mkdir()
    (blocked / "wandb").write_text("in the way")
    feed = Wandb(mode="offline", directory="later", _directory=tmp_path)
    feed.begin(process())
    feed.take(rows({"loss": [1.0]}))
    for _ in range(2):
        with pytest.raises(ToolError):
            feed.flush()
    (blocked / "wandb").unlink()
    feed.begin(process("finished"))
    feed.finish("run-1", "s1", 0)
    feed.close()
    (copied,) = wandb_runs(blocked)
    assert copied.series("stepscope/loss") == ([0], [1.0])
