"""Every name is served with its labels, type and unit, in texts that Prometheus's own readers accept."""

from __future__ import annotations

import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.errors import ConfigError
from stepscope.prometheus import families
from stepscope.prometheus.families import FAMILIES
from stepscope.prometheus.live_state import MAX_RUNS, LiveState
from stepscope.prometheus.options import Options, options_in
from tests.prometheus.made import (
    GPU,
    HOST,
    NOW_S,
    NS,
    OPENMETRICS,
    RUN,
    add_machine,
    full_state,
    process,
    rows,
    samples_of,
    text_of,
    value_of,
)

REQUIRED = {
    "gpu_utilization_percent": {"host", "gpu", "uuid"},
    "gpu_memory_used_mb": {"host", "gpu", "uuid"},
    "gpu_memory_total_mb": {"host", "gpu", "uuid"},
    "gpu_temperature_celsius": {"host", "gpu", "uuid"},
    "gpu_power_draw_watts": {"host", "gpu", "uuid"},
    "gpu_fan_speed_percent": {"host", "gpu", "uuid"},
    "gpu_memory_mb": {"host", "gpu_id"},
    "cpu_usage_percent": {"host"},
    "training_loss": {"project", "run", "rank"},
    "training_steps_total": {"project", "run", "rank"},
    "training_epoch": {"project", "run"},
    "learning_rate": {"project", "run", "group"},
    "gradient_norm": {"project", "run", "rank"},
    "training_step_duration_seconds_bucket": {"project", "run", "rank", "le"},
    "training_step_duration_seconds_sum": {"project", "run", "rank"},
    "training_step_duration_seconds_count": {"project", "run", "rank"},
    "memory_allocation_mb": {"project", "run", "rank", "gpu"},
}
"""The names that people's dashboards use, and their labels: never changed."""

ALERTS_SENT = "stepscope_alerts_sent_total"

ENGINE = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(ENGINE is None, reason="promtool is not installed")


