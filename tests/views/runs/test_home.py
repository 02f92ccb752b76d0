"""The home page."""

from __future__ import annotations

import numpy as np

from stepscope.views.runs.home import home_of
from stepscope.views.runs.marks import NoMarks
from stepscope.views.runs.run_rows import run_rows
from tests.views.made import BEGUN_S, Made, OwnMarks, as_json, at

NOW = at(200)


def test_the_json_has_the_fields_that_the_page_reads(made: Made) -> None:
    made.process("live-1", end=None, status="stalled", reason="no record since 2026-11-16 18:41:26 UTC")
    made.read({"cpu/utilization_ratio": 0.5}, run="live-1")
    made.read({"gpu/utilization_ratio": 0.5}, device=made.gpu(0, run="live-1"), run="live-1")
    home_json = as_json(home_of(made.runs(), NoMarks(), NOW))
    assert " ".join(home_json) == "running attention recent hosts"
    assert " ".join(home_json["attention"][0]) == "run_id run what severity since kind"
    assert " ".join(home_json["hosts"][0]) == (
        "host live last_seen cpu_ratio memory_used_bytes memory_total_bytes gpus runs"
    )
    assert " ".join(home_json["hosts"][0]["gpus"][0]) == (
        "device name utilization_ratio memory_used_bytes memory_total_bytes temperature_celsius power_watts"
    )


def test_an_empty_store_is_an_empty_page(made: Made) -> None:
    home = home_of(made.runs(), NoMarks(), NOW)
    assert (home.running, home.attention, home.recent, home.hosts) == ((), (), (), ())


def test_runs_are_live_or_recent_and_archived_runs_are_neither(made: Made) -> None:
    for number in range(14):
        made.process(f"old-{number}", started_ns=at(number), end=20.0 + number)
    made.process("live-1", end=None, started_ns=at(50))
    home = home_of(made.runs(), OwnMarks(archived=["old-13"]), NOW)
    assert [row.id for row in home.running] == ["live-1"]
    assert [row.id for row in home.recent] == [f"old-{number}" for number in range(12, 2, -1)]


def test_attention_is_listed_worst_first(made: Made) -> None:
    made.process("crashed-1", status="crashed", reason="killed by signal 9", end=100)
    made.process("stalled-1", end=None, status="stalled", started_ns=at(1))
    made.process("live-1", end=None, started_ns=at(2))
    made.alert("hot", run="live-1", severity="critical", message="The GPU is at 99 °C.", fired=150)
    made.alert("over", run="live-1", resolved=20)
    made.finding("input.exposed_wait", "warning", run="live-1", headline="It waits.")
    made.finding("small.thing", "notice", run="live-1")
    attention = home_of(made.runs(), NoMarks(), NOW).attention
    assert [(problem.run, problem.kind, problem.what, problem.severity) for problem in attention] == [
        ("live", "alert", "The GPU is at 99 °C.", "critical"),
        ("stalled", "status", "stalled", "critical"),
        ("crashed", "status", "crashed: killed by signal 9", "critical"),
    ]
    assert attention[0].since == BEGUN_S + 150


def test_an_info_alert_needs_no_attention(made: Made) -> None:
    made.process("live-1", end=None)
    made.alert("always", run="live-1", severity="info", message="It goes on.")
    assert not home_of(made.runs(), NoMarks(), NOW).attention


def test_the_findings_of_a_live_run_need_attention_unless_they_are_muted(made: Made) -> None:
    made.process(end=None)
    made.finding("input.exposed_wait", "warning", headline="It waits.")
    made.finding("small.thing", "notice")
    (problem,) = home_of(made.runs(), NoMarks(), NOW).attention
    assert (problem.kind, problem.what, problem.severity) == ("finding", "It waits.", "warning")
    assert home_of(made.runs(), OwnMarks(muted=["input.exposed_wait"]), NOW).attention == ()


def test_a_run_that_ended_with_a_diverged_loss_needs_attention_as_critical(made: Made) -> None:
    for name, severity in (("diverged-1", "critical"), ("slow-1", "warning")):
        made.process(name)
        made.finding("conv.diverging", severity, run=name, headline="The loss has gone to 1e22.")
    (problem,) = home_of(made.runs(), NoMarks(), NOW).attention
    assert (problem.run, problem.what, problem.severity) == (
        "diverged",
        "The loss has gone to 1e22.",
        "critical",
    )


