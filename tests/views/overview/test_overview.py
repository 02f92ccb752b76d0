"""The overview page of a run, also of runs with little data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.config.sections import Energy
from stepscope.views.overview.missing import NO_MONITOR, NO_STEPS
from stepscope.views.overview.overview import Overview, overview_of
from stepscope.views.runs.marks import NoMarks, Note
from stepscope.views.runs.run_rows import run_row
from tests.views.made import BEGUN_S, RUN, Made, OwnMarks, as_json, at, trained

NOW = at(200)
GIB = 2**30


def page(made: Made, now: int = NOW, **marks: object) -> Overview:
    return overview_of(made.run(), OwnMarks(**marks), now)


def tiles(made: Made, now: int = NOW) -> dict[str, object]:
    return {tile.id: tile for tile in page(made, now).tiles}


def missing(made: Made) -> dict[str, str]:
    return {missing_part.what: missing_part.why for missing_part in page(made).missing}


def test_the_json_has_the_fields_that_the_page_reads(made: Made) -> None:
    made.process(status="failed", reason="ValueError: nan")
    trained(made)
    made.alert("rule", resolved=20)
    made.event("checkpoint", step=3, path="x")
    page_json = as_json(page(made))
    assert " ".join(page_json) == (
        "verdict tiles targets phases wall_time key_charts system_charts events event_counts alerts "
        "environment ended waiting_s missing"
    )
    assert " ".join(page_json["tiles"][0]) == "id title value detail state state_text spark change chart"
    assert " ".join(page_json["key_charts"][0]) == "title keys unit kind second_axis from_zero percent per"
    assert " ".join(page_json["events"][0]) == "kind time step end_time rank label detail"
    assert " ".join(page_json["ended"]) == (
        "status text last_step failure last_loss log_lines duration_s energy_kwh cost best changed"
    )
    assert " ".join(page_json["verdict"]) == "id headline severity confidence steps tries"
    assert page_json["missing"][0].keys() == {"what", "why"}
    assert page_json["environment"][0].keys() == {"label", "value"}


def test_a_live_run_without_a_step_shows_its_waiting_time(made: Made) -> None:
    made.process(end=None)
    overview = page(made, at(14))
    assert overview.waiting_s == pytest.approx(14.0)
    assert [tile.state for tile in overview.tiles] == ["unknown"] * 4
    assert (overview.phases, overview.key_charts, overview.events, overview.ended) == ((), (), (), None)
    made.log({"loss": [1.0]})
    assert page(made, at(14)).waiting_s is None


def test_a_run_of_one_step_shows_what_is_known(made: Made) -> None:
    made.process()
    made.log({"step_seconds": [0.5], "loss": 2.0})
    tiles_by_id = tiles(made)
    assert tiles_by_id["step_time"].value == "500 ms"
    assert tiles_by_id["throughput"].value == "–"
    assert tiles_by_id["throughput"].change is None
    assert page(made).verdict.headline == "Too short to judge: 1 step; 20 are needed."


def test_few_steps_have_no_percentiles_and_are_not_called_even(made: Made) -> None:
    made.process()
    made.log({"step_seconds": np.full(19, 0.5)})
    tile = tiles(made)["step_time"]
    assert (tile.value, tile.detail) == ("500 ms", ())
    assert (tile.state, tile.state_text) == ("unknown", "too few steps to judge")
    assert run_row(made.run(), NoMarks(), NOW).steps_per_second == 2


def test_a_run_of_one_step_has_no_step_rate_in_the_list_either(made: Made) -> None:
    made.process()
    made.log({"step_seconds": [0.5]})
    assert run_row(made.run(), NoMarks(), NOW).steps_per_second is None
    assert page(made).verdict.id == "few_steps"


def test_a_run_recorded_by_a_monitor_has_a_full_overview(folder: Path) -> None:
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="real", directory=folder) as monitor:
        for step in monitor.batches(range(40)):
            monitor.log_training_step(loss=1.0 / (step + 1), learning_rate=0.1)
    store = stepscope.open_store(folder)
    overview = overview_of(store.run("real"), NoMarks(), at(0) + 10**12)
    store.close()
    assert [chart.title for chart in overview.key_charts] == ["Step time by phase", "Loss"]
    # The chart shows whole steps, of which the phases are a part.
    assert overview.key_charts[0].keys == ("phase/data_seconds", "step_seconds")
    assert overview.key_charts[1].second_axis == ("learning_rate",)
    assert overview.ended.text.startswith("Finished after")
    assert overview.ended.best == "loss 0.025 at step 39"
    assert {fact.label for fact in overview.environment} >= {"Python", "Hosts", "Command"}
    assert "Step phases" in {missing_part.what for missing_part in overview.missing}


class TestTiles:
    def test_throughput_is_compared_with_the_first_steps_after_warm_up(self, made: Made) -> None:
        made.process()
        made.log({"step_seconds": np.r_[np.full(10, 9.0), np.full(490, 0.1), np.full(500, 0.2)], "loss": 1.0})
        tile = tiles(made)["throughput"]
        assert tile.change.ratio == pytest.approx(-0.5)
        assert tile.change.text == "50% slower than its first 200 steps after warm-up"
        assert (tile.state, tile.state_text) == ("none", tile.change.text)
        assert tile.chart == "step_seconds"

    @pytest.mark.parametrize(
        ("now_s", "state", "text"),
        [
            (0.102, "ok", "as fast as its first 200 steps after warm-up"),
            (0.112, "none", "11% slower than its first 200 steps after warm-up"),
            (0.130, "none", "23% slower than its first 200 steps after warm-up"),
        ],
    )
    def test_throughput_shows_its_change_once(self, made: Made, now_s: float, state: str, text: str) -> None:
        made.process()
        made.log({"step_seconds": np.r_[np.full(500, 0.1), np.full(500, now_s)], "loss": 1.0})
        tile = tiles(made)["throughput"]
        assert (tile.state, tile.state_text, tile.change.text) == (state, text, text)

    def test_a_large_speed_up_is_shown_as_a_factor(self, made: Made) -> None:
        made.process()
        made.log({"step_seconds": np.r_[np.full(500, 3.0), np.full(500, 0.5)]})
        assert tiles(made)["throughput"].change.text == "6 times as fast as its first 200 steps after warm-up"

    def test_throughput_counts_samples_of_all_ranks_where_they_are_known(self, made: Made) -> None:
        for rank in (0, 1):
            made.process(rank=rank, pid=rank)
            made.log(
                {"step_seconds": np.full(100, 0.5), "batch/samples": 32.0, "batch/tokens": 4096.0}, rank=rank
            )
        tile = tiles(made)["throughput"]
        assert tile.value == "128 samples/s"
        assert tile.detail == ("16,384 tokens/s", "2 steps/s", "p50 500 ms a step")

    def test_a_stalled_run_has_no_throughput(self, made: Made) -> None:
        made.process(end=None, status="stalled")
        trained(made)
        assert tiles(made)["throughput"].state_text == "no steps at the moment"

    def test_step_time_names_the_slowest_rank(self, made: Made) -> None:
        for rank in range(4):
            made.process(rank=rank, pid=rank)
            made.log({"step_seconds": np.full(100, 0.1 if rank != 2 else 0.2)}, rank=rank)
        tile = tiles(made)["step_time"]
        assert tile.detail[1] == "slowest rank 2: 200 ms (100% slower)"
        assert tile.state == "none"

    def test_step_time_names_the_rank_that_the_others_wait_for(self, made: Made) -> None:
        for rank, (wait, forward) in enumerate(((0.05, 0.01), (0.05, 0.01), (0.001, 0.06))):
            made.process(rank=rank, pid=rank)
            seconds = np.full(100, 0.13)
            phases = {"phase/forward_seconds": forward, "phase/backward_seconds": 0.06}
            made.log({**phases, "ranks/wait_seconds": wait, "step_seconds": seconds, "loss": 1.0}, rank=rank)
        tile = tiles(made)["step_time"]
        assert (tile.state, tile.state_text) == ("warn", "the others wait for rank 2")

    def test_step_time_names_no_rank_where_ranks_are_as_fast_as_each_other(self, made: Made) -> None:
        for rank in range(2):
            made.process(rank=rank, pid=rank)
            made.log({"step_seconds": np.full(100, 0.1 + rank / 1000)}, rank=rank)
        assert len(tiles(made)["step_time"].detail) == 1

    def test_steps_that_the_check_finds_slower_are_a_warning_of_the_tile_and_the_verdict(
        self, made: Made
    ) -> None:
        made.process()
        seconds = np.linspace(0.1, 0.2, 1000) + np.random.default_rng(0).normal(0, 0.002, 1000)
        made.log({"step_seconds": seconds, "batch/samples": 32.0, "loss": 1.0})
        overview = page(made)
        tile = next(tile for tile in overview.tiles if tile.id == "throughput")
        assert overview.verdict.id == "step.creep"
        assert (tile.state, tile.state_text) == ("warn", overview.verdict.headline)

    def test_uneven_steps_are_reported(self, made: Made) -> None:
        made.process()
        made.log({"step_seconds": np.where(np.arange(400) % 10 == 0, 1.0, 0.1)})
        tile = tiles(made)["step_time"]
        assert (tile.value, tile.state) == ("100 ms", "warn")
        assert tile.state_text == "uneven: p95 is 10 × p50"

    def test_eight_gpus_show_their_mean_and_the_worst_by_name(self, made: Made) -> None:
        made.process()
        for index in range(8):
            used = {"gpu/memory_used_bytes": (10 + index) * GIB, "gpu/memory_total_bytes": 80 * GIB}
            power = {"gpu/power_watts": 300.0, "gpu/power_limit_watts": 700.0}
            energy = {"gpu/energy_joules_total": np.arange(100) * 300.0}
            busy = 0.1 if index == 5 else 0.9
            made.read({"gpu/utilization_ratio": busy, **used, **power, **energy}, device=made.gpu(index))
        tiles_by_id = tiles(made)
        assert (tiles_by_id["gpu"].title, tiles_by_id["gpu"].value) == ("8 GPUs", "80%")
        assert tiles_by_id["gpu"].detail == ("worst gpu 5: 10%", "2,400 W of 5,600 W · 66 Wh")
        assert (tiles_by_id["gpu"].state, tiles_by_id["gpu"].state_text) == (
            "warn",
            "gpu 5 is less busy than the others",
        )
        assert tiles_by_id["memory"].value == "17 GiB of 80 GiB"
        assert tiles_by_id["memory"].detail == ("peak of gpu 7", "63 GiB left")

    def test_without_a_gpu_the_cpu_and_host_memory_are_shown(self, made: Made) -> None:
        made.process()
        host = {"cpu/utilization_ratio": 0.42, "cpu/iowait_ratio": 0.1, "memory/total_bytes": 16 * GIB}
        made.read(host)
        made.read({"process/rss_bytes": 15.7 * GIB}, rank=0)
        tiles_by_id = tiles(made)
        assert (tiles_by_id["gpu"].title, tiles_by_id["gpu"].value) == ("CPU", "42%")
        assert tiles_by_id["gpu"].detail == ("no GPU was seen", "waiting for disks 10%")
        assert (tiles_by_id["gpu"].state, tiles_by_id["gpu"].state_text) == ("none", "of the whole machine")
        assert (tiles_by_id["memory"].value, tiles_by_id["memory"].state) == ("15.7 GiB of 16 GiB", "bad")

    def test_headroom_and_free_memory_agree_if_other_programs_use_memory(self, made: Made) -> None:
        made.process()
        made.read({"memory/total_bytes": 20 * GIB, "memory/used_bytes": 2 * GIB})
        made.read({"process/rss_bytes": 0.2 * GIB}, rank=0)
        tile = tiles(made)["memory"]
        assert (tile.state_text, tile.detail[1]) == ("90% headroom", "18 GiB left")

    def test_the_limit_that_is_reached_first_is_judged(self, made: Made) -> None:
        made.process()
        limits = {"memory/total_bytes": 20 * GIB, "memory/cgroup_limit_bytes": 16 * GIB}
        made.read({**limits, "memory/used_bytes": 19 * GIB})
        made.read({"process/rss_bytes": 4 * GIB}, rank=0)
        tile = tiles(made)["memory"]
        assert (tile.value, tile.state_text, tile.detail[1]) == ("4 GiB of 20 GiB", "95% full", "1 GiB left")

    def test_a_memory_leak_is_shown_with_the_remaining_time(self, made: Made) -> None:
        made.process(end=None)
        grows = 4 * GIB + np.arange(600) * 10 * 2**20 + np.random.default_rng(0).normal(0, 2**20, 600)
        made.read({"process/uss_bytes": grows, "process/rss_bytes": grows}, 600, rank=0)
        made.read({"memory/total_bytes": 16 * GIB}, 600)
        tile = tiles(made, at(600))["memory"]
        assert tile.state == "bad"
        assert tile.state_text.startswith("Process memory grows by 35.")
        assert "will be full in" in tile.state_text

    def test_reserved_but_unused_memory_is_shown(self, made: Made) -> None:
        made.process()
        made.log({"memory/reserved_bytes": np.full(10, 20 * GIB), "memory/peak_bytes": 10 * GIB})
        used = {"gpu/memory_used_bytes": 20 * GIB, "gpu/memory_total_bytes": 80 * GIB}
        made.read({**used, "gpu/utilization_ratio": 0.9}, device=made.gpu(0))
        assert "10 GiB reserved but unused" in tiles(made)["memory"].detail


class TestVerdict:
    def test_a_finding_is_the_verdict(self, made: Made) -> None:
        made.process()
        made.finding("input.exposed_wait", "critical", headline="Input-bound: 41%")
        assert page(made).verdict.headline == "Input-bound: 41%"
        assert page(made, muted=["input.exposed_wait"]).verdict.id == "few_steps"

    @pytest.mark.parametrize(
        ("fields", "loss", "expected"),
        [
            (
                {"status": "failed", "reason": "RuntimeError: x"},
                1.0,
                ("status.failed", "The run failed: RuntimeError: x."),
            ),
            (
                {},
                1.0,
                (
                    "unmeasured",
                    ("No problem found by 5 checks; 11 could not run. Phases of steps are not timed."),
                ),
            ),
            ({"role": "machine"}, 1.0, ("machine", "This machine is monitored without a training run.")),
        ],
    )
    def test_without_findings_a_bad_run_is_not_called_fine(
        self, made: Made, fields: dict, loss: float, expected: tuple[str, str]
    ) -> None:
        made.process(**fields)
        made.log({"loss": np.full(100, loss)})
        verdict = page(made).verdict
        assert (verdict.id, verdict.headline) == expected
        assert verdict.severity == ("critical" if expected[0].startswith("status.") else "unknown")

    def test_a_long_wait_for_data_is_not_a_good_verdict(self, made: Made) -> None:
        made.process()
        trained(made, data=0.01)
        verdict = page(made).verdict
        assert (verdict.id, verdict.severity) == ("input.exposed_wait", "warning")

    def test_losses_that_are_not_finite_come_first_in_the_verdict(self, made: Made) -> None:
        made.process()
        made.log({"loss": np.full(100, np.nan)})
        verdict = page(made).verdict
        assert (verdict.id, verdict.severity) == ("num.nonfinite", "critical")

    def test_an_early_loss_that_was_not_finite_stays_in_the_verdict(self, made: Made) -> None:
        made.process()
        made.log({"loss": np.where(np.arange(4000) == 7, np.nan, 1.0), "step_seconds": np.full(4000, 0.01)})
        verdict = page(made).verdict
        assert (verdict.id, verdict.severity) == ("loss.nonfinite", "warning")
        assert verdict.headline == "1 loss is not finite."

    def test_the_verdict_of_a_failed_run_starts_with_the_failure(self, made: Made) -> None:
        made.process(status="failed", reason="RuntimeError: x")
        made.finding("input.exposed_wait", "warning", headline="41% of each step waits for data.")
        verdict = page(made).verdict
        assert (verdict.id, verdict.severity) == ("status.failed", "critical")
        headline = "The run failed: RuntimeError: x. Before that: 41% of each step waits for data."
        assert verdict.headline == headline

    def test_list_page_and_comparison_show_the_same_verdict(self, made: Made) -> None:
        made.process(status="crashed", reason="process 12 was killed")
        trained(made, data=0.01)
        made.finding("input.exposed_wait", "warning", headline="41% of each step waits for data.")
        row = run_row(made.run(), NoMarks(), NOW)
        assert row.verdict == page(made).verdict
        assert row.verdict.id == "status.crashed"

    def test_a_fixed_wait_is_not_a_problem_of_the_newest_steps(self, made: Made) -> None:
        made.process()
        waits = np.where(np.arange(4000) < 1500, 0.02, 0.0001)
        made.log({"step_seconds": 0.005 + waits, "phase/data_seconds": waits})
        verdict = page(made).verdict
        assert (verdict.id, verdict.severity) == ("unexplained", "unknown")
        assert verdict.headline.startswith("No problem found by ")
        assert "of the time since the first step is between steps" in verdict.headline


class TestEvents:
    def test_epochs_checkpoints_resumes_alerts_and_notes_are_marked_in_order(self, made: Made) -> None:
        made.process(end=40, status="crashed", reason="killed")
        made.process(segment="b2", started_ns=at(60), end=160)
        made.log({"loss": 1.0, "epoch": np.arange(40) // 20}, np.arange(40))
        made.event("checkpoint", 30, step=29, path="ckpt/29")
        made.alert("loss_rises", fired=35, resolved=39, message="It rises.", step=34)
        made.read({"gpu/throttled_hardware_thermal": np.arange(100) >= 90}, device=made.gpu(0), segment="b2")
        made.event("console", 5, text="not a moment")
        note = Note(1, RUN, 5, None, "look here", BEGUN_S + 100.0)
        events = page(made, notes=(note,)).events
        assert [(mark.kind, mark.label) for mark in events] == [
            ("epoch", "epoch 1"),
            ("checkpoint", "checkpoint"),
            ("alert", "loss_rises"),
            ("resume", "resumed"),
            ("throttling", "gpu 0 throttled"),
            ("note", "look here"),
        ]
        assert events[0].step == 20
        assert events[2].end_time == BEGUN_S + 39
        assert events[3].detail == "after it crashed: killed"
        assert (events[4].time, events[4].end_time) == (BEGUN_S + 90, BEGUN_S + 99)

    def test_timed_evaluations_and_checkpoints_are_marked_without_events(self, made: Made) -> None:
        made.process()
        checkpoint = np.where(np.arange(100) == 50, 2.0, 0.0)
        trained(made, 100, checkpoint=checkpoint)
        made.log({"phase/eval_seconds": [3.0]}, [70], begin=90)
        events = {mark.kind: mark for mark in page(made).events}
        assert (events["checkpoint"].step, events["checkpoint"].detail) == (50, "2 s")
        assert events["evaluation"].end_time - events["evaluation"].time == pytest.approx(3.0)

    def test_frequent_events_are_thinned_out_evenly_and_all_counted(self, made: Made) -> None:
        made.process()
        for step in range(500):
            made.event("epoch", step, step=step, epoch=step)
        made.event("checkpoint", 7, step=7)
        overview = page(made)
        epochs = [mark for mark in overview.events if mark.kind == "epoch"]
        assert (len(epochs), epochs[0].label, epochs[-1].label) == (200, "epoch 0", "epoch 499")
        gaps = np.diff([mark.step for mark in epochs])
        assert set(gaps.tolist()) == {2, 3}
        assert overview.event_counts == {"epoch": 500, "checkpoint": 1}

    def test_timed_evaluations_of_a_long_run_are_thinned_out_evenly_and_counted(self, made: Made) -> None:
        made.process()
        made.log({"loss": np.ones(1000), "phase/eval_seconds": np.full(1000, 0.1)})
        overview = page(made)
        steps = [mark.step for mark in overview.events]
        assert (len(steps), steps[0], steps[-1]) == (200, 0, 999)
        assert overview.event_counts == {"evaluation": 1000}


class TestEnded:
    def test_a_crash_is_shown_with_its_reason_and_last_lines(self, made: Made) -> None:
        made.process(end=90, status="failed", reason="ValueError: loss is nan")
        made.process(role="launcher", rank=0, pid=1, end=90, status="failed")
        made.log({"loss": np.linspace(2, 1, 80)})
        made.event("console", 89, text="\n".join(f"line {number}" for number in range(50)), left_out=False)
        ended = page(made).ended
        assert ended.text == "Failed after 1 min 30 s at step 79."
        assert (ended.failure.reason, ended.last_step) == ("ValueError: loss is nan", 79)
        assert ended.log_lines == tuple(f"line {number}" for number in range(30, 50))
        assert ended.best == "loss 1 at step 79"

    def test_the_best_loss_of_a_resumed_run_equals_that_of_the_list(self, made: Made) -> None:
        made.process(status="failed", end=60)
        made.process(segment="b2", started_ns=at(70), end=160)
        made.log({"loss": 1 / (1 + np.arange(120))}, np.arange(120))
        again = np.arange(100, 300)
        made.log({"loss": 1 / (1 + again) + 0.01}, again, segment="b2", begin=70)
        assert page(made).ended.best == "loss 0.008333 at step 119"
        assert run_row(made.run(), NoMarks(), NOW).loss_best == pytest.approx(1 / 120)

    def test_the_best_step_of_a_long_run_is_exact(self, made: Made) -> None:
        made.process()
        losses = np.full(5000, 2.0)
        losses[[3217, 3218]] = 0.5, 0.25
        made.log({"loss": losses}, np.arange(5000) * 977)
        assert page(made).ended.best == f"loss 0.25 at step {3218 * 977:,}"

    @pytest.mark.parametrize(("last", "expected"), [(1.79e22, "1.79e22"), (0.25, "0.25"), (np.nan, "NaN")])
    def test_the_last_loss_is_shown_next_to_the_best(self, made: Made, last: float, expected: str) -> None:
        made.process()
        made.log({"loss": [1.0, 0.5, last]})
        assert page(made).ended.last_loss == expected

    def test_changes_in_the_last_minute_before_a_crash_are_shown(self, made: Made) -> None:
        made.process(end=600, status="crashed", reason="killed")
        rng = np.random.default_rng(0)
        full = np.where(np.arange(600) < 570, 8.0, 15.0) * GIB + rng.normal(0, 1e6, 600)
        made.read({"memory/used_bytes": full, "cpu/utilization_ratio": 0.5 + rng.normal(0, 0.01, 600)}, 600)
        loss = rng.normal(1.0, 0.1, 600)
        loss[-1] = np.nan
        made.log({"loss": loss, "grad": rng.normal(1.0, 0.1, 600)})
        changed = page(made, at(700)).ended.changed
        assert changed[0] == "loss was no longer finite"
        assert changed[1:] == ("memory/used_bytes rose from 8 GiB to 15 GiB",)

    def test_a_run_that_ended_well_has_nothing_to_explain(self, made: Made) -> None:
        made.process()
        trained(made)
        ended = page(made).ended
        assert (ended.failure, ended.changed, ended.energy_kwh, ended.cost) == (None, (), None, None)

    def test_energy_and_cost_use_the_given_prices(self, made: Made) -> None:
        made.process(end=100)
        gpu = made.gpu(0)
        made.read(
            {"gpu/energy_joules_total": np.arange(101) * 3600.0, "gpu/utilization_ratio": 1.0},
            101,
            device=gpu,
        )
        made.read({"gpu/process_memory_bytes": 1.0}, 101, device=gpu, rank=0)
        prices = Energy(gpu_price_per_hour={"NVIDIA H200": 36.0})
        ended = overview_of(made.run(), NoMarks(), NOW, energy=prices).ended
        assert ended.energy_kwh == pytest.approx(0.1, rel=0.02)
        assert ended.cost == "1.00 USD (cloud)"


class TestMissing:
    def test_missing_parts_are_listed_with_instructions(self, made: Made) -> None:
        made.process(end=None)
        made.log({"accuracy": np.ones(5)})
        reasons = missing(made)
        assert "monitor.batches(loader)" in reasons["Step time"]
        assert "monitor.watch(model, optimizer)" in reasons["Step phases"]
        assert "log_training_step(loss=loss)" in reasons["Loss"]
        assert "total_steps" in reasons["Time left"]
        assert "stepscope run" in reasons["Console"]
        assert reasons["GPU"] == "no GPU was seen on its hosts"

    def test_a_recorded_reason_is_shown(self, made: Made) -> None:
        made.process()
        made.event("notice", host="node1", text="The driver of the GPU is not loaded.")
        assert missing(made)["GPU"] == "The driver of the GPU is not loaded."

    def test_a_monitor_without_steps_gets_no_hint_to_add_a_monitor(self, made: Made) -> None:
        made.process()
        assert missing(made)["Steps"] == NO_STEPS
        made.process("bare-1", role="launcher")
        bare = overview_of(made.run("bare-1"), NoMarks(), NOW)
        assert {missing_part.what: missing_part.why for missing_part in bare.missing}["Steps"] == NO_MONITOR

    def test_a_watched_machine_lacks_only_training(self, made: Made) -> None:
        made.process(role="machine", end=None)
        made.read({"cpu/utilization_ratio": 0.5, "memory/used_bytes": GIB})
        assert list(missing(made)) == ["Training"]
        overview = page(made)
        assert [chart.title for chart in overview.system_charts] == ["CPU", "Host memory"]
        assert overview.waiting_s is None


def test_the_environment_shows_hardware_and_software(made: Made) -> None:
    facts = {
        "libraries": {"torch": "2.9.0+cu128"},
        "python": "3.11",
        "world_size": 2,
        "commit": "0123456789abcdef",
    }
    for rank in (0, 1):
        made.process(rank=rank, pid=rank, facts=facts)
        trained(made, rank=rank)
        made.read({"gpu/utilization_ratio": 0.9}, device=made.gpu(rank))
    made.event(
        "census",
        parameters=1_000_000,
        autocast="cuda bfloat16",
        compiled=True,
        wrappers=["DistributedDataParallel"],
    )
    made.event("loader", batch_size=32, num_workers=4)
    made.log({"micro_steps": [4.0]})
    facts_by_label = {fact.label: fact.value for fact in page(made).environment}
    assert facts_by_label["GPUs"] == "2 × NVIDIA H200 (80 GiB)"
    assert facts_by_label["Libraries"] == "torch 2.9.0+cu128"
    assert (facts_by_label["Driver"], facts_by_label["World size"], facts_by_label["Commit"]) == (
        "550.1",
        "2",
        "0123456789ab",
    )
    assert (facts_by_label["Precision"], facts_by_label["Model"]) == (
        "autocast cuda bfloat16",
        "1M parameters, compiled",
    )
    assert (facts_by_label["Batch"], facts_by_label["Loader workers"]) == (
        "32 × 4 accumulated on each of 2 ranks",
        "4",
    )


def test_hostile_names_and_numbers_can_be_shown(made: Made) -> None:
    made.process(
        reason="\u202e<b>", status="failed", facts={"command": ["\udcff"], "libraries": {"<x>": "\ud800"}}
    )
    made.log({"loss": [np.nan, np.inf, -np.inf], "x/<script>": 1e308, "phase/\u202e_seconds": np.inf})
    made.event("<img src=x>", 1, step=1, value="\ud800", big=10**400)
    made.alert("r\u202e", message="<script>", value=None, resolved=3)
    as_json(page(made))


def test_charts_are_chosen_from_the_keys_of_the_run(made: Made) -> None:
    made.process()
    made.log({"train/loss": [1.0], "val/loss": 2.0, "val/accuracy": 0.5, "gradient_norm": 3.0})
    made.read({"gpu/utilization_ratio": 0.5, "gpu/temperature_celsius": 60.0}, device=made.gpu(0))
    made.read({"disk/read_bytes_per_second": 5.0})
    overview = page(made)
    assert [(chart.title, chart.keys) for chart in overview.key_charts] == [
        ("Loss", ("train/loss",)),
        ("Gradient norm", ("gradient_norm",)),
        ("Evaluation loss", ("val/loss",)),
        ("Accuracy", ("val/accuracy",)),
    ]
    assert [chart.title for chart in overview.system_charts] == ["GPU utilization", "GPU temperature", "Disk"]
    assert overview.system_charts[0].percent
    assert overview.system_charts[0].per == "device"
