"""Parameters that no optimizer updates and models trained in evaluation mode, as their setup tells it."""

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600
MODEL = {"trainable_parameters": 10_000, "trainable_tensors": 20}
NONE_LEFT_OUT = {"tensors": 0, "parameters": 0, "names": []}
EVAL = {"training": False, "since_step": 200, "from_start": False, "layers": 6, "layers_in_training": 0}


def setup(not_updated: dict | None = NONE_LEFT_OUT, mode: dict | None = None) -> tuple[str, dict]:
    """A setup as the recorder describes it after the first steps; None for what it could not tell."""
    fields = {**SETUP[1], **MODEL, "not_updated": not_updated, "mode": mode or {"training": True}}
    return SETUP[0], {name: value for name, value in fields.items() if value is not None}


def why_not(diagnosis, name: str) -> str:
    return next(check.why_not for check in diagnosis.considered if check.id == name)


def test_parameters_that_no_optimizer_has_are_reported_with_names_and_counts(tmp_path):
    left_out = {"tensors": 2, "parameters": 1_300, "names": ["head.weight", "head.bias"]}
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(setup(left_out),)).findings
    assert (finding.id, finding.severity) == ("opt.not_updating", "warning")
    assert finding.headline == (
        "2 trainable tensors (13% of the trainable parameters) are in no optimizer: `head.weight` and others."
    )
    values = {evidence.label: (evidence.value, evidence.note) for evidence in finding.evidence}
    assert values["parameters in them"] == ("1,300", "of 10,000 trainable parameters")
    assert values["names"] == ("head.weight, head.bias", "")
    assert [remedy.framework for remedy in finding.remedies] == ["PyTorch", "PyTorch"]
    assert "add_param_group" in finding.remedies[0].code
    assert "requires_grad_(False)" in finding.remedies[1].code


def test_of_many_parameters_in_no_optimizer_only_the_first_are_named(tmp_path):
    left_out = {"tensors": 12, "parameters": 9_000, "names": [f"blocks.{n}.weight" for n in range(5)]}
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(setup(left_out),)).findings
    assert finding.evidence[-1].value.endswith("blocks.4.weight and 7 more")


def test_a_single_parameter_in_no_optimizer_is_written_in_the_singular(tmp_path):
    left_out = {"tensors": 1, "parameters": 10, "names": ["scale"]}
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(setup(left_out),)).findings
    assert finding.headline.startswith("1 trainable tensor (0.1% of the trainable parameters) is in no")
    assert finding.headline.endswith("`scale`.")


def test_fewer_parameters_than_the_threshold_are_not_reported(tmp_path):
    left_out = {"tensors": 3, "parameters": 10, "names": ["a", "b", "c"]}
    settings = {"opt.not_updating": {"tensors": 4}}
    diagnosis = diagnose(tmp_path, going_well(1, STEPS), events=(setup(left_out),), settings=settings)
    assert diagnosis.findings == ()
    assert why_not(diagnosis, "opt.not_updating").startswith("3 of the trainable tensors with gradients are")


def test_in_lightning_the_advice_is_for_configure_optimizers(tmp_path):
    left_out = {"tensors": 1, "parameters": 10, "names": ["scale"]}
    libraries = {"libraries": {"torch": "2.9", "pytorch_lightning": "2.5"}}
    events = (setup(left_out),)
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=events, facts=libraries).findings
    assert finding.remedies[0].framework == "Lightning"
    assert "configure_optimizers" in finding.remedies[0].code


def test_parameters_that_were_added_to_an_optimizer_later_are_no_longer_reported(tmp_path):
    left_out = {"tensors": 1, "parameters": 10, "names": ["scale"]}
    diagnosis = diagnose(tmp_path, going_well(1, STEPS), events=(setup(left_out), setup()))
    assert diagnosis.findings == ()
    assert why_not(diagnosis, "opt.not_updating").startswith("All trainable parameters with gradients are")


def test_a_model_whose_parameters_could_not_be_compared_is_not_called_checked(tmp_path):
    events = (setup({"unknown": "the parameters are sharded"}),)
    diagnosis = diagnose(tmp_path, going_well(1, STEPS), events=events)
    assert diagnosis.findings == ()
    assert "opt.not_updating" in diagnosis.checks.not_run
    assert why_not(diagnosis, "opt.not_updating") == "Could not be checked: the parameters are sharded."


@pytest.mark.parametrize("name", ["opt.not_updating", "mode.train_eval"])
def test_a_setup_without_these_facts_is_not_called_checked(tmp_path, name):
    older = (SETUP[0], {"detect_anomaly": False, "environment": {}, "devices": []})
    diagnosis = diagnose(tmp_path, going_well(1, STEPS), events=(older,))
    assert diagnosis.findings == ()
    assert name in diagnosis.checks.not_run


@pytest.mark.parametrize("name", ["opt.not_updating", "mode.train_eval"])
def test_the_checks_do_not_apply_to_a_run_without_a_watched_model(tmp_path, name):
    diagnosis = diagnose(tmp_path, {"loss": np.linspace(2, 1, STEPS)})
    assert name not in diagnosis.checks.not_run
    assert why_not(diagnosis, name).startswith("Applies only to runs that record")


def test_a_model_that_was_not_set_back_to_training_mode_is_a_warning_with_the_step(tmp_path):
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(setup(), setup(mode=EVAL))).findings
    assert (finding.id, finding.severity) == ("mode.train_eval", "warning")
    assert finding.headline == "The model has been trained in evaluation mode since step 200."
    assert (finding.first_step, finding.last_step) == (200, STEPS - 1)
    values = {evidence.label: evidence.value for evidence in finding.evidence}
    assert values == {"steps in evaluation mode": "400", "layers that depend on the mode": "6"}
    assert "model.train()" in finding.remedies[0].code


def test_a_model_in_evaluation_mode_from_the_first_step_on_is_a_notice(tmp_path):
    mode = {**EVAL, "since_step": 1, "from_start": True}
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(setup(mode=mode),)).findings
    assert (finding.id, finding.severity) == ("mode.train_eval", "notice")
    assert "from the first step on" in finding.headline


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ({"training": True}, "The model is in training mode when it is updated"),
        ({**EVAL, "layers": 0}, "has no layer that depends on the mode"),
        ({**EVAL, "layers_in_training": 2}, "some of its layers were set to training mode"),
        ({**EVAL, "since_step": STEPS - 10}, "for 10 steps"),
    ],
)
def test_a_mode_that_is_right_or_has_no_effect_is_no_finding(tmp_path, mode, reason):
    diagnosis = diagnose(tmp_path, going_well(1, STEPS), events=(setup(mode=mode),))
    assert diagnosis.findings == ()
    assert reason in why_not(diagnosis, "mode.train_eval")
    assert "mode.train_eval" not in diagnosis.checks.not_run


def test_a_model_that_was_set_back_to_training_mode_is_no_longer_reported(tmp_path):
    assert diagnose(tmp_path, going_well(1, STEPS), events=(setup(mode=EVAL), setup())).findings == ()


def test_a_mode_that_changed_before_the_newest_steps_is_reported(tmp_path):
    run = going_well(1, 3000)
    [finding] = diagnose(tmp_path, run, events=(setup(mode={**EVAL, "since_step": 5}),)).findings
    assert finding.first_step == 5
    assert finding.first_time <= finding.last_time
