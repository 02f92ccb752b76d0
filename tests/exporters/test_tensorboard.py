"""TensorBoard's own reader returns what was recorded; live and afterwards it is the same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.errors import StepscopeError
from stepscope.exporters.tensorboard import TensorBoard
from stepscope.model_stats.histograms import BUCKETS
from stepscope.schema.record import Event
from stepscope.schema.sample import DeviceFacts
from stepscope.views.export.replay import replay
from tests.mirrors.runs import (
    ODD_KEYS,
    ODD_VALUES,
    START_NS,
    array,
    histogram,
    logged,
    process,
    record,
    rows,
    same,
)

# The protocol buffers of TensorBoard are older than the library that reads them.
pytestmark = [
    pytest.mark.usefixtures("without_agent"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def read(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    return events


def scalars(events, tag: str) -> tuple[list[int], list[float]]:
    events_of_tag = events.Scalars(tag)
    return [event.step for event in events_of_tag], [event.value for event in events_of_tag]


@pytest.fixture
def live(tmp_path: Path) -> TensorBoard:
    feed = TensorBoard("tb", _directory=tmp_path)
    feed.describe(DeviceFacts("GPU-b", {"index": 1, "name": "Scripted"}))
    feed.begin(process())
    return feed


def test_the_reader_of_tensorboard_returns_every_scalar_and_histogram(folder: Path, tmp_path: Path) -> None:
    record(folder)
    (run,) = stepscope.open_store(folder).runs()
    feed = TensorBoard("tb", _directory=tmp_path)
    replay(run, feed)
    feed.close()
    first, second = run.segments
    for segment in (first, second):
        events = read(feed.folder_of(run.id, segment.id))
        for key in ("loss", "epoch", "val/loss", "odd"):
            if key in events.Tags()["scalars"]:
                steps, values = logged(run, segment.id, key)
                assert scalars(events, key)[0] == steps
                with np.errstate(over="ignore"):
                    assert same(scalars(events, key)[1], np.array(values, np.float32).tolist())
    events = read(feed.folder_of(run.id, first.id))
    assert len(scalars(events, "odd")[1]) == len(ODD_VALUES)
    assert {key for key in ODD_KEYS if key} <= set(events.Tags()["scalars"])
    (gradient,) = events.Histograms("histogram/gradient/0")
    assert gradient.step == 0
    assert gradient.histogram_value.bucket == list(range(1, BUCKETS + 1))
    assert (gradient.histogram_value.min, gradient.histogram_value.bucket_limit[-1]) == (-1.0, 3.0)
    (weights,) = events.Histograms("weights")
    assert (weights.step, weights.histogram_value.num, weights.histogram_value.sum) == (1, 3.0, 5.0)
    assert weights.histogram_value.bucket[-1] == 2.0


def test_hyper_parameters_and_the_status_are_in_the_tab_of_tensorboard(folder: Path, tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    record(folder)
    (run,) = stepscope.open_store(folder).runs()
    feed = TensorBoard("tb", _directory=tmp_path)
    replay(run, feed)
    events = read(feed.folder_of(run.id, run.segments[0].id))
    content = events.PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(content[metadata.SESSION_START_INFO_TAG])
    params = start.session_start_info.hparams
    assert params["lr"].number_value == 0.1
    assert params["amp"].bool_value is True
    assert params["optimizer.name"].string_value == "sgd"
    assert params["optimizer.betas"].string_value == "[0.9, 0.99]"
    end = plugin_data_pb2.HParamsPluginData.FromString(content[metadata.SESSION_END_INFO_TAG])
    assert end.session_end_info.status == api_pb2.STATUS_FAILURE


def test_machine_metrics_have_names_of_the_machine_and_are_thinned(live: TensorBoard, tmp_path: Path) -> None:
    machine = {"rank": None, "axis": "seconds"}
    for second in range(25):
        live.take(rows({"gpu/utilization_ratio": [second / 100]}, second, device="GPU-b", **machine))
        live.take(rows({"memory/used_bytes": [second]}, second, **machine))
        live.take(rows({"disk/used_ratio": [0.5]}, second, device="/data/sets", **machine))
        live.take(rows({"process/rss_bytes": [1.0]}, second, rank=1, axis="seconds"))
    events = read(tmp_path / "tb" / "run-1" / "s1")
    assert scalars(events, "system/gpu1/util_percent") == ([0, 4, 14, 24], pytest.approx([0, 4, 14, 24]))
    assert set(events.Tags()["scalars"]) == {
        "system/gpu1/util_percent",
        "system/memory/used_bytes",
        "system/disk/data/sets/used_percent",
        "rank1/system/process/rss_bytes",
    }


def test_values_can_be_read_before_the_run_ends(live: TensorBoard, tmp_path: Path) -> None:
    for step in range(3):
        live.take(rows({"loss": [step]}, step))
        assert scalars(read(tmp_path / "tb" / "run-1" / "s1"), "loss")[0] == list(range(step + 1))


def test_ranks_have_names_of_their_own_and_none_overwrites_another(live: TensorBoard, tmp_path: Path) -> None:
    live.take(rows({"loss": [1.0], "rank1/loss": [2.0]}))
    live.take(rows({"loss": [3.0]}, rank=1))
    live.take_array(array("histogram/0", histogram(0, 1), rank=1))
    events = read(tmp_path / "tb" / "run-1" / "s1")
    tags = events.Tags()["scalars"]
    assert len(tags) == 3
    assert {tag: scalars(events, tag)[1] for tag in tags[:2]} == {"loss": [1.0], "rank1/loss": [2.0]}
    assert scalars(events, tags[2])[1] == [3.0]
    assert events.Tags()["histograms"] == ["rank1/histogram/0"]


def test_a_start_that_an_agent_continues_after_another_is_one_run(live: TensorBoard, tmp_path: Path) -> None:
    live.take(rows({"loss": [1.0, 2.0]}))
    next_feed = TensorBoard("tb", _directory=tmp_path)
    next_feed.begin(process())
    next_feed.take(rows({"loss": [3.0]}, 2))
    assert scalars(read(tmp_path / "tb" / "run-1" / "s1"), "loss") == ([0, 1, 2], [1.0, 2.0, 3.0])


def test_a_row_of_3000_keys_is_one_record(live: TensorBoard, tmp_path: Path) -> None:
    live.take(rows({f"layer/{number}": [float(number)] * 3 for number in range(3000)}))
    events = read(tmp_path / "tb" / "run-1" / "s1")
    assert len(events.Tags()["scalars"]) == 3000
    assert scalars(events, "layer/2999") == ([0, 1, 2], [2999.0] * 3)


@pytest.mark.parametrize(
    "values",
    [np.full(4, 2.0), np.array([np.nan]), np.array([]), np.array(["text"]), np.array([1e300, -1e300])],
    ids=["equal", "none finite", "empty", "text", "huge"],
)
def test_an_odd_array_is_a_histogram_or_is_left_out(
    live: TensorBoard, tmp_path: Path, values: np.ndarray
) -> None:
    live.take(rows({"loss": [1.0]}))
    live.take_array(array("odd", values))
    live.take_array(array("histogram/own", values))
    live.take(rows({"loss": [1.0]}, 1))
    events = read(tmp_path / "tb" / "run-1" / "s1")
    counts = [
        event.histogram_value.num for tag in events.Tags()["histograms"] for event in events.Histograms(tag)
    ]
    assert counts in ([], [float(len(values))] * 2)
    assert scalars(events, "loss")[0] == [0, 1]


def test_a_folder_that_cannot_be_written_raises_and_leaves_no_part_of_a_record(
    live: TensorBoard, tmp_path: Path
) -> None:
    live.take(rows({"loss": [1.0]}))
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "tb", moved)
    (tmp_path / "tb").write_text("in the way")
    message = (
        f"The folder {tmp_path / 'tb'} for TensorBoard cannot be written: Not a directory. Choose another."
    )
    with pytest.raises(StepscopeError, match=f"^{re.escape(message)}$"):
        live.take(rows({"loss": [2.0]}, 1))
    (tmp_path / "tb").unlink()
    shutil.move(moved, tmp_path / "tb")
    live.take(rows({"loss": [3.0]}, 2))
    assert scalars(read(tmp_path / "tb" / "run-1" / "s1"), "loss") == ([0, 2], [1.0, 3.0])


def test_hyper_parameters_of_a_process_that_is_not_known_yet_are_written(
    tmp_path: Path,
) -> None:
    feed = TensorBoard("tb", _directory=tmp_path)
    feed.take_event("run-1", Event("params", START_NS, None, 0, "s1", {"params": {"lr": 1}}))
    feed.take_event("run-1", Event("params", START_NS, None, 0, "s1", {"params": {"lr": 2}}, by_user=True))
    assert "hparams" in str(read(tmp_path / "tb" / "run-1" / "s1").Tags()["tensors"])
