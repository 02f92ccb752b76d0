"""A few slow steps among many: what they cost, where, and when they are no problem of their own."""

import numpy as np
import pytest

from stepscope.analysis.wording import within
from tests.cases import few
from tests.detectors.simulated import PHASES, SHAPES, Columns, diagnose, going_well

STEPS = 1500
NUMBER = np.arange(STEPS)
LOADER = {"num_workers": 4, "batch_size": 64, "dataset": "Images", "persistent_workers": False}


def with_slow_steps(
    phase: str,
    share: float = 0.15,
    every: int = 50,
    steps: int = STEPS,
    seed: int = 1,
    irregular: bool = False,
) -> Columns:
    """A healthy run in which some steps take longer in one phase, for a share of the time together."""
    run = going_well(seed, steps)
    is_slow = np.arange(steps) % every == every // 2
    if irregular:
        is_slow = np.random.default_rng(seed).random(steps) < 1 / every
    is_slow[:30] = False
    healthy = float(run["step_seconds"][30:].sum())
    each = healthy * share / (1 - share) / is_slow.sum()
    for key in (f"phase/{phase}_seconds", "step_seconds"):
        run[key] = run[key] + np.where(is_slow, each, 0.0)
    return run


def outliers(diagnosis):
    """The finding on slow steps, alone."""
    [finding] = diagnosis.findings
    assert finding.id == "step.outliers"
    return finding


def why_not(diagnosis):
    """Why slow steps are not reported."""
    assert "step.outliers" not in [finding.id for finding in diagnosis.findings]
    return next(check.why_not for check in diagnosis.considered if check.id == "step.outliers")


@pytest.mark.parametrize("every", [25, 100])
@pytest.mark.parametrize("share", [0.08, 0.2, 0.5])
def test_the_share_of_slow_steps_is_about_what_was_planted(tmp_path, share, every):
    finding = outliers(diagnose(tmp_path, with_slow_steps("other", share, every)))
    # Starts of epochs are slow as well: about one more percent.
    assert finding.share == pytest.approx(share, abs=0.025)
    assert finding.severity == "warning"
    assert f"one in {every} steps" in finding.headline
    assert "mostly outside the measured phases" in finding.headline
    assert 0 < finding.estimate.low < finding.estimate.likely < finding.estimate.high == finding.share


@pytest.mark.parametrize("share", [0.005, 0.02])
def test_slow_steps_that_cost_little_are_fine(tmp_path, share):
    assert "threshold: 5.0%" in why_not(diagnose(tmp_path, with_slow_steps("other", share)))


def test_slow_steps_at_any_time_are_called_irregular(tmp_path):
    finding = outliers(diagnose(tmp_path, with_slow_steps("other", 0.2, irregular=True)))
    assert "one in" not in finding.headline
    assert ("steps between them", "irregular") in [(line.label, line.value) for line in finding.evidence]


@pytest.mark.parametrize(
    ("phase", "severity", "words"),
    [
        ("other", "warning", "Print, log, plot"),
        ("data", "warning", "Use 4 workers and keep them alive"),
        ("forward", "notice", "a few shapes"),
        ("backward", "notice", "a few shapes"),
        ("optimizer", "notice", "the optimizer or its hooks"),
    ],
)
def test_advice_is_for_the_phase_that_is_slow(tmp_path, phase, severity, words):
    run = with_slow_steps(phase, every=400)
    finding = outliers(diagnose(tmp_path, run, events=(("loader", LOADER),)))
    assert (finding.severity, f"mostly {within(phase)}." in finding.headline) == (severity, True)
    assert words in finding.remedies[0].text
    assert f"phase/{phase}_seconds" in finding.chart.keys


def test_longer_model_passes_of_equal_batches_are_a_warning(tmp_path):
    run = with_slow_steps("forward") | {"batch/samples": np.full(STEPS, 64.0)}
    assert outliers(diagnose(tmp_path, run)).severity == "warning"


def test_persistent_workers_are_not_advised_if_they_are_in_use(tmp_path):
    loader = ("loader", LOADER | {"persistent_workers": True})
    finding = outliers(diagnose(tmp_path, with_slow_steps("data", every=400), events=(loader,)))
    assert "persistent_workers=True" not in finding.tries
    assert any("samples that take long" in remedy.text for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("library", "code"), [("lightning", "log_every_n_steps"), ("transformers", "logging_steps")]
)
def test_advice_on_logging_is_for_the_framework_in_use(tmp_path, library, code):
    facts = {"libraries": {"torch": "2.9", library: "5.0"}}
    finding = outliers(diagnose(tmp_path, with_slow_steps("other"), facts=facts))
    assert code in finding.remedies[0].code


def test_phases_that_were_timed_in_some_steps_only_are_enough(tmp_path):
    run = with_slow_steps("other", 0.3, every=10)
    is_timed = np.random.default_rng(7).random(STEPS) < 0.1
    for key in run:
        if key.startswith("phase/") and key != "phase/data_seconds":
            run[key] = np.where(is_timed, run[key], np.nan)
    run["phase/sampled_ratio"] = np.where(is_timed, 0.1, np.nan)
    assert "mostly outside the measured phases" in outliers(diagnose(tmp_path, run)).headline