def names_in(text: str) -> set[str]:
    """The names of the families of a text."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_family_is_served_in_both_formats(accept: str) -> None:
    served = samples_of(text_of(full_state(), accept))
    missing = {family.name for family in FAMILIES} - served.keys()
    assert missing == {"training_step_duration_seconds"}  # its samples have names of their own
    for name, labels in REQUIRED.items():
        for sample in served[name]:
            assert {label for label, _ in sample} == labels


def test_figures_have_the_units_of_their_names() -> None:
    text = text_of(full_state())
    assert value_of(text, "gpu_fan_speed_percent", gpu="0") == 40.0
    assert value_of(text, "cpu_usage_percent", host=HOST) == 50.0
    assert value_of(text, "memory_allocation_mb", rank="0") == 1024.0
    used = value_of(text, "gpu_memory_used_mb", uuid=GPU)
    assert used == value_of(text, "gpu_memory_mb", gpu_id="0")
    assert 0 < used < value_of(text, "gpu_memory_total_mb", gpu="0") == 141 * 1024


def test_figures_of_a_run_are_the_newest_ones() -> None:
    text = text_of(full_state())
    expected = {
        "training_loss": 0.6,
        "training_steps_total": 3.0,
        "gradient_norm": 2.0,
        "stepscope_dataloader_workers": 4.0,
        "stepscope_last_step_timestamp_seconds": NOW_S - 8,
        "stepscope_rank_lag_steps": 0.0,
        "stepscope_user_metric": 0.8,
        "stepscope_samples_total": 96.0,
    }
    for name, value in expected.items():
        assert value_of(text, name, rank="0") == value, name
    assert value_of(text, "stepscope_rank_lag_steps", rank="1") == 1.0
    assert value_of(text, "stepscope_points_dropped_total", rank="1") == 3.0
    assert value_of(text, "training_epoch", run="mnist") == 1.5
    assert value_of(text, "learning_rate", group="0") == 0.01
    assert value_of(text, "stepscope_training_progress_ratio") == 0.03
    assert value_of(text, "stepscope_eta_seconds") == pytest.approx(97.0)
    assert value_of(text, ALERTS_SENT, channel="mail", result="sent") == 1.0
    assert value_of(text, "memory_allocation_mb", rank="0", gpu="0") == 1024.0
    run_facts = {"framework": "torch", "precision": "bfloat16", "world_size": "2", "run_id": RUN}
    assert value_of(text, "stepscope_run_info", **run_facts) == 1.0


def test_the_histogram_counts_every_step_and_has_the_buckets_of_the_options() -> None:
    state = LiveState(now=lambda: NOW_S)
    state.add_run(RUN, Options(buckets=(0.1, 1.0)))
    state.begin(process())
    state.take(rows({"step_seconds": [0.1, 0.5, 2.0, float("nan")]}))
    state.take(rows({"step_seconds": [0.05]}, step=4))
    text = text_of(state)
    buckets = samples_of(text)["training_step_duration_seconds_bucket"]
    assert {dict(labels)["le"]: count for labels, count in buckets.items()} == {
        "0.1": 2.0,
        "1.0": 3.0,
        "+Inf": 4.0,
    }
    assert value_of(text, "training_step_duration_seconds_sum") == pytest.approx(2.65)
    assert value_of(text, "training_steps_total") == 5.0


def test_the_time_of_all_steps_is_divided_as_in_those_that_were_timed_by_phase() -> None:
    text = text_of(full_state())
    phases = {
        phase: value_of(text, "stepscope_step_phase_seconds_total", phase=phase, rank="0")
        for phase in ("data", "h2d", "forward", "backward", "optimizer", "other")
    }
    assert sum(phases.values()) == pytest.approx(0.6 + 0.8 + 0.7)
    # The second step was sampled with a probability of a half, and counts twice: 0.1 + 2 * 0.2 of 2.4 s.
    assert phases["forward"] == pytest.approx(2.1 * 0.5 / 2.4)


def test_rates_become_counters_that_count_once_however_many_runs_bring_them() -> None:
    state = full_state()
    add_machine(state)
    assert value_of(text_of(state), "stepscope_disk_bytes_total", direction="read") == 300.0
    state.take(rows({"disk/read_bytes_per_second": [500.0]}, None, at_s=NOW_S - 7))
    assert value_of(text_of(state), "stepscope_disk_bytes_total", direction="read") == 1300.0


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_served_as_it_is(loss: float) -> None:
    state = full_state()
    state.take(rows({"loss": [loss]}, step=3))
    for accept in ("", OPENMETRICS):
        served = value_of(text_of(state, accept), "training_loss", rank="0")
        assert served == loss or (math.isnan(served) and math.isnan(loss))


def test_names_can_be_limited_to_those_with_or_without_a_prefix() -> None:
    prefixed = names_in(text_of(full_state(Options(names="prefixed"))))
    assert {name for name in prefixed if not name.startswith("stepscope_")} == set()
    assert {"stepscope_training_loss", "stepscope_gpu_memory_used_bytes"} <= prefixed
    required = names_in(text_of(full_state(Options(names="required"))))
    assert {name for name in required if name.startswith("stepscope_")} == {
        "stepscope_build_info",
        "stepscope_up",
    }
    assert {"training_loss", "gpu_memory_used_mb", "gpu_memory_mb", "cpu_usage_percent"} <= required


def test_base_units_add_names_and_change_none() -> None:
    usual, more = (text_of(full_state(Options(base_units=on))) for on in (False, True))
    twins = {family.twin for family in FAMILIES if family.twin}
    assert names_in(more) - names_in(usual) == twins
    assert value_of(more, "stepscope_gpu_memory_total_bytes", gpu="0") == 141 * 2**30
    assert value_of(more, "stepscope_gpu_fan_speed_ratio", gpu="0") == 0.4
    assert value_of(more, "stepscope_torch_memory_allocated_bytes", rank="0") == 2**30


def test_the_options_of_one_run_do_not_change_another() -> None:
    state = full_state()
    state.add_run("other-1", Options(names="prefixed"))
    state.begin(process(run_id="other-1", name="other"))
    state.take(rows({"loss": [1.0]}, run_id="other-1"))
    text = text_of(state)
    assert {dict(labels)["run"] for labels in samples_of(text)["training_loss"]} == {"mnist"}
    assert {dict(labels)["run"] for labels in samples_of(text)["stepscope_training_loss"]} == {"other"}


@pytest.mark.parametrize(
    "name", ['a "quoted" run', "two\nlines", "back\\slash", "tör…🙂", "\ud800 half", "", "x" * 9000]
)
def test_any_name_of_a_run_is_a_label_that_can_be_read_back(name: str) -> None:
    state = LiveState(now=lambda: NOW_S)
    state.begin(process(name=name or "_", project=name))
    state.take(rows({"loss": [1.0]}))
    for accept in ("", OPENMETRICS):
        [labels] = samples_of(text_of(state, accept))["training_loss"]
        shown = dict(labels)["run"]
        expected = (name or "_").encode("utf-8", "replace").decode()
        assert shown == expected if len(name) <= 200 else shown.startswith("x" * 191 + "_")


def test_long_names_that_differ_at_their_end_are_two_series() -> None:
    state = LiveState(now=lambda: NOW_S)
    state.add_run(RUN, Options(user_metrics=("*",)))
    state.begin(process())
    state.take(rows({f"{'y' * 250}a": [1.0], f"{'y' * 250}b": [2.0]}))
    assert sorted(samples_of(text_of(state))["stepscope_user_metric"].values()) == [1.0, 2.0]


def test_runs_are_served_for_ten_minutes_after_their_end() -> None:
    state = full_state()
    for rank in (0, 1):
        state.begin(process(rank, status="finished", ended_ns=int((NOW_S - 590) * NS)))
    text = text_of(state)
    assert value_of(text, "training_loss", rank="0") == 0.6
    # Without it, a run that has ended would look like one that hangs.
    assert "stepscope_last_step_timestamp_seconds" not in names_in(text)
    for rank in (0, 1):
        state.begin(process(rank, status="finished", ended_ns=int((NOW_S - 610) * NS)))
    assert "training_loss" not in names_in(text_of(state))


def test_of_very_many_runs_the_newest_are_served() -> None:
    state = LiveState(now=lambda: NOW_S)
    for number in range(MAX_RUNS + 5):
        began_ns = int((NOW_S - 1000 + number) * NS)
        state.begin(process(run_id=f"r{number}", name=f"r{number}", started_ns=began_ns, last_ns=began_ns))
        state.take(rows({"loss": [1.0]}, run_id=f"r{number}", at_s=NOW_S - 900 + number))
    served = {dict(labels)["run"] for labels in samples_of(text_of(state))["training_loss"]}
    assert served == {f"r{number}" for number in range(5, MAX_RUNS + 5)}


def test_runs_that_nobody_scrapes_are_forgotten_after_their_end() -> None:
    state = LiveState(now=lambda: NOW_S)
    for number in range(5 * MAX_RUNS):
        ended = {"status": "finished", "ended_ns": int((NOW_S - 700) * NS)}
        state.begin(process(run_id=f"r{number}", name=f"r{number}", **ended))
    assert len(state.run_ids()) <= 2 * MAX_RUNS


@pytest.mark.parametrize("first", [0, 1])
def test_the_number_of_steps_is_the_same_where_the_first_one_is_number_one(first: int) -> None:
    state = LiveState(now=lambda: NOW_S)
    state.begin(process())
    state.take(rows({"step_seconds": [0.1] * 5}, step=first))
    text = text_of(state)
    assert value_of(text, "training_steps_total") == 5.0
    assert value_of(text, "stepscope_training_progress_ratio") == 0.05
    state.begin(process(segment="s2", started_ns=int(NOW_S * NS), pid=7))
    later = rows({"step_seconds": [0.1]}, step=first + 5)
    state.take(replace(later, source=replace(later.source, segment="s2")))
    assert value_of(text_of(state), "training_steps_total") == 6.0


def test_a_resumed_run_continues_its_counter_and_drops_ranks_that_are_gone() -> None:
    state = full_state()
    state.begin(process(segment="s2", started_ns=int(NOW_S * NS), pid=7))
    later = rows({"step_seconds": [0.5], "loss": [0.4]}, step=1)
    state.take(replace(later, source=replace(later.source, segment="s2")))
    text = text_of(state)
    assert value_of(text, "training_steps_total") == 2.0
    assert value_of(text, "training_loss") == 0.4


def test_processes_of_an_earlier_start_that_are_still_live_change_nothing() -> None:
    state = LiveState(now=lambda: NOW_S)
    state.begin(process())
    state.begin(process(segment="s2", started_ns=int(NOW_S * NS), pid=7))
    later = rows({"loss": [0.4]}, step=1)
    state.take(replace(later, source=replace(later.source, segment="s2")))
    state.begin(process())
    state.take(rows({"loss": [9.0]}, step=8))
    text = text_of(state)
    assert value_of(text, "training_loss") == 0.4
    assert value_of(text, "training_steps_total") == 2.0


def test_losses_with_numbers_of_their_own_do_not_change_the_number_of_steps() -> None:
    state = LiveState(now=lambda: NOW_S)
    state.begin(process())
    for step in range(4):
        state.take(rows({"loss": [0.5]}, step=10 * step))
        state.take(rows({"step_seconds": [0.1]}, step=step, at_s=NOW_S + 10 * step))
    assert value_of(text_of(state), "training_steps_total") == 4.0


def test_notices_are_counted_once_when_a_run_is_forgotten_and_begins_again() -> None:
    now_s = NOW_S
    state = LiveState(now=lambda: now_s)
    state.begin(process())
    notices = [{"channel": "mail", "sent_ns": int((NOW_S + 1) * NS), "given_up_ns": None}]
    for _ in range(2):
        state.set_verdicts(RUN, [], [], notices)
    assert value_of(text_of(state), ALERTS_SENT, channel="mail", result="sent") == 1.0
    state.begin(process(status="failed", ended_ns=int((NOW_S + 2) * NS)))
    now_s += 10_000
    assert "stepscope_run_info" not in names_in(text_of(state))
    state.begin(process(segment="s2", started_ns=int(now_s * NS), pid=7))
    failed = {"channel": "mail", "sent_ns": None, "given_up_ns": int((now_s + 1) * NS)}
    state.set_verdicts(RUN, [], [], [*notices, failed])
    counts = samples_of(text_of(state))[ALERTS_SENT]
    assert {dict(labels)["result"]: count for labels, count in counts.items()} == {"sent": 1.0, "failed": 1.0}


def test_a_version_that_cannot_be_compared_gets_the_plain_format() -> None:
    text = text_of(full_state(), "application/openmetrics-text; version=one")
    assert value_of(text, "training_loss", rank="0") == 0.6


def test_without_any_figure_it_says_so_instead_of_being_empty() -> None:
    assert value_of(text_of(LiveState()), "stepscope_up") == 0.0
    assert value_of(text_of(full_state()), "stepscope_up") == 1.0


def test_a_machine_that_no_longer_answers_is_not_served() -> None:
    state = LiveState(now=lambda: NOW_S)
    state.take(rows({"cpu/utilization_ratio": [0.5]}, None, at_s=NOW_S - 300))
    assert "cpu_usage_percent" not in names_in(text_of(state))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"names": "all"}, "must be one of required, prefixed, both"),
        ({"base_units": "yes"}, "must be true or false"),
        ({"buckets": [1, 1]}, "growing numbers of seconds"),
        ({"buckets": []}, "growing numbers of seconds"),
        ({"buckets": [0.1, "1"]}, "growing numbers of seconds"),
        ({"user_metrics": "val/loss"}, "must be a list of keys"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_right(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        options_in(options)


@needs_promtool
def test_promtool_objects_only_to_the_units_of_names_that_are_fixed() -> None:
    checked = subprocess.run(
        [str(ENGINE), "check", "metrics"],
        input=text_of(full_state()),
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = {
        line.split()[0]: line for line in (checked.stdout + checked.stderr).split("\n") if line.strip()
    }
    assert complaints.keys() == {
        "gpu_memory_mb",
        "gpu_memory_used_mb",
        "gpu_memory_total_mb",
        "memory_allocation_mb",
    }
    assert all("abbreviated units" in line for line in complaints.values())


def test_the_page_lists_every_name_with_its_labels_and_its_other_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        row = f"| `{family.name}` | {family.kind} | {labels} | {family.help.rstrip('.')} |"
        assert row in page, f"Add to docs/prometheus.md: {row}"
        assert family.twin in page


def test_names_with_a_prefix_have_base_units() -> None:
    prefixed = [family for family in FAMILIES if family.name.startswith(families.PREFIX)]
    assert [family.name for family in prefixed if family.factor != 1.0] == []
