"""Problems planted into healthy runs, and the finding of each detector."""

import re

import numpy as np
import pytest

from stepscope.number_format import number
from tests.detectors.simulated import diagnose, going_well

LOADER = ("loader", {"num_workers": 0, "batch_size": 64, "dataset": "Images", "persistent_workers": False})


def waiting(seed=0, steps=600, wait_s=0.05, step_s=0.05):
    """A run whose steps wait for data for half of their time."""
    run = going_well(seed, steps, step_s)
    waits = wait_s * np.exp(np.random.default_rng(seed).normal(0, 0.1, steps))
    run["phase/data_seconds"] = run["phase/data_seconds"] + waits
    run["step_seconds"] = run["step_seconds"] + waits
    return run


def test_a_wait_for_data_is_reported_with_its_share_and_the_workers_needed(tmp_path):
    [finding] = diagnose(tmp_path, waiting(), events=(LOADER,)).findings
    assert (finding.id, finding.severity) == ("input.exposed_wait", "warning")
    assert finding.share == pytest.approx(0.5, abs=0.03)
    # Half of the step makes a batch, the other half uses it: one worker just keeps up, two surely do.
    assert "num_workers=2" in finding.tries
    assert finding.estimate.low <= finding.estimate.likely <= finding.estimate.high
    assert finding.estimate.likely == pytest.approx(0.5, abs=0.05)
    assert "num_workers=2" in finding.remedies[0].code


def test_slow_workers_get_as_many_more_as_are_needed_and_processors_allow(tmp_path):
    loader = ("loader", {**LOADER[1], "num_workers": 2})
    run = waiting(wait_s=0.1)
    [finding] = diagnose(tmp_path, run, events=(loader,), facts={"cpus": 64}).findings
    # Two workers give a batch in 150 ms, so one takes 300 ms for it; the rest of a step takes 50 ms.
    assert "num_workers=8" in finding.tries
    [limited] = diagnose(tmp_path, run, events=(loader,), facts={"cpus": 3}).findings
    assert "more workers will not help" in limited.detail
    assert limited.tries == ("cheaper transforms", "cache decoded samples")


def test_fewer_workers_are_advised_where_there_are_more_than_processors(tmp_path):
    loader = ("loader", {**LOADER[1], "num_workers": 12})
    [finding] = diagnose(tmp_path, waiting(), events=(loader,), facts={"cpus": 2}).findings
    assert "num_workers=1" in finding.tries
    assert finding.estimate.low == 0


@pytest.mark.parametrize(("workers", "proposed"), [(1, 4), (2, 8), (12, 16)])
def test_workers_that_wait_for_a_disk_may_outnumber_the_processors(tmp_path, workers, proposed):
    loader = ("loader", {**LOADER[1], "num_workers": workers})
    machine = {("process/cpu_ratio", f"loader-{worker}"): 0.06 for worker in range(workers)}
    run = waiting(wait_s=0.1)
    [finding] = diagnose(tmp_path, run, events=(loader,), facts={"cpus": 2}, machine=machine).findings
    assert f"num_workers={proposed}" in finding.tries
    assert "will not help" not in finding.detail
    busy = dict.fromkeys(machine, 0.97)
    [finding] = diagnose(tmp_path, run, events=(loader,), facts={"cpus": 2}, machine=busy).findings
    assert "more workers will not help" in finding.detail


@pytest.mark.parametrize(
    ("library", "framework", "code"),
    [
        ("torch", "PyTorch", "num_workers=2"),
        ("lightning", "Lightning", "def train_dataloader"),
        ("pytorch_lightning", "Lightning", "def train_dataloader"),
        ("transformers", "Transformers", "dataloader_num_workers=2"),
    ],
)
def test_code_is_for_the_framework_in_use_and_for_a_loop_of_ones_own(tmp_path, library, framework, code):
    facts = {"libraries": {"torch": "2.9", library: "2.5"}}
    [finding] = diagnose(tmp_path, waiting(), events=(LOADER,), facts=facts).findings
    shown = [remedy.framework for remedy in finding.remedies if remedy.code]
    assert shown == list(dict.fromkeys((framework, "PyTorch")))
    assert code in finding.remedies[0].code


