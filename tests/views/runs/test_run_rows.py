"""Rows of a list of runs, from real stores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.analysis.verdict import Checks
from stepscope.reading import Run
from stepscope.schema.keys import CHECKS_EVENT
from stepscope.views.overview.run_verdict import verdict_for
from stepscope.views.run_figures import figures_of
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import MAX_DIAGNOSED, FigureCache, RunRow, run_row, run_rows
from tests.views.made import NS, RUN, Made, OwnMarks, as_json, at, trained

NOW = at(200)
FIELDS = (
    "id name project status reason started ended duration_s last_seen step total_steps steps_per_second "
    "eta_s loss_last loss_best loss_nonfinite loss_key data_wait_ratio gpu_mean_ratio gpu_worst_ratio "
    "gpu_worst peak_memory_bytes verdict attention open_alerts tags archived colour hosts ranks "
    "segments config spark"
)


def row_of(made: Made, run: str = RUN, now: int = NOW) -> RunRow:
    return run_row(made.run(run), NoMarks(), now)


def test_a_row_has_the_fields_a_page_reads(made: Made) -> None:
    made.process()
    assert " ".join(as_json(row_of(made))) == FIELDS


def test_a_run_without_points_is_a_row_of_unknown_values(made: Made) -> None:
    made.process(end=None)
    row = row_of(made)
    assert (row.step, row.loss_last, row.steps_per_second, row.spark) == (None, None, None, ())
    assert row.verdict.severity == "unknown"
    assert (row.status, row.ended, row.duration_s, row.ranks) == ("running", None, 200.0, 1)


def test_a_run_recorded_by_a_monitor_has_its_loss_and_step_rate(folder: Path) -> None:
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="real", directory=folder) as monitor:
        monitor.event("config", optimizer={"lr": 0.1, "name": "adam"}, batch_size=64)
        monitor.event("total_steps", value=50)
        for step in monitor.batches(range(30)):
            monitor.log_training_step(loss=1.0 / (step + 1))
    store = stepscope.open_store(folder)
    (row,) = run_rows(store, NoMarks())
    store.close()
    assert (row.name, row.status, row.step, row.total_steps) == ("real", "finished", 29, 50)
    assert row.loss_last == row.loss_best == pytest.approx(1 / 30)
    assert row.steps_per_second > 0
    assert 0 <= row.data_wait_ratio <= 1
    assert row.config == {"optimizer.lr": 0.1, "optimizer.name": "adam", "batch_size": 64}


def test_the_best_loss_ignores_values_that_are_not_finite(made: Made) -> None:
    made.process()
    made.log({"loss": [3.0, np.nan, 1.0, -np.inf, 2.0, np.inf]})
    row = row_of(made)
    assert (row.loss_best, row.loss_last) == (1.0, None)
    assert row.spark == (3.0, None, 1.0, None, 2.0, None)


def test_a_spark_has_at_most_forty_values_of_one_rank(made: Made) -> None:
    made.process()
    for rank, level in ((0, 1.0), (1, 9.0)):
        made.log({"loss": np.full(5000, level)}, rank=rank, every=0.01, seal=True)
    row = row_of(made)
    assert 20 <= len(row.spark) <= 40
    assert set(row.spark) == {1.0}


def test_a_loss_key_is_found_by_its_ending(made: Made) -> None:
    made.process()
    made.log({"val/loss": 5.0, "model/ce_loss": 2.0, "speed": 1.0}, range(3))
    row = row_of(made)
    assert (row.loss_key, row.loss_last, row.step) == ("model/ce_loss", 2.0, 2)


def test_the_step_rate_of_a_live_run_is_that_of_its_last_30_seconds(made: Made) -> None:
    made.process(end=None)
    made.log({"loss": np.ones(1000)}, np.arange(1000), every=0.1)  # ten a second
    made.log({"loss": np.ones(80)}, np.arange(1000, 1080), begin=100.0, every=0.5)  # then two
    assert row_of(made).steps_per_second == pytest.approx(2.0, rel=0.05)


def test_the_step_rate_of_a_resumed_run_counts_repeated_steps_once(made: Made) -> None:
    made.process(end=50.0, status="crashed")
    made.process(segment="b2", end=None, started_ns=at(1000), last_ns=at(1040))
    made.log({"loss": np.ones(500)}, np.arange(500), every=0.1)
    made.log({"loss": np.ones(40)}, np.arange(460, 500), segment="b2", begin=1000.0, every=1.0)
    assert row_of(made, now=at(1041)).steps_per_second == pytest.approx(1.0, rel=0.1)


def test_the_step_rate_of_an_ended_run_leaves_out_the_time_between_segments(made: Made) -> None:
    made.process(end=100.0, status="crashed")
    made.process(segment="b2", started_ns=at(5000), end=5100.0)
    made.log({"loss": np.ones(100)}, np.arange(100))
    made.log({"loss": np.ones(100)}, np.arange(100, 200), segment="b2", begin=5000.0)
    row = row_of(made, now=at(9000))
    assert row.steps_per_second == pytest.approx(1.0, rel=0.05)
    assert (row.duration_s, row.segments) == (200.0, 2)


def test_a_stalled_run_has_no_step_rate_and_no_time_left(made: Made) -> None:
    made.process(end=None, status="stalled", facts={"total_steps": 500})
    made.log({"loss": np.ones(100)})
    row = row_of(made)
    assert (row.steps_per_second, row.eta_s, row.total_steps) == (0.0, None, 500)


def test_the_time_left_follows_from_the_remaining_steps(made: Made) -> None:
    made.process(end=None, facts={"total_steps": 400})
    made.log({"step_seconds": np.full(200, 0.5), "loss": 1.0}, every=0.5)
    row = row_of(made)
    assert row.eta_s == pytest.approx(100.0, rel=0.02)


@pytest.mark.parametrize("name", ["total_steps", "trainer.max_steps"])
def test_the_number_of_steps_may_come_from_the_configuration(made: Made, name: str) -> None:
    made.process()
    outer, _, inner = name.partition(".")
    made.event("config", **({outer: {inner: 1234}} if inner else {outer: 1234}))
    assert row_of(made).total_steps == 1234


@pytest.mark.parametrize("said", [-1, 0, "many", True, 2.0**60, None])
def test_an_invalid_number_of_steps_is_ignored(made: Made, said: object) -> None:
    made.process(facts={"total_steps": said})
    made.event("config", max_steps=said)
    assert row_of(made).total_steps is None


def test_the_wait_for_data_is_a_share_of_step_time(made: Made) -> None:
    made.process()
    trained(made, data=0.01)
    assert row_of(made).data_wait_ratio == pytest.approx(0.5)


def test_the_wait_on_the_device_counts_if_it_was_timed(made: Made) -> None:
    made.process()
    trained(made, data=0.01)
    made.log({"device/data_seconds": 0.001, "device/step_seconds": 0.02}, [3, 50])
    assert row_of(made).data_wait_ratio == pytest.approx(0.05)


def test_a_wait_timed_in_some_steps_stands_for_all(made: Made) -> None:
    made.process()
    made.log({"step_seconds": np.full(100, 0.1)})
    made.log({"phase/data_seconds": np.full(10, 0.04)}, np.arange(0, 100, 10))
    assert row_of(made).data_wait_ratio == pytest.approx(0.4)


def test_the_worst_gpu_is_named_and_others_of_the_host_do_not_count(made: Made) -> None:
    made.process(end=None)
    for index, busy in enumerate((0.9, 0.5, 0.0)):
        uuid = made.gpu(index)
        made.read({"gpu/utilization_ratio": busy, "gpu/memory_used_bytes": 1e9 * (index + 1)}, device=uuid)
        if index < 2:
            made.read({"gpu/process_utilization_ratio": busy}, device=uuid, rank=0)
    row = row_of(made)
    assert row.gpu_mean_ratio == pytest.approx(0.7)
    assert (row.gpu_worst, row.gpu_worst_ratio) == ("gpu 1", pytest.approx(0.5))
    assert row.peak_memory_bytes == 2e9


def test_gpus_of_several_hosts_are_named_with_their_host(made: Made) -> None:
    for rank, host in enumerate(("node1", "node2")):
        made.process(rank=rank, host=host, pid=rank)
        made.read({"gpu/utilization_ratio": 0.9 - 0.5 * rank}, device=made.gpu(0, host=host), host=host)
    row = row_of(made)
    assert (row.gpu_worst, row.hosts, row.ranks) == ("node2 gpu 0", ("node1", "node2"), 2)


def test_only_visible_gpus_count_if_no_process_was_found_on_one(made: Made) -> None:
    made.process(facts={"environment": {"CUDA_VISIBLE_DEVICES": "1"}})
    for index, busy in enumerate((0.1, 0.8)):
        made.read({"gpu/utilization_ratio": busy}, device=made.gpu(index))
    assert row_of(made).gpu_mean_ratio == pytest.approx(0.8)


def test_a_watched_machine_is_a_row_without_steps(made: Made) -> None:
    made.process(role="machine")
    made.read({"cpu/utilization_ratio": 0.5})
    row = row_of(made)
    assert (row.step, row.ranks, row.verdict.id, row.loss_key) == (None, 0, "machine", None)


def test_the_worst_finding_that_is_not_muted_is_the_verdict(made: Made) -> None:
    made.process()
    made.finding("gpu.idle", "critical")
    made.finding("input.exposed_wait", "warning", share=0.4)
    made.finding("host.gc", "warning", share=0.1)
    assert row_of(made).verdict.id == "gpu.idle"
    muted = run_row(made.run(), OwnMarks(muted=["gpu.idle"]), NOW)
    assert (muted.verdict.id, muted.verdict.tries) == ("input.exposed_wait", ("more workers",))
    assert muted.verdict.steps == (10, 90)


def test_a_run_without_findings_is_fine_only_if_its_steps_were_checked(made: Made) -> None:
    made.process()
    trained(made, data=0.0)
    assert row_of(made).verdict.severity == "unknown"
    checks = Checks(6, is_timed=True, steady=100, examined=100, pace="5 ms a step")
    made.event(CHECKS_EVENT, 10, **checks.as_dict())
    assert row_of(made).verdict.headline == "Healthy: 6 checks passed (100 newest steps); 5 ms a step."
    made.process("slow-1")
    trained(made, data=0.02, run="slow-1")
    assert row_of(made, "slow-1").verdict.severity == "warning"


def test_a_long_list_diagnoses_a_few_unchecked_runs_at_a_time(made: Made) -> None:
    for number in range(MAX_DIAGNOSED + 3):
        made.process(f"run-{number:02d}")
        made.log({"loss": np.linspace(2, 1, 30)}, run=f"run-{number:02d}")
    cache = FigureCache()
    verdicts = [[row.verdict.id for row in run_rows(made.runs(), NoMarks(), NOW, cache)] for _ in range(2)]
    assert verdicts[0] == ["not_checked"] * 3 + ["unmeasured"] * MAX_DIAGNOSED
    assert verdicts[1] == ["unmeasured"] * (MAX_DIAGNOSED + 3)


def test_firing_alerts_of_a_live_run_are_counted(made: Made) -> None:
    made.process(end=None)
    made.alert("a")
    made.alert("b", resolved=20)
    assert row_of(made).open_alerts == 1


def test_names_tags_and_colours_are_in_the_row(made: Made) -> None:
    made.process()
    marks = OwnMarks(names={RUN: "better name"}, tags={RUN: ("good",)}, archived=[RUN], colour="#123456")
    row = run_row(made.run(), marks, NOW)
    assert (row.name, row.tags, row.archived, row.colour) == ("better name", ("good",), True, "#123456")


def test_hostile_names_and_values_can_be_sent(made: Made) -> None:
    facts = {
        "command": ["\ud800"],
        "config": {"\udc80": "\ud800", "deep": {"a": {"b": [1, {"c": 2}]}}, "x": 10**30},
    }
    made.process("evil-1", name="<script>\x1b[31m\u202e", project="'; DROP TABLE run", facts=facts)
    made.log({"loss": [1.0], "x' OR 1=1 --": 2.0}, run="evil-1")
    row = as_json(row_of(made, "evil-1"))
    assert row["name"] == "<script>\x1b[31m\u202e"
    assert row["config"]["deep.a.b"] == '[1, {"c": 2}]'
    assert row["config"]["x"] == str(10**30)


def test_figures_of_an_ended_run_are_cached_until_it_is_resumed(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.process(end=100.0)
    made.log({"loss": np.ones(10)})
    cache, asked = FigureCache(), []
    ask = Run.summaries
    monkeypatch.setattr(Run, "summaries", lambda self, keys=None: asked.append(self.id) or ask(self, keys))
    later = at(100) + 60 * NS
    for _ in range(3):
        assert run_rows(made.runs(), NoMarks(), later, cache)[0].step == 9
    assert len(asked) == 1
    made.process(segment="b2", end=None, started_ns=at(150), last_ns=at(160))
    made.log({"loss": np.ones(10)}, np.arange(10, 20), segment="b2", begin=150)
    assert run_rows(made.runs(), NoMarks(), later, cache)[0].step == 19


def test_a_run_that_has_just_ended_is_not_cached(made: Made) -> None:
    made.process(end=100.0)
    cache = FigureCache()
    assert run_rows(made.runs(), NoMarks(), at(101), cache)[0].step is None
    made.log({"loss": np.ones(10)})
    assert run_rows(made.runs(), NoMarks(), at(102), cache)[0].step == 9


def test_runs_are_listed_once_oldest_first(made: Made) -> None:
    for number in (3, 1, 2):
        made.process(f"run-{number}", started_ns=at(number))
    rows = run_rows(made.runs(), NoMarks(), NOW)
    assert [row.id for row in rows] == ["run-1", "run-2", "run-3"]
    assert dataclasses.is_dataclass(rows[0])


def test_a_loss_that_is_not_finite_is_named(made: Made) -> None:
    for name, last, word in (
        ("a-1", np.nan, "NaN"),
        ("b-1", np.inf, "∞"),
        ("c-1", -np.inf, "-∞"),
        ("d-1", 1.0, None),
    ):
        made.process(name)
        made.log({"loss": [2.0, last]}, run=name)
        row = row_of(made, name)
        assert (row.loss_nonfinite, row.loss_best is None) == (word, False)


def test_the_step_is_that_of_the_last_loss_if_the_last_steps_were_not_timed(made: Made) -> None:
    made.process(status="crashed")
    made.log({"step_seconds": np.ones(80)})
    made.log({"loss": np.ones(100)})
    assert row_of(made).step == 99


def test_a_row_shows_what_needs_attention(made: Made) -> None:
    made.process(status="failed", reason="KeyError: 'mixup'")
    assert row_of(made).attention == "failed: KeyError: 'mixup'"
    assert row_of(made, now=at(30 * 86_400)).attention is None


def test_the_step_of_a_run_is_the_newest_of_any_rank(made: Made) -> None:
    for rank, steps in ((0, 60), (1, 70)):
        made.process(rank=rank, pid=rank)
        made.log({"loss": np.ones(steps)}, np.arange(steps), rank=rank)
    assert row_of(made).step == 69


def test_a_run_of_one_step_has_one_step(made: Made) -> None:
    made.process()
    made.log({"loss": np.ones(1)}, np.arange(1))
    assert verdict_for(made.run(), (), figures_of(made.run())).headline == (
        "Too short to judge: 1 step; 20 are needed."
    )
