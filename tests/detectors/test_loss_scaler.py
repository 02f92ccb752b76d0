"""Loss scalers that skip many steps, and those that only look for their scale."""

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600


def skipping(steps) -> dict:
    """A healthy run whose scaler skipped some steps."""
    run = going_well(1, STEPS)
    run["optimizer_skipped"] = np.full(STEPS, np.nan)
    run["optimizer_skipped"][list(steps)] = 1.0
    run["gradient_norm"][list(steps)] = np.inf
    return run


@pytest.mark.parametrize("every", [2, 7, 15])
def test_many_skipped_steps_are_found_with_their_share(tmp_path, every):
    [finding] = diagnose(tmp_path, skipping(range(0, STEPS, every))).findings
    assert (finding.id, finding.severity) == ("amp.scaler", "warning")
    assert finding.share == pytest.approx(1 / every, abs=0.01)


@pytest.mark.parametrize(
    ("setup", "advice"),
    [
        ({"autocast": "cuda float16", "parameter_dtypes": {"float32": 9}}, "Use bfloat16"),
        ({"parameter_dtypes": {"float16": 9}}, "Use bfloat16"),
        ({"parameter_dtypes": {"float32": 9}}, "Train without a scaler"),
        ({"autocast": "cuda bfloat16", "parameter_dtypes": {"float32": 9}}, "Train without a scaler"),
    ],
)
def test_the_advice_depends_on_the_number_format(tmp_path, setup, advice):
    events = (("census", {**SETUP[1], **setup}),)
    [finding] = diagnose(tmp_path, skipping(range(0, STEPS, 7)), events=events).findings
    assert finding.remedies[0].text.startswith(advice)


@pytest.mark.parametrize("steps", [range(30), range(0, STEPS, 100), [*range(12), 300, 301, 302]])
def test_the_search_for_a_scale_is_no_finding(tmp_path, steps):
    diagnosis = diagnose(tmp_path, skipping(steps))
    assert "amp.scaler" not in [finding.id for finding in diagnosis.findings]
    [check] = [check for check in diagnosis.considered if check.id == "amp.scaler"]
    assert "A loss scaler skipped" in check.why_not


def test_a_run_without_a_scaler_is_not_checked(tmp_path):
    [check] = [c for c in diagnose(tmp_path, going_well(2, 300)).considered if c.id == "amp.scaler"]
    assert check.why_not.startswith("Applies only to runs that record optimizer_skipped")
