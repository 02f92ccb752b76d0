"""All views of unusual runs are valid JSON, and none raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepscope.config.sections import Alerts
from stepscope.reading import Run
from stepscope.views.alerts.alert_list import alerts_of
from stepscope.views.compare.comparison import compare
from stepscope.views.logs.console_lines import console_of
from stepscope.views.metrics.catalogue import catalogue_of
from stepscope.views.overview.overview import overview_of
from stepscope.views.run_config import config_of
from stepscope.views.runs.filter import parse
from stepscope.views.runs.home import home_of
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import run_row
from stepscope.views.steps.rank_heatmap import heatmap_of
from stepscope.views.steps.step_explorer import steps_of
from tests.views.made import RUN, Made, as_json, at, trained

NOW = at(1_000)


def nothing(made: Made) -> None:
    made.process(end=None)


def one_step(made: Made) -> None:
    made.process()
    trained(made, 1)
    made.log({"loss": [1.0]})


def begun_anew(made: Made) -> None:
    """Three segments, each of which repeats steps of the one before."""
    for number, begin in enumerate((0, 300, 600)):
        segment = f"s{number}"
        made.process(segment=segment, started_ns=at(begin), end=begin + 200, status="crashed")
        steps = np.arange(number * 50, number * 50 + 120)
        made.log({"loss": 1.0, "step_seconds": np.full(120, 0.1)}, steps, segment=segment, begin=begin)


def many_hosts(made: Made) -> None:
    for rank in range(6):
        host = f"node{rank // 2}"
        made.process(rank=rank, pid=rank, host=host, end=None, status="running" if rank else "crashed")
        made.log(
            {"step_seconds": np.full(30 + rank, 0.1), "ranks/wait_seconds": 0.01 * rank}, rank=rank, host=host
        )
        made.read({"gpu/utilization_ratio": 0.1 * rank}, device=made.gpu(rank % 2, host=host), host=host)


def not_finite(made: Made) -> None:
    made.process(status="failed")
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324] * 50)
    made.log(
        {
            "loss": odd,
            "step_seconds": odd,
            "phase/data_seconds": odd,
            "phase/sampled_ratio": odd,
            "epoch": odd,
        }
    )
    made.read({"gpu/utilization_ratio": np.inf, "gpu/memory_used_bytes": 1e308}, device=made.gpu(0))
    made.read({"cpu/utilization_ratio": np.nan, "memory/total_bytes": 0.0, "process/rss_bytes": -1.0}, rank=0)


def huge_numbers(made: Made) -> None:
    made.process()
    made.log({"loss": np.full(300, 1.7e308), "step_seconds": 1.7e308}, 2**62 + np.arange(300), seal=True)


def steps_in_any_order(made: Made) -> None:
    made.process()
    steps = np.random.default_rng(0).integers(-1000, 1000, 500)
    made.log({"loss": np.arange(500.0), "step_seconds": 0.1, "epoch": -1.0}, steps)


def all_at_once(made: Made) -> None:
    """All points at the same time and the same step."""
    made.process()
    made.log({"loss": np.ones(300), "step_seconds": 0.0}, np.zeros(300, int), every=0.0)


def no_beginning(made: Made) -> None:
    """A run whose start and end a damaged journal lost."""
    made.process(started_ns=0, end=None, last_ns=0, facts={})
    made.log({"loss": [1.0, 2.0]})


def only_a_launcher(made: Made) -> None:
    made.process(role="launcher", status="failed", reason="exit code 1", exit_code=1)
    made.event("console", 5, text="Traceback\nValueError")
    made.read({"tree/cpu_ratio": 0.5}, rank=0)


def only_workers(made: Made) -> None:
    made.process(role="worker", rank=0, status="crashed")
    made.log({"decode_seconds": [0.1]})


def only_a_machine(made: Made) -> None:
    made.process(role="machine", end=None)
    for index in range(8):
        made.read({"gpu/utilization_ratio": 0.5, "gpu/power_watts": 100.0}, device=made.gpu(index))


def a_live_run_of_gpus(made: Made) -> None:
    made.process(end=None, facts={"total_steps": 10_000, "environment": {"CUDA_VISIBLE_DEVICES": ""}})
    trained(made, 500, data=0.001)
    for index in range(8):
        columns = {
            "gpu/utilization_ratio": 0.5,
            "gpu/throttled_power_brake": 1.0,
            "gpu/memory_used_bytes": 5e9,
        }
        made.read({**columns, "gpu/memory_total_bytes": 0.0}, device=made.gpu(index))


def hostile(made: Made) -> None:
    made.process(
        facts={"command": ["\ud800", 5, None], "config": {"a": {"\udfff": float("nan")}}, "libraries": 7}
    )
    made.log({"": [1.0], "a" * 500: 2.0, "../../etc/passwd": 3.0, "phase/_seconds": 1.0, "<b>/loss": 1.0})
    made.read({"gpu/utilization_ratio": 0.5}, device="' OR 1=1")
    made.event("device", host=None, device=None, uuid="' OR 1=1", index=0, name="\ud800", vendor="NVIDIA")
    made.event("census", optimizers=[{}], wrappers=[1], parameters=5, parameter_dtypes={"a": 1})
    made.event("loader", batch_size="many", num_workers=None)
    made.event("epoch", step=None, epoch={"deep": [1]}, text="\ud800")
    made.event("notice", text=None)
    made.event("config", **{"\ud800": "\ud800", "n": 10**25})
    made.alert("\u202e", message="", recent=[None], value=None, step=None)
    made.finding("odd", "notice", headline="", tries=["\ud800"], share=None, first_step=None)


RUNS = [
    nothing, one_step, begun_anew, many_hosts, not_finite, huge_numbers, steps_in_any_order, all_at_once,
    no_beginning, only_a_launcher, only_workers, only_a_machine, a_live_run_of_gpus, hostile,
]  # fmt: skip

VIEWS: dict[str, Callable[[Made, Run], Any]] = {
    "row": lambda made, run: run_row(run, NoMarks(), NOW),
    "overview": lambda made, run: overview_of(run, NoMarks(), NOW),
    "catalogue": lambda made, run: catalogue_of(run),
    "steps": lambda made, run: steps_of(run),
    "steps between": lambda made, run: steps_of(run, -5, 40, 0),
    "heatmap": lambda made, run: heatmap_of(run, "step_seconds"),
    "heatmap of a gpu": lambda made, run: heatmap_of(run, "gpu/utilization_ratio", 0, 100, 7),
    "comparison": lambda made, run: compare([run, run], run.id, now_ns=NOW),
    "config": lambda made, run: config_of(run),
    "console": lambda made, run: console_of(run),
    "home": lambda made, run: home_of(made.runs(), NoMarks(), NOW),
    "alerts": lambda made, run: alerts_of(made.runs(), made.folder, settings=Alerts(), now_ns=NOW),
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", RUNS, ids=lambda one: one.__name__)
@pytest.mark.filterwarnings("error")
def test_all_views_of_an_unusual_run_are_valid_json(made: Made, odd: Callable[[Made], None]) -> None:
    odd(made)
    for view in VIEWS.values():
        assert as_json(view(made, made.run(RUN)))
    row = run_row(made.run(RUN), NoMarks(), NOW)
    assert parse("-nothing duration>=0 steps>=-2000").matches(row, NOW) in (True, False)


def test_a_resumed_run_counts_each_step_once_and_all_of_its_time(made: Made) -> None:
    begun_anew(made)
    run = made.run()
    assert steps_of(run).count == 220
    assert run_row(run, NoMarks(), NOW).duration_s == 600.0
    assert [mark.kind for mark in overview_of(run, NoMarks(), NOW).events] == ["resume", "resume"]
