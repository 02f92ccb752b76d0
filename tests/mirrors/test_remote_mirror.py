"""A program that is slow, away or refuses something loses nothing else, and nothing is passed on twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from stepscope.agent.ingest import export_queue
from stepscope.agent.ingest.export_queue import ExportQueue
from stepscope.agent.ingest.feeds import make_feed
from stepscope.errors import ConfigError, MissingExtra
from stepscope.exporters.base import Table
from stepscope.exporters.mlflow import Mlflow
from stepscope.exporters.wandb import Wandb
from stepscope.mirrors import remote_mirror
from stepscope.mirrors.remote_mirror import BATCH_VALUES
from stepscope.mirrors.tool_process import ToolError
from stepscope.schema.record import Event
from tests.mirrors.runs import START_NS, array, histogram, process, rows


class Tool:
    """Stands for the process of the program, and may be away."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.trouble: ToolError | None = None
        self.calls = 0
        self.is_closed = False

    def call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if self.trouble is not None:
            raise self.trouble
        self.requests.append(dict(request))
        return {"address": "somewhere"}

    def close(self) -> None:
        self.is_closed = True

    @property
    def steps(self) -> list[float]:
        return [at for request in self.requests for axis, at, _, _ in request["rows"] if axis == "step"]


@pytest.fixture
def tool() -> Tool:
    return Tool()


@pytest.fixture
def mirror(tool: Tool) -> Wandb:
    made = Wandb(mode="offline", points_per_second=1e9)
    made._tool = tool
    made.begin(process())
    return made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_mirror, "FLUSH_S", 0.0)


def test_rows_are_passed_on_in_batches_of_a_limited_size(mirror: Wandb, tool: Tool) -> None:
    mirror.take(rows({f"key{number}": [1.0] * 30 for number in range(1000)}))
    mirror.flush()
    sizes = [sum(len(values) for *_, values in request["rows"]) for request in tool.requests]
    assert sum(sizes) == 30_000
    assert max(sizes) <= BATCH_VALUES
    assert tool.steps == list(range(30))


def test_values_that_are_collected_and_not_passed_on_are_held(mirror: Wandb, tool: Tool) -> None:
    mirror.take(rows({"loss": [1.0] * 30}))
    assert mirror.held == 30
    tool.trouble = ToolError("nobody answers")
    with pytest.raises(ToolError):
        mirror.flush()
    assert mirror.held == 30
    tool.trouble = None
    mirror.flush()
    assert mirror.held == 0


@pytest.mark.usefixtures("at_once")
def test_while_the_program_is_away_nothing_is_collected_and_then_each_row_is_passed_on_once(
    mirror: Wandb, tool: Tool
) -> None:
    mirror.take(rows({"loss": [0.0]}))
    tool.trouble = ToolError("nobody answers")
    for _ in range(100):
        with pytest.raises(ToolError, match="nobody answers"):
            mirror.take(rows({"loss": [1.0]}, 1))
    tool.trouble = None
    mirror.take(rows({"loss": [1.0]}, 1))
    mirror.flush()
    assert tool.steps == [0, 1]


@pytest.mark.usefixtures("at_once")
def test_what_the_program_refuses_is_dropped_and_the_rest_gets_its_turn(mirror: Wandb, tool: Tool) -> None:
    mirror.take(rows({"loss": [0.0]}))
    tool.trouble = ToolError("too long", is_final=True)
    with pytest.raises(ToolError, match="too long"):
        mirror.take(rows({"loss": [1.0]}, 1))
    tool.trouble = None
    mirror.take(rows({"loss": [1.0]}, 1))
    mirror.flush()
    assert tool.steps == [1]
    assert mirror.dropped == 1