def test_waits_are_measured_on_the_gpu_clock_where_there_is_one(tmp_path):
    run = waiting(wait_s=0.002)
    chosen = np.arange(600) % 6 == 1
    run["device/data_seconds"] = np.where(chosen, 0.03, np.nan)
    run["device/step_seconds"] = np.where(chosen, 0.06, np.nan)
    [finding] = diagnose(tmp_path, run, events=(LOADER,)).findings
    assert finding.share == pytest.approx(0.5)
    assert finding.chart.keys == ("device/data_seconds", "device/step_seconds")
    assert "pin_memory=True" in finding.remedies[0].code


def test_phases_that_were_timed_in_some_steps_only_are_enough(tmp_path):
    run = waiting(steps=1000)
    sampled = np.random.default_rng(7).random(1000) < 0.1
    for key in run:
        if key.startswith("phase/") and key != "phase/data_seconds":
            run[key] = np.where(sampled, run[key], np.nan)
    run["phase/sampled_ratio"] = np.where(sampled, 0.1, np.nan)
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["input.exposed_wait"]
    healthy = going_well(1, 1000)
    for key in healthy:
        if key.startswith("phase/") and key != "phase/data_seconds":
            healthy[key] = np.where(sampled, healthy[key], np.nan)
    assert "bound by backward (" in diagnose(tmp_path, healthy).verdict.headline


def test_a_nan_loss_is_reported_with_its_step_and_the_first_bad_layer(tmp_path):
    run = going_well(1, 500)
    run["loss"][321:] = np.nan
    sentence = "The gradient of encoder.3 is not finite."
    event = ("gradient_not_finite", {"layer": "encoder.3", "sentence": sentence})
    [finding] = diagnose(tmp_path, run, events=(event,)).findings
    assert (finding.id, finding.first_step, finding.severity) == ("num.nonfinite", 321, "critical")
    assert finding.headline == "Loss became NaN at step 321."
    [near] = diagnose(tmp_path, {**run, "loss": np.r_[np.nan, np.ones(499)]}, events=(event,)).findings
    assert (near.severity, near.first_step) == ("warning", 0)
    assert near.headline == "Loss was NaN at step 0 (first bad layer: `encoder.3`); it has recovered."
    assert sentence in [evidence.note for evidence in near.evidence]


@pytest.mark.parametrize(
    ("fields", "headline", "advice"),
    [
        (
            {"cause": "operation", "operation": "log", "after": "2", "before": "4"},
            "the first bad value came from `log`, between the layers `2` and `4`.",
            "Clamp what `log` gets, between the layers `2` and `4`.",
        ),
        (
            {"cause": "operation", "operation": "softmax", "layer": "encoder.3"},
            "the first bad value came from `softmax` in `encoder.3`.",
            "Skip such batches, so that the weights stay finite.",
        ),
        (
            {"cause": "batch", "before": "0"},
            "its batch has values that are not finite.",
            "Check the data set for NaN and infinite values, and leave such samples out.",
        ),
        (
            {"cause": "weights", "layer": "2"},
            "the weights of `2` were not finite before this step.",
            "Skip such batches, so that the weights stay finite.",
        ),
        (
            {"cause": "loss", "after": "head"},
            "the output of `head` was finite, what is computed from it is not.",
            "Skip such batches, so that the weights stay finite.",
        ),
    ],
)
def test_a_nan_loss_is_reported_with_what_its_graph_has_shown(tmp_path, fields, headline, advice):
    run = going_well(1, 200)
    run["loss"][:] = np.nan
    event = ("loss_not_finite", {**fields, "batch": "64×256 float32"})
    [finding] = diagnose(tmp_path, run, events=(event,)).findings
    assert finding.headline == f"Loss became NaN at step 0: {headline}"
    assert advice in [remedy.text for remedy in finding.remedies]
    batch = next(evidence for evidence in finding.evidence if evidence.label == "batch")
    assert (batch.value, batch.note) == ("of step 0", "64×256 float32")
    late = going_well(1, 200)
    late["loss"][150:] = np.nan
    [finding] = diagnose(tmp_path, late, events=(event,)).findings  # the event is about another step
    assert finding.headline == "Loss became NaN at step 150."


