"""Number formats and the order of calls in a loop that cost time, or keep a model from learning."""

import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 300


def setup(**fields) -> tuple[str, dict]:
    return SETUP[0], {**SETUP[1], **fields}


def ids(diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings]


def test_a_model_in_float64_is_reported_with_the_time_that_float32_saves(tmp_path):
    event = setup(parameter_dtypes={"float64": 900_000, "float32": 1_000})
    [finding] = diagnose(tmp_path, going_well(1, STEPS), events=(event,)).findings
    assert (finding.id, finding.severity) == ("prec.float64", "notice")
    assert "model.float()" in finding.remedies[0].code
    assert 0 < finding.estimate.low < finding.estimate.likely < finding.estimate.high < 1


def test_a_float64_buffer_or_a_run_that_waits_for_data_is_not_reported(tmp_path):
    mostly_float32 = setup(parameter_dtypes={"float64": 10, "float32": 1_000_000})
    assert ids(diagnose(tmp_path / "buffer", going_well(1, STEPS), events=(mostly_float32,))) == []
    waits = going_well(1, STEPS)
    waits["phase/data_seconds"] = 9 * waits["step_seconds"]
    waits["step_seconds"] = 10 * waits["step_seconds"]
    in_float64 = setup(parameter_dtypes={"float64": 1_000_000})
    assert "prec.float64" not in ids(diagnose(tmp_path / "waits", waits, events=(in_float64,)))


@pytest.mark.parametrize(
    ("parameters", "first_advice"), [(1_000, "Clear the gradients"), (400, "Look between")]
)
def test_gradients_that_are_missing_everywhere_were_cleared_before_the_step(
    tmp_path, parameters, first_advice
):
    cut_off = {"layers": 3, "parameters": parameters, "names": ["0", "2", "4"]}
    event = setup(cut_off=cut_off, trainable_parameters=1_000)
    [finding] = diagnose(tmp_path, going_well(1, STEPS, shape="plateau"), events=(event,)).findings
    assert finding.id == "grad.missing"
    assert finding.remedies[0].text.startswith(first_advice)
    assert ("No parameter has a gradient" in finding.headline) == (parameters == 1_000)


def test_a_checkpoint_in_each_step_is_called_that(tmp_path):
    run = going_well(2, STEPS)
    run["phase/checkpoint_seconds"] = run["step_seconds"] * 0 + 0.02
    run["step_seconds"] = run["step_seconds"] + 0.02
    [finding] = [each for each in diagnose(tmp_path, run).findings if each.id == "ckpt.stall"]
    assert finding.headline.endswith("one in each step.")