@pytest.mark.usefixtures("at_once")
def test_a_program_that_is_away_shows_as_failing_and_limits_what_waits(
    mirror: Wandb, tool: Tool, monkeypatch: pytest.MonkeyPatch, until
) -> None:
    monkeypatch.setattr(export_queue, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(export_queue, "MAX_PAUSE_S", 0.001)
    tool.trouble = ToolError("nobody answers")
    queue = ExportQueue("wandb", mirror, max_values=1000)
    for step in range(500):
        queue.put(partial(mirror.take, rows({"loss": [1.0] * 10}, 10 * step)), 10)
    until(lambda: queue.status().state == "failing" and queue.status().dropped > 0)
    status = queue.status()
    assert status.error == "nobody answers"
    assert status.waiting <= 1000
    tool.trouble = None
    queue.close(60)
    assert tool.is_closed
    assert tool.steps == sorted(set(tool.steps))
    assert len(tool.steps) + queue.status().dropped >= 5000 - 10


def test_the_status_is_passed_on_once_all_ranks_have_ended(mirror: Wandb, tool: Tool) -> None:
    mirror.begin(process(rank=1))
    mirror.take(rows({"loss": [0.0]}))
    mirror.begin(process("failed", exit_code=3, reason="ValueError"))
    mirror.finish("run-1", "s1", 0)
    assert not any(request["end"] for request in tool.requests)
    mirror.begin(process("finished", rank=1))
    mirror.finish("run-1", "s1", 1)
    mirror.close()
    (end,) = [request for request in tool.requests if request["end"]]
    described = end["start"]
    assert (described["status"], described["reason"], described["exit_code"]) == (
        "failed",
        "rank 0: ValueError",
        3,
    )
    assert described["ended_ms"] == START_NS // 10**6 + 60_000


def test_hyper_parameters_of_the_lowest_rank_count_and_later_ones_replace_earlier_ones(
    mirror: Wandb, tool: Tool
) -> None:
    for rank, params in ((1, {"seed": 1, "opt": {"lr": 2}}), (0, {"seed": 0}), (0, {"opt": {"name": "sgd"}})):
        mirror.take_event("run-1", Event("params", START_NS, None, rank, "s1", {"params": params}))
    mirror.take_event(
        "run-1", Event("params", START_NS, None, 0, "s1", {"params": {"seed": 9}}, by_user=True)
    )
    mirror.flush()
    assert tool.requests[-1]["start"]["params"] == {"seed": 0, "opt": {"lr": 2, "name": "sgd"}}


def limited(tool: Tool, points_per_second: float) -> Wandb:
    """A mirror with a limit, which starts with ten seconds of it."""
    mirror = Wandb(mode="offline", points_per_second=points_per_second)
    mirror._tool = tool
    mirror.begin(process())
    return mirror


def passed_on(mirror: Wandb, tool: Tool) -> dict[str, list[int]]:
    """The steps of each key that were passed on, once the run has ended."""
    mirror.begin(process("finished"))
    mirror.finish("run-1", "s1", 0)
    steps: dict[str, list[int]] = {}
    for request in tool.requests:
        for _, at, _, values in request["rows"]:
            for name in values:
                steps.setdefault(name.removeprefix("stepscope/"), []).append(at)
    return steps


def burst(metrics: dict[str, np.ndarray], first: int, second: float) -> Table:
    """Rows that were logged within a microsecond."""
    table = rows(metrics, first)
    times_ns = START_NS + int(second * 1e9) + np.arange(len(table.values))
    return replace(table, times_ns=times_ns)


def test_bursts_are_passed_on_whole_while_their_average_is_below_the_limit(tool: Tool) -> None:
    mirror = limited(tool, 10.0)
    mirror.take(burst({"loss": np.arange(100.0)}, 0, 0.0))
    for number in range(1, 20):
        mirror.take(burst({"loss": np.arange(20.0)}, 80 + 20 * number, 2.1 * number))
    assert passed_on(mirror, tool)["loss"] == list(range(480))
    assert tool.requests[-1]["start"]["left_out"] == 0


def test_a_fast_training_is_thinned_evenly_and_what_is_left_out_is_counted(
    tool: Tool, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = limited(tool, 0.5)
    for first in range(0, 1000, 50):  # four times the limit
        mirror.take(rows({"loss": np.arange(50.0), "lr": np.arange(50.0)}, first))
    steps = passed_on(mirror, tool)
    assert steps["loss"] == steps["lr"]
    assert steps["loss"][0] == 0
    assert steps["loss"][-1] == 999
    assert 240 <= len(steps["loss"]) <= 260
    assert max(np.diff(steps["loss"])) <= 2 * 4
    assert tool.requests[-1]["start"]["left_out"] == 2 * (1000 - len(steps["loss"]))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "W&B gets only a part of the values of the run 'run': it logs more than points_per_second, which is "
        "0.5. All values are in the store; `stepscope export` copies all of them."
    )


def test_the_last_value_is_passed_on_at_the_end_where_the_limit_is_used_up(tool: Tool) -> None:
    mirror = limited(tool, 0.5)
    for step in range(8):
        mirror.take(burst({"loss": np.array([float(step)])}, step, 0.001 * step))
    assert passed_on(mirror, tool) == {"loss": [0, 1, 2, 3, 4, 7]}
    assert tool.requests[-1]["start"]["left_out"] == 2


def test_the_lowest_and_highest_values_of_what_is_thinned_are_passed_on(tool: Tool) -> None:
    mirror = limited(tool, 10.0)
    values = np.ones(10_000)
    values[1234], values[5678] = 50.0, -50.0
    mirror.take(burst({"loss": values}, 0, 0.0))
    steps = passed_on(mirror, tool)["loss"]
    assert 100 <= len(steps) <= 102
    assert {0, 1234, 5678, 9999} <= set(steps)


def test_a_metric_that_is_logged_rarely_is_not_displaced_by_frequent_ones(tool: Tool) -> None:
    mirror = limited(tool, 10.0)
    for number in range(20):
        mirror.take(burst({"loss": np.arange(1000.0)}, 1000 * number, number))
        mirror.take(burst({"val/loss": np.array([1.0])}, 1000 * number, number + 0.001))
    steps = passed_on(mirror, tool)
    assert len(steps["val/loss"]) == 20
    assert 200 <= len(steps["loss"]) <= 310


def test_a_row_wider_than_the_limit_is_passed_on_from_time_to_time(tool: Tool) -> None:
    mirror = limited(tool, 1.0)
    for first in range(0, 600, 2):
        mirror.take(rows({f"key{number}": np.arange(2.0) for number in range(30)}, first))
    steps = passed_on(mirror, tool)["key0"]
    assert (steps[0], steps[-1]) == (0, 599)
    assert 15 <= len(steps) <= 22


def test_a_clock_that_is_set_back_does_not_end_the_copy(tool: Tool) -> None:
    mirror = limited(tool, 1.0)
    for number in range(300):
        second = number if number < 100 else number - 100_000
        mirror.take(burst({"loss": np.arange(10.0)}, 10 * number, second))
    steps = passed_on(mirror, tool)["loss"]
    assert 290 <= len(steps) <= 330
    assert len([step for step in steps if step >= 1000]) >= 170


def test_a_metric_with_the_name_of_an_axis_of_w_and_b_is_kept_beside_it(mirror: Wandb, tool: Tool) -> None:
    mirror.take(rows({"step": [1000.0], "status": [3.0], "system/seconds": [7.0]}))
    mirror.flush()
    [values] = [values for request in tool.requests for *_, values in request["rows"]]
    assert sorted(values.values()) == [3.0, 7.0, 1000.0]
    assert values.keys().isdisjoint({"stepscope/step", "stepscope/status", "stepscope/system/seconds"})


def test_values_that_the_program_does_not_get_do_not_count_as_passed_on(mirror: Wandb, tool: Tool) -> None:
    mlflow = Mlflow()
    mlflow._tool = tool
    keys = {"cpu/temperature_celsius": [50.0], "cpu/utilization_ratio": [0.5]}
    table = rows(keys, 0, rank=None, axis="seconds")
    queue = ExportQueue("mlflow", mlflow)
    queue.put(partial(mlflow.take, table), table.values.size)
    queue.close(60)
    assert (queue.status().exported, queue.status().waiting) == (1, 0)


def test_mlflow_gets_no_histograms_and_w_and_b_does(mirror: Wandb, tool: Tool) -> None:
    mlflow = Mlflow()
    mlflow._tool = Tool()
    for feed in (mirror, mlflow):
        feed.begin(process())
        feed.take_array(array("histogram/0", histogram(0, 1)))
        feed.flush()
    assert [entry["name"] for entry in tool.requests[-1]["arrays"]] == ["stepscope/histogram/0"]
    assert mlflow._tool.requests[-1]["arrays"] == []


def test_everything_in_w_and_b_is_below_stepscope(mirror: Wandb, tool: Tool) -> None:
    mirror.take(rows({"loss": [1.0]}))
    mirror.take(rows({"loss": [1.0]}, rank=1))
    mirror.take(rows({"cpu/utilization_ratio": [0.5]}, rank=None, axis="seconds"))
    mirror.flush()
    passed = [values for request in tool.requests for *_, values in request["rows"]]
    assert passed == [
        {"stepscope/loss": 1.0},
        {"stepscope/rank1/loss": 1.0},
        {"stepscope/system/cpu/util_percent": 50.0},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "off-line"}, "mode is 'off-line'; it must be online or offline."),
        ({"system_every_s": -1.0}, "system_every_s is -1; it must be a number of seconds, 0 or more."),
        ({"system_every_s": math.inf}, "system_every_s is inf; it must be a number of seconds, 0 or more."),
        ({"points_per_second": math.nan}, "points_per_second is nan; it must be more than 0."),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_feed("wandb", options)
    assert str(error.value) == f"exporters.wandb.{message}"
    if "system_every_s" in options:
        with pytest.raises(ConfigError, match=r"^exporters\.tensorboard\.system_every_s is "):
            make_feed("tensorboard", options)


def test_a_missing_library_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"MLflow needs an extra package.*'stepscope\[mlflow\]'"):
        Mlflow()