def test_a_bad_loss_with_finite_gradients_does_not_mean_that_the_weights_are_lost(tmp_path):
    run = going_well(1, 300)
    run["loss"][200:] = np.nan
    run["gradient_norm"] = np.ma.masked_array(np.full(300, 0.5), np.arange(300) % 10 != 0)
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.severity, finding.first_step) == ("warning", 200)
    assert "the weights are not affected" in finding.detail
    assert finding.tries == ("check the terms of the loss that have no gradients",)
    run["gradient_norm"][210] = np.inf
    [finding] = diagnose(tmp_path, run).findings
    assert finding.severity == "critical"
    assert "training is lost" in finding.detail


def test_the_losses_that_are_not_finite_are_counted(tmp_path):
    run = going_well(1, 106)
    run["loss"][::7] = np.nan
    [finding] = diagnose(tmp_path, run).findings
    assert finding.headline == "16 of 106 losses are NaN, first at step 0, newest at step 105."
    run["loss"][7] = np.inf
    [finding] = diagnose(tmp_path, run).findings
    assert finding.headline.startswith("16 of 106 losses are NaN or infinite, first at step 0,")


def test_the_wait_of_a_step_is_divided_by_its_batches(tmp_path):
    four = {"micro_steps": np.full(600, 4.0)}
    [finding] = diagnose(tmp_path, waiting() | four, events=(LOADER,)).findings
    values = {evidence.label: evidence.value for evidence in finding.evidence}
    assert values["time to get a batch"].startswith("12.")
    assert values["work in a batch"].startswith("12.")
    assert "num_workers=2" in finding.tries
    short = waiting(wait_s=0.003, step_s=0.01)
    assert [finding.id for finding in diagnose(tmp_path, short, events=(LOADER,)).findings] == [
        "input.exposed_wait"
    ]
    assert diagnose(tmp_path, short | four, events=(LOADER,)).findings == ()


@pytest.mark.parametrize(
    ("fields", "advises_bf16"),
    [
        ({"parameter_dtypes": {"float32": 9}, "autocast": "off"}, False),
        ({"parameter_dtypes": {"float32": 9}, "autocast": "cuda bfloat16"}, False),
        ({"parameter_dtypes": {"float32": 9}, "autocast": "cuda float16"}, True),
        ({"parameter_dtypes": {"float16": 9}}, True),
        (None, False),
    ],
)
def test_bfloat16_is_advised_for_a_nan_loss_only_where_float16_is_used(tmp_path, fields, advises_bf16):
    run = going_well(1, 500)
    run["loss"][321:] = np.nan
    events = () if fields is None else (("census", fields),)
    [finding] = diagnose(tmp_path, run, events=events).findings
    assert any("bfloat16" in remedy.text for remedy in finding.remedies) is advises_bf16
    assert ("bf16 instead of fp16" in finding.tries) is advises_bf16
    assert {remedy.framework for remedy in finding.remedies} == {"PyTorch"}


def test_a_loss_that_explodes_in_the_first_steps_points_at_inputs_and_no_checkpoint(tmp_path):
    run = going_well(1, 500)
    run["loss"][:5] = [3e6, 1e9, 1e12, 1e20, 1e30]
    run["loss"][5:] = np.inf
    [finding] = diagnose(tmp_path, run).findings
    assert finding.tries == ("check inputs and initialisation", "lower the learning rate", "clip gradients")
    assert "checkpoint" not in finding.detail
    run = going_well(1, 500)
    run["loss"][300:304] = [10, 1e3, 1e6, 1e9]
    run["loss"][304:] = np.nan
    [finding] = diagnose(tmp_path, run).findings
    assert finding.tries == ("go back to a checkpoint", "lower the learning rate", "clip gradients")


def test_a_loss_that_grows_from_its_first_value_to_nan_is_due_to_the_learning_rate(tmp_path):
    run = going_well(1, 300)
    run["loss"][:5] = [2.3, 1287.0, 7.6e8, 3.1e16, 2.7e33]
    run["loss"][5:] = np.nan
    [finding] = diagnose(tmp_path, run).findings
    assert finding.tries == ("lower the learning rate", "clip gradients", "check inputs and initialisation")
    assert finding.remedies[0].text.startswith("Lower the learning rate")


