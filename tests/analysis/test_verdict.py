"""One function says how a run is doing: failures first, and healthy only with enough evidence."""

import re
from dataclasses import replace

import numpy as np
import pytest

from stepscope.analysis.large_shares import LargeShare
from stepscope.analysis.verdict import Checks, RunState, verdict_of
from tests.detectors.simulated import diagnose, going_well

ALL_RAN = Checks(6, is_timed=True, steady=500, examined=520, steps=(20, 519), pace="50 ms a step")
RUNNING = RunState(is_live=True, status="running", reason="", points=520)
WAIT = {"id": "input.exposed_wait", "severity": "warning", "headline": "A wait.", "share": 0.2}


def test_a_run_is_healthy_only_if_every_check_ran_and_no_large_share_is_unexplained():
    verdict = verdict_of([], ALL_RAN, RUNNING)
    assert (verdict.severity, verdict.headline) == (
        "ok",
        "Healthy: 6 checks passed (520 newest steps); 50 ms a step.",
    )
    not_all = verdict_of([], replace(ALL_RAN, passed=4, not_run=("host.gc", "step.creep")), RUNNING)
    assert (not_all.severity, not_all.headline) == (
        "unknown",
        "No problem found by 4 checks; 2 could not run. 50 ms a step.",
    )
    share = LargeShare(0.76, "76% of step time is outside the measured phases")
    unexplained = verdict_of([], replace(ALL_RAN, share=share), RUNNING)
    assert (unexplained.severity, unexplained.id) == ("unknown", "unexplained")
    assert unexplained.headline == f"No problem found by 6 checks. {share.sentence}."


def test_the_share_of_wall_time_replaces_that_of_the_checks():
    account = LargeShare(0.47, "47% of wall time is evaluation")
    verdict = verdict_of([], replace(ALL_RAN, share=LargeShare(0.3, "x")), RUNNING, account)
    assert verdict.headline.endswith("47% of wall time is evaluation.")


@pytest.mark.parametrize("status", ["failed", "crashed", "stalled"])
def test_a_failure_comes_before_all_findings(status):
    verdict = verdict_of([WAIT], ALL_RAN, replace(RUNNING, status=status, reason="out of memory"))
    assert (verdict.id, verdict.severity) == (f"status.{status}", "critical")
    assert verdict.headline.endswith("out of memory. Before that: A wait.")


def test_a_stall_is_described_by_its_finding_and_only_while_it_lasts():
    stall = {"id": "run.stall", "severity": "critical", "headline": "The training stopped after step 79."}
    diverges = {"id": "conv.diverging", "severity": "critical", "headline": "It diverges.", "share": 1.0}
    stalled = replace(RUNNING, status="stalled", reason="no record since 12:00 UTC")
    verdict = verdict_of([diverges, stall], ALL_RAN, stalled)
    assert (verdict.id, verdict.headline) == ("run.stall", "The training stopped after step 79.")
    assert verdict_of([stall], ALL_RAN, RUNNING).severity == "ok"
    assert verdict_of([stall], ALL_RAN, replace(RUNNING, status="crashed")).id == "status.crashed"


@pytest.mark.parametrize("reason", ["RuntimeError: worker died:", "RuntimeError: worker died."])
def test_a_reason_that_ends_in_a_mark_gets_one_full_stop(reason):
    failed = replace(RUNNING, is_live=False, status="failed", reason=reason)
    assert verdict_of([], ALL_RAN, failed).headline == "The run failed: RuntimeError: worker died."
    headline = verdict_of([WAIT], ALL_RAN, failed).headline
    assert headline == "The run failed: RuntimeError: worker died. Before that: A wait."


def test_losses_that_are_not_finite_come_before_lost_time():
    verdict = verdict_of([WAIT], ALL_RAN, replace(RUNNING, nonfinite_losses=3, is_last_loss_finite=False))
    assert (verdict.id, verdict.severity) == ("loss.nonfinite", "critical")
    assert verdict.headline == "3 losses are not finite. Also: A wait."


def test_a_wrong_result_comes_before_lost_time_of_the_same_severity():
    passed = {"id": "num.nonfinite", "severity": WAIT["severity"], "headline": "A NaN that passed."}
    assert verdict_of([WAIT, passed], ALL_RAN, RUNNING).headline == "A NaN that passed."


def test_a_run_without_checks_is_not_called_healthy():
    verdict = verdict_of([], None, RUNNING)
    assert (verdict.id, verdict.severity) == ("not_checked", "unknown")


def test_a_run_of_which_nothing_could_be_checked_says_so_once():
    verdict = verdict_of([], Checks(0, ("host.gc", "step.creep")), RUNNING)
    assert verdict.headline == "None of the 2 checks could run. Phases of steps are not timed."