def test_slow_steps_without_timed_phases_are_reported_without_a_phase(tmp_path):
    run = with_slow_steps("other", 0.2)
    finding = outliers(diagnose(tmp_path, {key: run[key] for key in ("step_seconds", "loss")}))
    assert "mostly in" not in finding.headline
    assert finding.chart.keys == ("step_seconds",)


@pytest.mark.parametrize("power", [1, 2])
def test_slow_steps_with_larger_batches_are_fine(tmp_path, power):
    run = going_well(1, STEPS)
    sizes = np.where(np.random.default_rng(3).random(STEPS) < 0.05, 256.0, 64.0)
    for key in ("phase/forward_seconds", "phase/backward_seconds"):
        run["step_seconds"] = run["step_seconds"] + run[key] * ((sizes / 64) ** power - 1)
    run["batch/samples"] = np.where(NUMBER % 3 == 0, sizes, np.nan)
    assert "have larger batches" in why_not(diagnose(tmp_path, run))
    del run["batch/samples"]
    assert outliers(diagnose(tmp_path, run)).severity == "notice"


def test_lengths_that_vary_do_not_hide_slow_steps_of_another_cause(tmp_path):
    run = with_slow_steps("other", 0.3)
    lengths = 1 + 0.3 * np.random.default_rng(5).random(STEPS)
    run["step_seconds"] = run["step_seconds"] * lengths
    run["batch/tokens"] = np.round(4096 * lengths)
    assert outliers(diagnose(tmp_path, run)).share == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("is_between", [True, False])
def test_checkpoints_are_reported_as_such_and_not_as_slow_steps(tmp_path, is_between):
    run = going_well(2, STEPS)
    took = np.where(NUMBER % 50 == 49, 0.8, 0.0)
    run["phase/checkpoint_seconds"] = took
    if is_between:
        run["gap/checkpoint_seconds"] = np.where(took > 0, took, np.nan)
    else:
        run["step_seconds"] = run["step_seconds"] + took
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["ckpt.stall"]
    why_not(diagnosis)


def test_pauses_of_the_garbage_collector_are_reported_as_such_and_not_as_slow_steps(tmp_path):
    run = with_slow_steps("other", 0.15)
    longer = run["step_seconds"] - going_well(1, STEPS)["step_seconds"]
    run["gc/pause_seconds"] = np.where(longer > 0.01, longer, run["gc/pause_seconds"])
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["host.gc"]
    why_not(diagnosis)


def test_slow_steps_of_another_cause_are_reported_beside_checkpoints(tmp_path):
    run = with_slow_steps("other", 0.2)
    took = np.where(NUMBER % 100 == 99, 0.5, 0.0)
    run["phase/checkpoint_seconds"] = took
    run["step_seconds"] = run["step_seconds"] + took
    findings = {finding.id: finding for finding in diagnose(tmp_path, run).findings}
    assert set(findings) == {"ckpt.stall", "step.outliers"}
    assert findings["step.outliers"].share == pytest.approx(0.2 * 0.92, abs=0.025)


def test_compilations_are_reported_as_such_and_not_as_slow_steps(tmp_path):
    run = going_well(3, STEPS)
    took = np.where(NUMBER % 100 == 99, 2.0, 0.0)
    run["step_seconds"] = run["step_seconds"] + took
    run["compile/seconds"] = np.where(took > 0, took, np.nan)
    run["compile/recompiles"] = np.where(took > 0, 1.0, np.nan)
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["compile.recompile"]


def test_regular_waits_for_data_are_reported_as_such_and_not_as_slow_steps(tmp_path):
    run = with_slow_steps("data", 0.4, every=8)
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["input.exposed_wait"]
    assert "wait for data, as most steps do" in why_not(diagnosis)


def test_a_host_that_runs_ahead_of_a_gpu_has_no_slow_steps(tmp_path):
    run = going_well(4, STEPS)
    reads = NUMBER % 50 == 49  # the host reads the loss, and waits for all that the GPU has to do
    run["step_seconds"] = np.where(reads, 0.05 + 49 * 0.04, 0.01)
    for key in [key for key in run if key.startswith("phase/")]:
        del run[key]
    assert outliers(diagnose(tmp_path, run)).share > 0.5
    timed = run | {"device/step_seconds": np.where(NUMBER % 20 == 3, 0.05, np.nan)}
    assert "the GPU was busy" in why_not(diagnose(tmp_path, timed))
    gpu = {("gpu/process_memory_bytes", "0"): 1e9, ("gpu/utilization_ratio", "0"): 0.97}
    assert "the GPU was busy" in why_not(diagnose(tmp_path, run, machine=gpu))


def test_the_cost_of_slow_steps_is_at_most_the_time_that_the_gpu_waits(tmp_path):
    gpu = {("gpu/process_memory_bytes", "0"): 1e9, ("gpu/utilization_ratio", "0"): 0.9}
    finding = outliers(diagnose(tmp_path, with_slow_steps("other", 0.3), machine=gpu))
    assert finding.share == pytest.approx(0.1)