def test_gradients_that_stay_infinite_are_a_finding_without_a_bad_loss(tmp_path):
    run = going_well(1, 500)
    run["gradient_norm"][400:] = np.inf
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.chart.keys) == ("num.nonfinite", ("gradient_norm",))
    assert finding.first_step in range(395, 401)


def test_a_spike_is_reported_with_its_step(tmp_path):
    run = going_well(1, 1000)
    run["loss"][700] *= 20
    run["learning_rate"] = np.full(1000, 0.1)
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity, finding.first_step) == ("conv.spike", "notice", 700)
    assert ("learning rate", "0.1") in [(evidence.label, evidence.value) for evidence in finding.evidence]


def test_several_spikes_are_one_finding_that_counts_them(tmp_path):
    run = going_well(1, 2000)
    for step in (700, 1100, 1700):
        run["loss"][step] *= 30
    [finding] = diagnose(tmp_path, run).findings
    assert finding.severity == "warning"
    assert "3 such spikes" in finding.headline


@pytest.mark.parametrize("growth", [1.5, 1.1])
def test_a_loss_that_grows_and_grows_diverges(tmp_path, growth):
    run = going_well(1, 1000)
    run["loss"][950:] *= growth ** np.arange(50)
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("conv.diverging", "critical")
    assert finding.first_step in range(945, 965)


def test_a_divergence_names_the_last_loss_and_writes_huge_numbers_short(tmp_path):
    run = going_well(1, 1000)
    run["loss"][900:] *= 1.7 ** np.arange(100)
    [finding] = diagnose(tmp_path, run).findings
    assert f" to {number(run['loss'][-1])} since step " in finding.headline
    [distance] = [evidence.value for evidence in finding.evidence if evidence.label == "distance"]
    assert re.fullmatch(r"\d(\.\d)?e\d+ spreads", distance)


def test_a_loss_that_blows_up_in_its_first_steps_diverges(tmp_path):
    run = going_well(1, 300)
    run["loss"] = (
        2.3 * np.minimum(2.0 ** np.minimum(np.arange(300), 30), 500) * (1 + 0.1 * np.sin(np.arange(300)))
    )
    [finding] = diagnose(tmp_path, run).findings
    assert finding.id == "conv.diverging"
    assert finding.first_step < 20


def test_a_loss_that_ends_in_nan_is_reported_once_and_explains_its_divergence(tmp_path):
    run = going_well(1, 1000)
    run["loss"][950:] *= 1.5 ** np.arange(50)
    run["loss"][990:] = np.nan
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == ["num.nonfinite"]
    [why_not] = [check.why_not for check in diagnosis.considered if check.id == "conv.diverging"]
    assert "Explained by: loss or gradients are not finite" in why_not


def test_steps_that_slow_down_are_reported_with_the_phase_that_grows(tmp_path):
    run = going_well(1, 1500)
    more = 0.05 * 0.4 * np.arange(1500) / 1500
    run["phase/optimizer_seconds"] = run["phase/optimizer_seconds"] + more
    run["step_seconds"] = run["step_seconds"] + more
    [finding] = diagnose(tmp_path, run).findings
    assert finding.id == "step.creep"
    assert "longer than" in finding.headline
    assert "most of it in optimizer" in finding.headline
    assert finding.estimate.high == pytest.approx(0.4 / 1.4, abs=0.05)
    assert "param_groups" in finding.remedies[0].code


def test_a_slowdown_too_slow_for_a_window_is_found_over_the_whole_segment(tmp_path):
    run = going_well(1, 20_000)
    more = 0.05 * 0.3 * np.arange(20_000) / 20_000
    run["phase/other_seconds"] = run["phase/other_seconds"] + more
    run["step_seconds"] = run["step_seconds"] + more
    [finding] = diagnose(tmp_path, run).findings
    assert finding.id == "step.creep"
    assert finding.first_step < 1000


