"""Learning rates that no longer change the weights, and schedules as they should be."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

STEPS = 1000
NUMBER = np.arange(STEPS)

HEALTHY = {
    "constant": np.full(STEPS, 1e-3),
    "cosine": 5e-4 * (1 + np.cos(np.pi * NUMBER / (STEPS - 1))),
    "linear_with_warm_up": 1e-3 * np.minimum(NUMBER / 100, (STEPS - 1 - NUMBER) / (STEPS - 101)),
    "restarts": 5e-4 * (1 + np.cos(np.pi * (NUMBER % 250) / 250)),
    "exponential": 1e-3 * 0.01 ** (NUMBER / STEPS),
    "reduced_on_plateau": 1e-1 * 0.1 ** (NUMBER // 300),
    "zero_in_the_first_steps": np.where(NUMBER < 50, 0.0, 1e-3),
    "zero_at_the_end": np.where(NUMBER >= STEPS - 10, 0.0, 1e-3),
}


def with_rate(rates: np.ndarray) -> dict:
    run = going_well(1, len(rates), shape="plateau")
    run["learning_rate"] = rates
    return run


@pytest.mark.parametrize("name", HEALTHY)
def test_a_usual_schedule_is_no_finding(tmp_path, name):
    diagnosis = diagnose(tmp_path, with_rate(HEALTHY[name]))
    assert diagnosis.findings == ()
    [check] = [check for check in diagnosis.considered if check.id == "lr.schedule"]
    assert check.result == "passed"


@pytest.mark.parametrize("since", [0, 300, 900])
def test_a_rate_of_zero_is_found_with_the_step_it_began(tmp_path, since):
    [finding] = diagnose(tmp_path, with_rate(np.where(since <= NUMBER, 0.0, 1e-3))).findings
    assert (finding.id, finding.severity) == ("lr.schedule", "warning")
    assert finding.headline == f"The learning rate is zero, since step {since:,}."
    assert "scheduler" in finding.remedies[0].code


@pytest.mark.parametrize(("factor", "since", "severity"), [(0.95, 180, "warning"), (0.985, 610, "notice")])
def test_a_scheduler_that_is_stepped_for_every_batch_instead_of_every_epoch_is_found(
    tmp_path, factor, since, severity
):
    [finding] = diagnose(tmp_path, with_rate(1e-3 * factor**NUMBER)).findings
    assert (finding.id, finding.severity) == ("lr.schedule", severity)
    assert f"since step {since}" in finding.headline
    assert finding.evidence[0].note == "highest: 0.001"


def test_a_rate_that_is_logged_seldom_is_enough(tmp_path):
    rates = np.where(NUMBER < 500, 1e-3, 0.0)
    rates[NUMBER % 50 != 0] = np.nan
    [finding] = diagnose(tmp_path, with_rate(rates)).findings
    assert finding.first_step == 500


def test_a_rate_that_fell_before_the_newest_steps_is_compared_with_the_highest_of_the_run(tmp_path):
    number = np.arange(8000)
    [finding] = diagnose(tmp_path, with_rate(np.where(number < 1000, 1e-2, 1e-8))).findings
    assert finding.id == "lr.schedule"
    assert 1000 <= finding.first_step < 1100