def test_home_and_the_list_of_runs_have_the_same_runs_that_need_attention(made: Made) -> None:
    made.process("stalled-1", end=None, status="stalled")
    made.alert("stalled", run="stalled-1", severity="critical")
    made.finding("input.exposed_wait", "warning", run="stalled-1")
    made.process("aside-1", end=None, status="stalled")
    made.process("failed-1", status="failed")
    made.process("nan-1")
    made.log({"loss": [1.0, np.nan]}, run="nan-1")
    # No agent has looked at it, and nothing is kept of its divergence.
    made.process("diverged-1")
    losses = np.r_[np.linspace(2, 1, 200), 1.2 ** np.arange(200)]
    made.log({"loss": losses, "step_seconds": np.full(400, 0.1)}, run="diverged-1")
    made.process("fine-1")
    marks = OwnMarks(archived=["aside-1"])
    listed = {row.id for row in run_rows(made.runs(), marks, NOW) if row.attention is not None}
    home = [problem.run_id for problem in home_of(made.runs(), marks, NOW).attention]
    assert sorted(home) == sorted(listed) == ["diverged-1", "failed-1", "nan-1", "stalled-1"]


def test_a_failure_needs_attention_with_its_exception(made: Made) -> None:
    made.process(status="failed", reason="KeyError: 'mixup'")
    (problem,) = home_of(made.runs(), NoMarks(), NOW).attention
    assert (problem.what, problem.severity, problem.kind) == (
        "failed: KeyError: 'mixup'",
        "critical",
        "status",
    )


def test_a_run_that_ended_with_a_nan_loss_needs_attention(made: Made) -> None:
    for name, last in (("nan-1", np.nan), ("inf-1", np.inf), ("fine-1", 0.5)):
        made.process(name)
        made.log({"loss": [1.0, np.nan, last]}, run=name)
    attention = home_of(made.runs(), NoMarks(), NOW).attention
    assert {(problem.run, problem.what, problem.severity) for problem in attention} == {
        ("nan", "loss is NaN at step 2", "critical"),
        ("inf", "loss is ∞ at step 2", "critical"),
    }


def test_a_finding_gives_the_start_of_a_nan_loss(made: Made) -> None:
    made.process()
    made.log({"loss": [1.0, np.nan]})
    made.finding("num.nonfinite", "critical", headline="The loss is NaN from step 1 on.")
    (problem,) = home_of(made.runs(), NoMarks(), NOW).attention
    assert (problem.what, problem.kind) == ("The loss is NaN from step 1 on.", "finding")
    muted = home_of(made.runs(), OwnMarks(muted=["num.nonfinite"]), NOW).attention
    assert muted == ()


def test_a_live_run_reports_its_nan_loss_once(made: Made) -> None:
    made.process(end=None)
    made.log({"loss": [1.0, np.nan]})
    made.finding("num.nonfinite", "critical", headline="The loss is NaN from step 1 on.")
    assert [problem.what for problem in home_of(made.runs(), NoMarks(), NOW).attention] == [
        "The loss is NaN from step 1 on."
    ]


def test_an_archived_run_needs_no_attention(made: Made) -> None:
    made.process("failed-1", status="failed")
    assert home_of(made.runs(), OwnMarks(archived=["failed-1"]), NOW).attention == ()


def test_an_old_crash_needs_no_attention(made: Made) -> None:
    made.process(status="crashed")
    assert home_of(made.runs(), NoMarks(), at(30 * 86_400)).attention == ()


def test_hosts_show_their_newest_figures_and_their_runs(made: Made) -> None:
    made.process("live-1", end=None, last_ns=at(199))
    made.read(
        {"cpu/utilization_ratio": np.linspace(0, 1, 200), "memory/total_bytes": 64e9}, 200, run="live-1"
    )
    for index in (1, 0):
        uuid = made.gpu(index, run="live-1")
        made.read(
            {"gpu/utilization_ratio": 0.1 + index, "gpu/power_watts": np.nan}, 200, device=uuid, run="live-1"
        )
    made.process("gone-1", host="node2", end=50)
    made.read({"cpu/utilization_ratio": 0.3}, 50, host="node2", run="gone-1")
    live, gone = home_of(made.runs(), NoMarks(), NOW).hosts
    assert (live.host, live.live, live.cpu_ratio, live.memory_total_bytes) == ("node1", True, 1.0, 64e9)
    assert [gpu.name for gpu in live.gpus] == ["gpu 0 NVIDIA H200", "gpu 1 NVIDIA H200"]
    assert [(gpu.utilization_ratio, gpu.power_watts) for gpu in live.gpus] == [(0.1, None), (1.1, None)]
    assert (live.runs, live.last_seen) == (("live-1",), BEGUN_S + 199)
    assert (gone.host, gone.live, gone.runs, gone.gpus) == ("node2", False, (), ())


def test_a_host_that_was_not_seen_for_a_day_is_not_shown(made: Made) -> None:
    made.process()
    made.read({"cpu/utilization_ratio": 0.3})
    assert home_of(made.runs(), NoMarks(), at(3 * 86_400)).hosts == ()
