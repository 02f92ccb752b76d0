"""Batches that are copied to a GPU from pageable memory, and batches whose copies cost nothing."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

STEPS = 600


def copying(share, seed=1):
    """A run on a GPU whose copies take a share of the step on its clock."""
    run = going_well(seed, STEPS)
    chosen = np.arange(STEPS) % 5 == 2
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.1, STEPS))
    run["device/step_seconds"] = np.where(chosen, 0.05, np.nan)
    run["device/transfer_seconds"] = np.where(chosen, 0.05 * share * noise, np.nan)
    return run


def loader(**changes):
    fields = {"num_workers": 4, "batch_size": 64, "dataset": "Images", "persistent_workers": True}
    return (("loader", {**fields, "pin_memory": False, **changes}),)


def why_not(diagnosis):
    assert diagnosis.findings == ()
    return next(check.why_not for check in diagnosis.considered if check.id == "input.pageable_h2d")


@pytest.mark.parametrize(("share", "severity"), [(0.04, "notice"), (0.1, "warning"), (0.4, "warning")])
def test_copies_from_pageable_memory_are_reported_with_their_share(tmp_path, share, severity):
    [finding] = diagnose(tmp_path, copying(share), events=loader()).findings
    assert (finding.id, finding.severity) == ("input.pageable_h2d", severity)
    assert finding.share == pytest.approx(share, rel=0.1)
    assert finding.tries == ("pin_memory=True", "non_blocking=True")
    assert "pin_memory=True" in finding.remedies[0].code


@pytest.mark.parametrize("share", [0.0, 0.005, 0.015])
def test_copies_that_take_little_time_are_fine(tmp_path, share):
    assert "threshold: 2.0%" in why_not(diagnose(tmp_path, copying(share), events=loader()))


def test_copies_from_pinned_memory_are_fine(tmp_path):
    assert "pinned memory" in why_not(diagnose(tmp_path, copying(0.2), events=loader(pin_memory=True)))


def test_copies_of_an_unknown_loader_are_not_judged(tmp_path):
    diagnosis = diagnose(tmp_path, copying(0.2))
    assert diagnosis.findings == ()
    assert "input.pageable_h2d" in diagnosis.checks.not_run


def test_a_run_without_a_gpu_is_not_asked_for_copies(tmp_path):
    assert "Applies only" in why_not(diagnose(tmp_path, going_well(1, STEPS), events=loader()))