def test_pauses_of_the_garbage_collector_are_summed(tmp_path):
    run = going_well(1, 1000)
    pauses = np.arange(1000) % 20 == 10
    run["gc/pause_seconds"] = np.where(pauses, 0.06, run["gc/pause_seconds"])
    run["gc/collections"] = np.where(pauses, 1.0, run["gc/collections"])
    run["gc/full_collections"] = np.where(pauses, 1.0, np.nan)
    run["step_seconds"] = np.where(pauses, run["step_seconds"] + 0.06, run["step_seconds"])
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("host.gc", "warning")
    assert finding.share == pytest.approx(0.06 / (20 * 0.0535), abs=0.01)
    assert "gc.freeze()" in finding.remedies[0].code


def test_the_longest_pause_is_reported_if_known_and_otherwise_the_mean(tmp_path):
    run = going_well(1, 1000)
    pauses = np.arange(1000) % 20 == 10
    run["gc/pause_seconds"] = np.where(pauses, 0.06, run["gc/pause_seconds"])
    run["gc/collections"] = np.where(pauses, 3.0, run["gc/collections"])
    [finding] = diagnose(tmp_path, run).findings
    assert " ms each on average" in finding.headline
    assert "longest pause" not in {evidence.label for evidence in finding.evidence}
    assert "up to" not in finding.headline
    run["gc/longest_pause_seconds"] = np.where(pauses, 0.05, np.nan)
    [finding] = diagnose(tmp_path, run).findings
    assert "up to 50 ms at once" in finding.headline


def test_long_but_rare_pauses_are_information(tmp_path):
    run = going_well(1, 2000)
    pauses = np.arange(2000) % 200 == 100
    run["gc/pause_seconds"] = np.where(pauses, 0.04, run["gc/pause_seconds"])
    run["gc/collections"] = np.where(pauses, 1.0, run["gc/collections"])
    diagnosis = diagnose(tmp_path, run)
    assert [(finding.id, finding.severity) for finding in diagnosis.findings] == [("host.gc", "info")]
    assert diagnosis.verdict.severity == "ok"


def test_a_problem_of_several_ranks_is_one_finding_that_lists_them(tmp_path):
    [finding] = diagnose(tmp_path, waiting(0), waiting(1), going_well(2, 600)).findings
    assert finding.rank in (0, 1)
    assert ("2 of 3", "0, 1") in [
        (evidence.value, evidence.note.partition(";")[0]) for evidence in finding.evidence
    ]
    [every] = diagnose(tmp_path, waiting(0), waiting(1)).findings
    assert every.rank is None


def test_dangers_come_first_then_the_problems_that_cost_most_time(tmp_path):
    run = waiting()
    run["loss"][500:] = np.nan
    pauses = np.arange(600) % 20 == 10
    run["gc/pause_seconds"] = np.where(pauses, 0.06, run["gc/pause_seconds"])
    run["gc/collections"] = np.where(pauses, 1.0, run["gc/collections"])
    diagnosis = diagnose(tmp_path, run)
    assert [finding.id for finding in diagnosis.findings] == [
        "num.nonfinite",
        "input.exposed_wait",
        "host.gc",
    ]
    assert len(diagnosis.headlines) == 3
    assert diagnosis.verdict.id == "num.nonfinite"


def test_a_threshold_from_the_settings_is_used(tmp_path):
    run = waiting(wait_s=0.002)
    assert diagnose(tmp_path, run).findings == ()
    settings = {"input.exposed_wait": {"share": 0.02}}
    [finding] = diagnose(tmp_path, run, settings=settings).findings
    assert finding.severity == "notice"
    off = diagnose(tmp_path, waiting(), settings={"input.exposed_wait": {"enabled": False}})
    assert off.findings == ()
    assert "Disabled" in next(check.why_not for check in off.considered if check.id == "input.exposed_wait")


@pytest.mark.parametrize(
    ("library", "frameworks"),
    [
        ("torch", ["PyTorch"]),
        ("lightning", ["Lightning", "PyTorch"]),
        ("transformers", ["Transformers", "PyTorch"]),
    ],
)
def test_advice_on_clipping_is_for_the_framework_in_use(tmp_path, library, frameworks):
    run = going_well(7, 800)
    run["loss"][600] *= 50
    [finding] = diagnose(tmp_path, run, facts={"libraries": {library: "1.0"}}).findings
    assert finding.id == "conv.spike"
    assert [remedy.framework for remedy in finding.remedies if remedy.framework] == frameworks
