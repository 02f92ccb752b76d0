"""Replicas whose parameters differ between ranks, and ranks that may differ."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

STEPS = 300
NAMES = ("0.weight", "4.bias")
DESCRIBED = {"parameters": list(NAMES), "wrapper_is_watched": False, "wrapper_was_called": True}


def replicas(*differences, stride=16, first_step=0, strides=None, updates_begin=0):
    """Ranks with checksums that differ from those of the first by this share, at each update."""
    ranks = []
    for place, difference in enumerate(differences):
        run = going_well(1, STEPS)
        made = np.arange(STEPS) + 1 + updates_begin
        read = made % (strides[place] if strides else stride) == 0
        course = 100 + np.sqrt(made) + 0.5 * np.sin(made)
        for name in NAMES:
            values = course * (1 + np.where(np.arange(STEPS) >= first_step, difference, 0.0))
            run[f"replica_checksum/{name}"] = np.where(read, values, np.nan)
        run["ranks/updates"] = np.where(read, made, np.nan)
        ranks.append(run)
    return ranks


def diagnosed(folder, ranks, fields=None, settings=None):
    events = () if fields is None else (("replicas", fields),)
    return diagnose(folder, *ranks, events=events, settings=settings)


def the_finding(diagnosis):
    [finding] = diagnosis.findings
    assert finding.id == "dist.divergence"
    return finding


def why_not(diagnosis):
    assert diagnosis.findings == ()
    return next(check.why_not for check in diagnosis.considered if check.id == "dist.divergence")


@pytest.mark.parametrize("difference", [2e-6, 1e-4, 0.01, 0.3])
def test_replicas_that_differ_from_the_start_are_critical(tmp_path, difference):
    finding = the_finding(diagnosed(tmp_path, replicas(0.0, difference), DESCRIBED))
    assert finding.severity == "critical"
    assert finding.first_step == 15
    assert finding.rank is None
    assert len(finding.remedies) > 1


def test_a_wrapper_that_was_never_called_is_the_cause(tmp_path):
    finding = the_finding(
        diagnosed(tmp_path, replicas(0.0, 0.01), {**DESCRIBED, "wrapper_was_called": False})
    )
    assert "was never called" in finding.headline
    assert [remedy.code for remedy in finding.remedies if "criterion(model(x), y)" in remedy.code]
    assert finding.tries == ("call the wrapper, not its module",)


def test_the_step_from_which_replicas_differ_is_named(tmp_path):
    finding = the_finding(diagnosed(tmp_path, replicas(0.0, 0.01, first_step=200), DESCRIBED))
    assert finding.first_step == 207
    assert "since step 207" in finding.headline


def test_the_rank_that_differs_from_the_others_is_named(tmp_path):
    finding = the_finding(diagnosed(tmp_path, replicas(0.0, 0.0, 0.02, 0.0), DESCRIBED))
    assert finding.rank == 2
    assert "rank 2 from the others" in finding.headline


def test_ranks_that_read_at_other_strides_are_compared_where_both_have_read(tmp_path):
    ranks = replicas(0.0, 0.01, strides=(16, 64))
    assert the_finding(diagnosed(tmp_path, ranks, DESCRIBED)).first_step == 63
    assert "equal on 2 ranks in all 4 readings" in why_not(
        diagnosed(tmp_path, replicas(0.0, 0.0, strides=(16, 64)), DESCRIBED)
    )


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("difference", [0.0, 1e-8, 5e-7])
def test_replicas_that_are_equal_but_for_rounding_are_fine(tmp_path, count, difference):
    diagnosis = diagnosed(tmp_path, replicas(*[0.0] * (count - 1), difference), DESCRIBED)
    assert "equal on" in why_not(diagnosis)
    assert "dist.divergence" not in diagnosis.checks.not_run


def test_ranks_that_average_their_parameters_now_and_then_are_fine(tmp_path):
    is_between = np.where(np.arange(STEPS) // 64 % 2 == 0, 0.01, 0.0)
    assert "now and then" in why_not(diagnosed(tmp_path, replicas(0.0, is_between), DESCRIBED))


def test_step_numbers_that_differ_after_a_resume_are_no_difference(tmp_path):
    ahead, behind = replicas(0.0, 0.0)
    shifted = {key: np.r_[np.full(3, np.nan), values[:-3]] for key, values in behind.items()}
    shifted["step_seconds"], shifted["loss"] = behind["step_seconds"], behind["loss"]
    assert "equal on 2 ranks" in why_not(diagnosed(tmp_path, [ahead, shifted], DESCRIBED))


def test_replicas_that_differ_in_the_newest_readings_only_are_looked_at_again(tmp_path):
    diagnosis = diagnosed(tmp_path, replicas(0.0, 0.01, first_step=270), DESCRIBED)
    assert "the newest 2 readings" in why_not(diagnosis)


@pytest.mark.parametrize(
    "reason", ["no DistributedDataParallel was around the model when it was watched", "several groups"]
)
def test_ranks_that_may_differ_are_not_judged(tmp_path, reason):
    ranks = [going_well(1, STEPS), going_well(1, STEPS)]
    diagnosis = diagnosed(tmp_path, ranks, {"unknown": reason})
    assert why_not(diagnosis).endswith(f"{reason}.")
    assert "dist.divergence" in diagnosis.checks.not_run


def test_ranks_with_different_parts_of_a_model_may_differ(tmp_path):
    ranks = [going_well(1, STEPS), going_well(1, STEPS)]
    diagnosis = diagnosed(tmp_path, ranks, {"may_differ": "ranks have different parts of the parameters"})
    assert "need not have equal parameters" in why_not(diagnosis)
    assert "dist.divergence" not in diagnosis.checks.not_run


@pytest.mark.parametrize("kept", [0, 32])
def test_too_few_readings_are_not_judged(tmp_path, kept):
    ranks = replicas(0.0, 0.01)
    for run in ranks:
        for key in run:
            if key.startswith(("replica_checksum/", "ranks/")):
                run[key] = np.where(np.arange(STEPS) < kept, run[key], np.nan)
    diagnosis = diagnosed(tmp_path, ranks, DESCRIBED)
    assert "Needs 3 checksums" in why_not(diagnosis)
    assert "dist.divergence" in diagnosis.checks.not_run


def test_a_rank_without_readings_is_not_judged(tmp_path):
    ranks = [*replicas(0.0, 0.01), going_well(1, STEPS)]
    assert "Needs 3 checksums" in why_not(diagnosed(tmp_path, ranks, DESCRIBED))


def test_parameters_that_are_not_finite_are_left_to_another_detector(tmp_path):
    ranks = replicas(0.0, 0.0)
    ranks[1]["replica_checksum/0.weight"][:] = np.inf
    assert "dist.divergence" not in [finding.id for finding in diagnosed(tmp_path, ranks, DESCRIBED).findings]


def test_a_run_of_one_rank_is_not_asked(tmp_path):
    assert "several ranks" in why_not(diagnosed(tmp_path, replicas(0.0), DESCRIBED))
