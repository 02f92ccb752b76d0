"""Healthy runs of every kind: no detector reports a finding."""

import re

import numpy as np
import pytest

from tests.detectors.simulated import SHAPES, diagnose, going_well


@pytest.mark.parametrize("steps", [120, 1200])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_run_has_no_findings(tmp_path, shape, steps):
    seed = SHAPES.index(shape)
    diagnosis = diagnose(tmp_path, going_well(seed, steps, shape=shape))
    assert [finding.headline for finding in diagnosis.findings] == []
    if steps == 120:
        assert (diagnosis.verdict.id, diagnosis.verdict.severity) == ("not_all_checked", "unknown")
        assert "could not run" in diagnosis.verdict.headline
        assert diagnosis.checks.not_run == ("hostmem.leak", "step.creep")
    else:
        assert (diagnosis.verdict.id, diagnosis.verdict.severity) == ("ok", "ok")
        assert re.match(r"Healthy: \d+ checks passed \(1,200 newest steps\); ", diagnosis.verdict.headline)


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_run_longer_than_a_window_has_no_findings(tmp_path, seed):
    diagnosis = diagnose(
        tmp_path, going_well(seed, 6000, shape=("usual", "restarts", "sawtooth", "noisy")[seed])
    )
    assert [finding.headline for finding in diagnosis.findings] == []
    assert diagnosis.verdict.steps == (6000 - 2048, 5999)


def test_a_restart_of_the_learning_rate_is_not_a_divergence(tmp_path):
    run = going_well(1, 1000, shape="plateau")
    number = np.arange(1000)
    run["learning_rate"] = 0.1 * (0.5 + 0.5 * np.cos(np.pi * (number % 500) / 500))
    run["loss"] = 0.05 + np.where(
        number < 500, 2.2 * np.exp(-number / 60), 0.6 * np.exp(-(number - 500) / 200)
    )
    assert diagnose(tmp_path, run).findings == ()


def test_norms_that_overflow_for_a_loss_scaler_are_not_a_finding(tmp_path):
    run = going_well(2, 400)
    run["gradient_norm"][200:208] = np.nan
    run["optimizer_skipped"] = np.where((np.arange(400) >= 200) & (np.arange(400) < 208), 1.0, np.nan)
    assert diagnose(tmp_path, run).findings == ()


def test_a_jump_of_step_time_is_not_a_slowdown(tmp_path):
    run = going_well(3, 1200)
    for key in ("phase/forward_seconds", "step_seconds"):
        run[key][600:] += 0.02
    assert diagnose(tmp_path, run).findings == ()


def test_slower_steps_with_larger_batches_are_not_a_slowdown(tmp_path):
    run = going_well(4, 1200)
    longer = 1 + 0.5 * np.arange(1200) / 1200
    for key in ("phase/forward_seconds", "phase/backward_seconds"):
        run["step_seconds"] = run["step_seconds"] + run[key] * (longer - 1)
        run[key] = run[key] * longer
    run["batch/tokens"] = np.where(np.arange(1200) % 7 == 0, np.round(4096 * longer), np.nan)
    assert diagnose(tmp_path, run).findings == ()


def test_a_wait_that_the_gpu_hides_is_not_a_finding(tmp_path):
    run = going_well(5, 600)
    run["phase/data_seconds"] = np.full(600, 0.02)
    run["step_seconds"] = run["step_seconds"] + 0.02
    chosen = np.arange(600) % 10 == 3
    run["device/data_seconds"] = np.where(chosen, 1e-5, np.nan)
    run["device/step_seconds"] = np.where(chosen, 0.07, np.nan)
    assert diagnose(tmp_path, run).findings == ()
