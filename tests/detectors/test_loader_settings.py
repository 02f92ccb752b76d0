"""Loaders whose batches come late or whose workers start anew, and loaders that keep up."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

STEPS = 600
NUMBER = np.arange(STEPS)
EPOCH = 120
"""Steps in an epoch of the healthy run."""


def loader(**changes):
    """The event that describes a loader."""
    fields = {"num_workers": 2, "batch_size": 64, "dataset": "Images", "persistent_workers": True}
    return ("loader", {**fields, "prefetch_factor": 2, "start_method": "fork", **changes})


def with_late_batches(is_late, share, ready=3.0, seed=1):
    """A run that waits for some of its batches, for a share of step time together."""
    run = going_well(seed, STEPS)
    run["gap/epoch_seconds"] = np.where((NUMBER > 0) & (NUMBER % EPOCH == 0), 0.001, np.nan)
    is_late = is_late & (NUMBER % EPOCH > 10)
    whole = float(run["step_seconds"][10:].sum())
    each = whole * share / (1 - share) / is_late.sum()
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + np.where(is_late, each, 0.0)
    run["loader/ready_batches"] = np.where(NUMBER % 15 == 4, ready, np.nan)
    return run


def the_finding(diagnosis, kind):
    assert [finding.id for finding in diagnosis.findings] == [kind]
    return diagnosis.findings[0]


def why_not(diagnosis, kind):
    assert kind not in [finding.id for finding in diagnosis.findings]
    return next(check.why_not for check in diagnosis.considered if check.id == kind)


@pytest.mark.parametrize("share", [0.12, 0.3, 0.7])
@pytest.mark.parametrize(("workers", "slow"), [(2, 1), (2, 0), (4, 2)])
def test_a_slow_worker_is_named(tmp_path, share, workers, slow):
    run = with_late_batches(NUMBER % workers == slow, share, ready=workers - 1.0)
    diagnosis = diagnose(tmp_path, run, events=(loader(num_workers=workers),))
    finding = the_finding(diagnosis, "input.jitter")
    assert finding.headline.startswith(f"Loader worker {slow} of 0 to {workers - 1} is slow")
    assert finding.share == pytest.approx(share, rel=0.1)
    assert finding.severity == "warning"
    assert not any("num_workers" in hint for hint in finding.tries)


def test_workers_are_counted_from_the_start_of_each_epoch(tmp_path):
    run = with_late_batches(NUMBER % 101 % 2 == 1, 0.3)
    run["gap/epoch_seconds"] = np.where((NUMBER > 0) & (NUMBER % 101 == 0), 0.001, np.nan)
    finding = the_finding(diagnose(tmp_path, run, events=(loader(),)), "input.jitter")
    assert finding.headline.startswith("Loader worker 1 of 0 to 1 is slow")


@pytest.mark.parametrize("workers", [2, 4])
def test_batches_that_come_in_groups_are_a_wait_of_all_workers(tmp_path, workers):
    run = with_late_batches(NUMBER % workers == 0, 0.4)
    run["loader/ready_batches"] = np.where(NUMBER % 15 == 4, NUMBER % workers, np.nan).astype(float)
    diagnosis = diagnose(tmp_path, run, events=(loader(num_workers=workers),))
    the_finding(diagnosis, "input.exposed_wait")
    assert "all workers are slow" in why_not(diagnosis, "input.jitter")


@pytest.mark.parametrize("share", [0.12, 0.3, 0.6])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_slow_samples_are_reported_with_how_many_batches_come_late(tmp_path, share, workers):
    is_late = np.random.default_rng(3).random(STEPS) < 0.05
    run = with_late_batches(is_late, share)
    diagnosis = diagnose(tmp_path, run, events=(loader(num_workers=workers),))
    finding = the_finding(diagnosis, "input.jitter")
    assert " batches come late: " in finding.headline
    assert finding.share == pytest.approx(share, rel=0.1)
    assert "find slow samples" in finding.tries


def test_late_batches_at_equal_distances_are_reported_with_their_period(tmp_path):
    run = with_late_batches(NUMBER % 15 == 7, 0.3)
    finding = the_finding(diagnose(tmp_path, run, events=(loader(num_workers=4),)), "input.jitter")
    assert "one in 15: " in finding.headline


def test_advice_on_late_batches_is_for_the_framework_in_use(tmp_path):
    run = with_late_batches(NUMBER % 15 == 7, 0.3)
    libraries = {"libraries": {"torch": "2.9", "transformers": "5.0"}}
    finding = the_finding(diagnose(tmp_path, run, events=(loader(),), facts=libraries), "input.jitter")
    assert finding.remedies[1].framework == "Transformers"


@pytest.mark.parametrize("share", [0.005, 0.03])
@pytest.mark.parametrize("every", [2, 15])
def test_late_batches_that_cost_little_are_fine(tmp_path, share, every):
    run = with_late_batches(NUMBER % every == 1, share)
    assert diagnose(tmp_path, run, events=(loader(),)).findings == ()


def test_waits_that_vary_around_a_mean_are_no_late_batches(tmp_path):
    run = going_well(1, STEPS)
    waits = 0.02 * np.random.default_rng(1).lognormal(0, 0.5, STEPS)
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + waits
    run["loader/ready_batches"] = np.where(NUMBER % 15 == 4, 0.0, np.nan)
    diagnosis = diagnose(tmp_path, run, events=(loader(),))
    the_finding(diagnosis, "input.exposed_wait")


def test_late_batches_are_not_blamed_on_samples_while_the_training_waits_for_a_processor(tmp_path):
    run = with_late_batches(np.random.default_rng(3).random(STEPS) < 0.1, 0.3)
    run["host/queued_seconds"] = np.where(NUMBER % 20 == 7, 0.2 * 0.05, np.nan)
    diagnosis = diagnose(tmp_path, run, events=(loader(),))
    assert "waits for a processor" in why_not(diagnosis, "input.jitter")


def test_late_batches_that_a_gpu_does_not_wait_for_are_fine(tmp_path):
    run = with_late_batches(NUMBER % 15 == 7, 0.3)
    chosen = NUMBER % 10 == 3
    run["device/data_seconds"] = np.where(chosen, 1e-5, np.nan)
    run["device/step_seconds"] = np.where(chosen, 0.07, np.nan)
    diagnosis = diagnose(tmp_path, run, events=(loader(),))
    assert "the GPU was busy" in why_not(diagnosis, "input.jitter")


def test_a_loader_without_workers_has_no_late_workers(tmp_path):
    run = with_late_batches(NUMBER % 2 == 1, 0.4)
    diagnosis = diagnose(tmp_path, run, events=(loader(num_workers=0),))
    the_finding(diagnosis, "input.exposed_wait")


def with_starts(share, epoch=30, between=0.7, seed=1):
    """A run of short epochs whose workers start anew, for a share of the time."""
    run = going_well(seed, STEPS)
    begins = (NUMBER > 0) & (NUMBER % epoch == 0)
    run["phase/data_seconds"] = np.where(NUMBER % 120 == 0, 0.0002, run["phase/data_seconds"])
    run["step_seconds"] = sum(values for key, values in run.items() if key.startswith("phase/"))
    each = float(run["step_seconds"].sum()) * share / (1 - share) / begins.sum()
    run["gap/epoch_seconds"] = np.where(begins, between * each, np.nan)
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + np.where(begins, (1 - between) * each, 0.0)
    return run


@pytest.mark.parametrize(("share", "severity"), [(0.045, "notice"), (0.1, "warning"), (0.3, "warning")])
@pytest.mark.parametrize("between", [0.4, 0.9])
def test_persistent_workers_are_advised_if_workers_restart_in_each_epoch(tmp_path, share, severity, between):
    run = with_starts(share, between=between)
    diagnosis = diagnose(tmp_path, run, events=(loader(persistent_workers=False, start_method="spawn"),))
    finding = the_finding(diagnosis, "input.loader_config")
    assert finding.share == pytest.approx(share, rel=0.2)
    assert finding.severity == severity
    assert finding.tries == ("persistent_workers=True",)
    assert "19 epochs" in finding.headline
    assert "persistent_workers=True" in finding.remedies[0].code


def test_advice_on_workers_that_end_is_for_the_framework_in_use(tmp_path):
    events, libraries = (loader(persistent_workers=False),), {"libraries": {"pytorch_lightning": "2.5"}}
    finding = diagnose(tmp_path, with_starts(0.2), events=events, facts=libraries).findings[0]
    assert (finding.id, finding.remedies[0].framework) == ("input.loader_config", "Lightning")


@pytest.mark.parametrize(
    "changes", [{"persistent_workers": True}, {"num_workers": 0}, {"persistent_workers": False}]
)
def test_a_loader_that_loses_little_between_epochs_is_fine(tmp_path, changes):
    share = 0.02 if changes == {"persistent_workers": False} else 0.06
    diagnosis = diagnose(tmp_path, with_starts(share, between=1.0), events=(loader(**changes),))
    assert diagnosis.findings == ()
    assert why_not(diagnosis, "input.loader_config")


def test_other_code_between_epochs_is_not_blamed_on_the_workers(tmp_path):
    run = with_starts(0.02, epoch=100, between=1.0)
    run["gap/epoch_seconds"] = run["gap/epoch_seconds"] + 20.0
    diagnosis = diagnose(tmp_path, run, events=(loader(persistent_workers=False),))
    assert "input.loader_config" not in [finding.id for finding in diagnosis.findings]


def test_a_loader_that_is_always_too_slow_is_reported_as_that(tmp_path):
    run = with_starts(0.05)
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + 0.03
    diagnosis = diagnose(tmp_path, run, events=(loader(persistent_workers=False),))
    the_finding(diagnosis, "input.exposed_wait")
    assert "within a pass" in why_not(diagnosis, "input.loader_config")


def test_two_epochs_are_not_enough_to_judge_their_start(tmp_path):
    diagnosis = diagnose(tmp_path, with_starts(0.1, epoch=250), events=(loader(persistent_workers=False),))
    assert "input.loader_config" in diagnosis.checks.not_run


def test_time_between_passes_is_reported_even_if_the_loader_is_slow_as_well(tmp_path):
    run = with_starts(0.3, between=0.9)
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + 0.03
    findings = diagnose(tmp_path, run, events=(loader(persistent_workers=False),)).findings
    assert "input.loader_config" in [finding.id for finding in findings]
    starts = next(finding for finding in findings if finding.id == "input.loader_config")
    assert "wait for the first batch" not in [line.label for line in starts.evidence]


@pytest.mark.parametrize(("ready", "severity"), [(8.0, "notice"), (0.0, "warning")])
def test_a_wait_while_the_queue_is_full_is_no_reason_for_more_workers(tmp_path, ready, severity):
    run = going_well(1, STEPS)
    for key in ("phase/data_seconds", "step_seconds"):
        run[key] = run[key] + 0.03
    run["loader/ready_batches"] = np.where(NUMBER % 50 == 20, ready, np.nan)
    setup = loader(num_workers=4, prefetch_factor=2, persistent_workers=True)
    [finding] = diagnose(tmp_path, run, events=(setup,)).findings
    assert (finding.id, finding.severity) == ("input.exposed_wait", severity)
    assert ("More workers will not help" in finding.detail) is (ready > 0)