def test_the_order_of_findings_is_that_of_the_verdict(tmp_path):
    run = going_well(1, 600)
    run["loss"][300:] = np.nan
    run["phase/data_seconds"] = run["phase/data_seconds"] + 0.05
    run["step_seconds"] = run["step_seconds"] + 0.05
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["num.nonfinite", "input.exposed_wait"]
    assert diagnosis.verdict.id == diagnosis.findings[0].id


def test_where_only_log_calls_are_known_the_verdict_says_that_phases_are_not_timed():
    verdict = verdict_of([], Checks(3, ("host.gc", "step.creep")), RUNNING)
    assert verdict.headline == "No problem found by 3 checks; 2 could not run. Phases of steps are not timed."


@pytest.mark.parametrize(
    ("points", "live", "ended"),
    [
        (
            0,
            "Too early to tell: no steps so far; 20 are needed.",
            "Too short to judge: no steps; 20 are needed.",
        ),
        (1, "Too early to tell: 1 step so far; 20 are needed.", "Too short to judge: 1 step; 20 are needed."),
        (
            9,
            "Too early to tell: 9 steps so far; 20 are needed.",
            "Too short to judge: 9 steps; 20 are needed.",
        ),
    ],
)
def test_a_run_of_few_steps_is_too_early_to_judge_while_it_is_live_and_too_short_after(points, live, ended):
    few = replace(RUNNING, points=points)
    assert verdict_of([], ALL_RAN, few).headline == live
    over = replace(few, is_live=False, status="finished")
    assert verdict_of([], ALL_RAN, over).headline == ended


def test_checks_can_be_stored_and_read_back():
    kept = replace(ALL_RAN, not_run=("a",), share=LargeShare(0.5, "half"))
    assert Checks.from_dict(kept.as_dict()) == kept


def test_time_outside_the_measured_phases_is_reported(tmp_path):
    run = going_well(1, 600)
    run["phase/other_seconds"] = run["phase/other_seconds"] + 0.15
    run["step_seconds"] = run["step_seconds"] + 0.15
    verdict = diagnose(tmp_path, run).verdict
    assert verdict.id == "unexplained"
    assert "of step time is outside the measured phases." in verdict.headline


def test_compilation_that_takes_most_of_the_time_is_reported(tmp_path):
    run = going_well(1, 300)
    run["compile/seconds"] = np.where(np.arange(300) == 2, 300.0, np.nan)
    run["step_seconds"][2] += 300
    assert "of the time since the first step was compilation." in diagnose(tmp_path, run).verdict.headline


def test_a_single_step_that_takes_most_of_the_time_is_reported(tmp_path):
    run = going_well(1, 300)
    run["step_seconds"][200] += 80
    verdict = diagnose(tmp_path, run).verdict
    assert verdict.id == "unexplained"
    assert re.search(r"of step time is step 200, which took 80\.\d s\.", verdict.headline)
    run["phase/checkpoint_seconds"] = np.where(np.arange(300) == 200, 80.0, 0.0)
    assert "which took" not in diagnose(tmp_path, run).verdict.headline


def test_a_spike_before_the_newest_steps_is_mentioned(tmp_path):
    run = going_well(1, 6000)
    run["loss"][2000] = 900.0
    [spike] = [check for check in diagnose(tmp_path, run).considered if check.id == "conv.spike"]
    assert "before them the loss was 900 near step" in spike.why_not
    assert spike.why_not.endswith("(2,048 newest steps checked).")


def ranks_with_one_late(late_s, steps=400):
    ranks = [going_well(seed, steps, step_s=0.012) for seed in range(4)]
    for number, rank in enumerate(ranks):
        rank["ranks/wait_seconds"] = np.full(steps, 0.0005 if number == 2 else 0.0005 + late_s)
        rank["phase/forward_seconds"] = np.full(steps, 0.003 + (late_s if number == 2 else 0))
        rank["step_seconds"] = np.full(steps, 0.012)
    return ranks


def test_a_late_rank_is_the_verdict(tmp_path):
    diagnosis = diagnose(tmp_path, *ranks_with_one_late(0.008))
    assert diagnosis.verdict.id == "dist.straggler"
    assert diagnosis.verdict.severity == "warning"
    headline = "The other ranks wait 8 ms of each 12 ms step for rank 2, mostly in forward."
    assert diagnosis.verdict.headline == headline


def test_ranks_that_are_alternately_late_have_no_straggler(tmp_path):
    ranks = ranks_with_one_late(0.0)
    for number, rank in enumerate(ranks):
        rank["ranks/wait_seconds"] = np.where(np.arange(400) % 4 == number, 0.0, 0.004)
    assert "dist.straggler" not in {finding.id for finding in diagnose(tmp_path, *ranks).findings}
