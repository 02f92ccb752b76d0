"""Batches that consist of padding, and batches for which padding costs little."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

STEPS = 600
LOOKS = np.arange(STEPS) % 12 == 5


def with_padding(share, tokens=None, seed=1):
    """A run whose batches were looked at in some steps; `tokens` are those of each step."""
    run = going_well(seed, STEPS)
    chance = np.random.default_rng(seed)
    run["batch/padding_ratio"] = np.where(LOOKS, np.clip(share + chance.normal(0, 0.02, STEPS), 0, 1), np.nan)
    run["batch/tokens"] = np.where(LOOKS, 8192.0 if tokens is None else tokens, np.nan)
    return run


def lengths(seed=2):
    return 8192.0 * np.random.default_rng(seed).uniform(0.3, 1.0, STEPS)


def longer_for(run, tokens):
    """The same run, whose passes take time in proportion to the tokens of a step."""
    for key in ("phase/forward_seconds", "phase/backward_seconds"):
        run["step_seconds"] = run["step_seconds"] + run[key] * (tokens / 8192 - 1)
        run[key] = run[key] * tokens / 8192
    return run


def the_finding(diagnosis):
    [finding] = diagnosis.findings
    assert finding.id == "input.padding"
    return finding


def why_not(diagnosis):
    assert diagnosis.findings == ()
    return next(check.why_not for check in diagnosis.considered if check.id == "input.padding")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.88])
def test_batches_of_a_fixed_length_should_be_padded_to_their_longest_sample(tmp_path, share):
    finding = the_finding(diagnose(tmp_path, with_padding(share)))
    assert f"{share:.0%} of the tokens" in finding.headline or "of the tokens" in finding.headline
    assert finding.tries == ("pad to the longest sample", "group samples by length")
    assert finding.severity == "warning"
    assert 0 < finding.estimate.low < finding.estimate.likely < finding.estimate.high < share
    assert "pad_sequence" in finding.remedies[0].code


def test_batches_of_different_lengths_should_be_grouped(tmp_path):
    tokens = lengths()
    finding = the_finding(diagnose(tmp_path, longer_for(with_padding(0.4, tokens), tokens)))
    assert finding.tries == ("group samples by length",)
    assert any("follow it" in cause for cause in finding.ruled_out)


def test_advice_on_padding_is_for_the_framework_in_use(tmp_path):
    libraries = {"libraries": {"torch": "2.9", "transformers": "5.0"}}
    finding = the_finding(diagnose(tmp_path, with_padding(0.6), facts=libraries))
    assert "DataCollatorWithPadding" in finding.remedies[0].code


@pytest.mark.parametrize("share", [0.0, 0.1, 0.17])
def test_little_padding_is_fine(tmp_path, share):
    assert "threshold: 20%" in why_not(diagnose(tmp_path, with_padding(share)))


def test_padding_that_does_not_lengthen_steps_is_fine(tmp_path):
    diagnosis = diagnose(tmp_path, with_padding(0.5, lengths()))
    assert "does not follow the size" in why_not(diagnosis)


def test_padding_beside_a_short_model_is_fine(tmp_path):
    run = with_padding(0.5)
    run["phase/other_seconds"] = run["phase/other_seconds"] + 1.5
    run["step_seconds"] = run["step_seconds"] + 1.5
    diagnosis = diagnose(tmp_path, run)
    assert "take only" in next(c.why_not for c in diagnosis.considered if c.id == "input.padding")


def test_a_run_without_tokens_is_not_asked_for_padding(tmp_path):
    diagnosis = diagnose(tmp_path, going_well(1, STEPS))
    assert diagnosis.findings == ()
    assert "input.padding" not in diagnosis.checks.not_run


def test_padding_is_not_judged_without_the_time_of_the_model(tmp_path):
    run = with_padding(0.6)
    run = {key: values for key, values in run.items() if key not in ("phase/forward_seconds",)}
    diagnosis = diagnose(tmp_path, run)
    assert "input.padding" not in [finding.id for finding in diagnosis.findings]
    assert "input.padding" in diagnosis.checks.not_run


def test_a_few_steps_that_were_timed_by_phase_are_enough(tmp_path):
    run = with_padding(0.8)
    for key in [key for key in run if key.startswith("phase/")]:
        run[key] = np.where(np.isin(np.arange(STEPS), (*range(30, 36), 400)), run[key], np.nan)
    run["phase/sampled_ratio"] = np.where(np.isnan(run["phase/forward_seconds"]), np.nan, 1.0)
    run["phase/sampled_ratio"][400] = 0.002
    assert the_finding(diagnose(tmp_path, run)).severity == "warning"