def test_one_or_two_slow_steps_are_not_a_habit(tmp_path):
    run = going_well(5, STEPS)
    run["step_seconds"][700] += 30
    assert "step.outliers" not in [finding.id for finding in diagnose(tmp_path, run).findings]
    run["step_seconds"][900] += 1
    why_not(diagnose(tmp_path, run))


def test_a_stretch_of_slow_steps_is_not_many_slow_steps(tmp_path):
    run = going_well(5, STEPS)
    for begin in (400, 900):
        run["step_seconds"][begin : begin + 20] += 0.3
    run["phase/data_seconds"][NUMBER % 300 == 0] = 0.0002
    run["step_seconds"][NUMBER % 300 == 0] = 0.05
    why_not(diagnose(tmp_path, run))


def test_a_change_of_speed_has_no_slow_steps(tmp_path):
    run = going_well(6, STEPS)
    run["step_seconds"][900:] *= 3
    why_not(diagnose(tmp_path, run))
    run = going_well(6, STEPS)
    run["step_seconds"][NUMBER % 300 < 100] *= 3
    why_not(diagnose(tmp_path, run))


@pytest.mark.parametrize("every", [2, 3, 4])
def test_two_kinds_of_steps_in_turn_are_fine(tmp_path, every):
    run = going_well(7, STEPS)
    run["step_seconds"][NUMBER % every == 0] *= 4
    why_not(diagnose(tmp_path, run))


def test_less_than_a_hundred_steps_are_too_few(tmp_path):
    run = {key: values[:90] for key, values in with_slow_steps("other", 0.5, every=10).items()}
    assert "Needs at least 100 steps" in why_not(diagnose(tmp_path, run))


def test_a_run_of_seconds_may_have_slow_steps(tmp_path):
    assert "threshold: 10%" in why_not(diagnose(tmp_path, with_slow_steps("other", 0.05, steps=600)))
    assert outliers(diagnose(tmp_path, with_slow_steps("other", 0.2, steps=600)))


def test_a_rank_that_waits_for_a_slow_step_of_another_does_not_hide_its_cause(tmp_path):
    ranks = [with_slow_steps(phase, 0.2, every=400) for phase in ("backward", "data")]
    finding = outliers(diagnose(tmp_path, *ranks))
    assert "mostly in data" in finding.headline
    assert finding.severity == "warning"


NOISES = {
    "normal": lambda chance: 1 + np.abs(chance.normal(0, 0.5, STEPS)),
    "lognormal": lambda chance: np.exp(chance.normal(0, 0.5, STEPS)),
    "exponential": lambda chance: 0.5 + chance.exponential(0.5, STEPS),
    "student": lambda chance: 1 + 0.15 * np.abs(chance.standard_t(2.5, STEPS)),
    "gamma": lambda chance: chance.gamma(4, 0.25, STEPS),
    "two_speeds": lambda chance: np.where(chance.random(STEPS) < 0.3, 1.9, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_step_times_with_much_noise_are_fine(tmp_path, noise):
    for seed in range(10):
        run = going_well(seed, STEPS)
        run["step_seconds"] = run["step_seconds"] * NOISES[noise](np.random.default_rng(seed))
        why_not(diagnose(tmp_path, run))


@pytest.mark.parametrize("seed", few(range(40), 6))
def test_a_healthy_run_has_no_slow_steps(tmp_path, seed):
    for steps, step_s in ((220, 0.05), (700, 0.005), (1500, 0.3), (3000, 1.0)):
        run = going_well(seed, steps, step_s, shape=SHAPES[seed % len(SHAPES)])
        why_not(diagnose(tmp_path, run))


def test_slow_steps_at_odd_times_are_not_blamed_while_the_training_waits_for_a_processor(tmp_path):
    run = with_slow_steps("other", 0.15, irregular=True)
    waits = 0.1 * float(np.mean(run["step_seconds"]))
    run["host/queued_seconds"] = np.where(NUMBER % 700 == 650, waits, np.nan)
    assert "waits for a processor 10% of the time" in why_not(diagnose(tmp_path, run))
    regular = with_slow_steps("other", 0.15)
    regular["host/queued_seconds"] = run["host/queued_seconds"]
    assert outliers(diagnose(tmp_path, regular)).share == pytest.approx(0.15, abs=0.025)


def test_what_follows_a_save_in_its_step_is_time_of_the_checkpoint(tmp_path):
    run = going_well(1, STEPS)
    is_saving = NUMBER % 20 == 19
    run["phase/checkpoint_seconds"] = np.where(is_saving, 0.1, 0.0)
    run["phase/other_seconds"] = run["phase/other_seconds"] + np.where(is_saving, 0.2, 0.0)
    run["step_seconds"] = sum(run[f"phase/{name}_seconds"] for name in (*PHASES, "checkpoint"))
    [finding] = diagnose(tmp_path, run).findings
    assert finding.id == "ckpt.stall"
    assert finding.share == pytest.approx(0.3 / (0.3 + 20 * 0.05), abs=0.03)
    after = next(line for line in finding.evidence if line.label == "after the save")
    assert after.note == "of that, in the same step"
