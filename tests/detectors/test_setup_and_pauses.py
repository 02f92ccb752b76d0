"""Evaluations, checkpoints, compilations and debugging aids that take time, and those that do not."""

import numpy as np
import pytest

from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600


def with_evaluations(share: float, every: int = 50, steps: int = STEPS) -> dict:
    """A healthy run that evaluates every few steps, for a share of the whole time."""
    run = going_well(1, steps)
    evaluates = np.arange(steps) % every == every - 1
    each = float(run["step_seconds"].sum()) * share / (1 - share) / evaluates.sum()
    run["gap/eval_seconds"] = np.where(evaluates, each, np.nan)
    return run


def with_checkpoints(each_s: float, every: int, steps: int = 2 * STEPS) -> dict:
    """A healthy run that writes checkpoints between steps."""
    run = going_well(2, steps)
    saves = np.arange(steps) % every == every - 1
    run["phase/checkpoint_seconds"] = np.where(saves, each_s, 0.0)
    run["gap/checkpoint_seconds"] = np.where(saves, each_s, np.nan)
    return run


def compiled(late: dict[int, float], **events: dict) -> tuple[dict, tuple]:
    """A healthy run whose model is compiled in the first step, and again for some seconds in later ones."""
    run = going_well(3, STEPS)
    seconds = np.full(STEPS, np.nan)
    seconds[0] = 20.0
    for step, took in late.items():
        seconds[step] = took
        run["step_seconds"][step] += took
    run["compile/seconds"] = seconds
    run["compile/recompiles"] = np.where(np.isnan(seconds), np.nan, (np.arange(STEPS) > 0).astype(float))
    run["compile/graph_breaks"] = run["compile/limit_hits"] = seconds * 0.0
    return run, tuple(events.items())


@pytest.mark.parametrize("share", [0.25, 0.6, 0.9])
def test_evaluations_that_take_much_time_are_reported_with_how_rare_they_should_be(tmp_path, share):
    [finding] = diagnose(tmp_path, with_evaluations(share)).findings
    assert (finding.id, finding.severity) == ("eval.dominates", "warning")
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "12 evaluations" in finding.headline
    assert "one in 50 steps" in finding.headline
    rarer = int(finding.tries[0].split()[3].replace(",", ""))
    # As often as that, evaluations take at most a tenth.
    assert share / rarer / (share / rarer + (1 - share) / 50) <= 0.1
    assert f"step % {rarer} == 0" in finding.remedies[0].code
    assert finding.estimate.low < finding.estimate.likely < finding.estimate.high <= 1


@pytest.mark.parametrize("share", [0.05, 0.15])
def test_evaluations_that_take_little_time_are_fine(tmp_path, share):
    diagnosis = diagnose(tmp_path, with_evaluations(share))
    assert diagnosis.findings == ()
    assert "Evaluation takes" in {check.id: check.why_not for check in diagnosis.considered}["eval.dominates"]


def test_one_long_evaluation_at_the_end_is_not_a_habit(tmp_path):
    run = with_evaluations(0.5, every=STEPS)
    diagnosis = diagnose(tmp_path, run)
    assert diagnosis.findings == ()
    assert "eval.dominates" in diagnosis.checks.not_run


def test_advice_on_evaluations_is_for_the_framework_in_use(tmp_path):
    libraries = {"torch": "2.9", "transformers": "5.0"}
    [finding] = diagnose(tmp_path, with_evaluations(0.6), facts={"libraries": libraries}).findings
    assert finding.remedies[0].framework == "Transformers"
    assert 'eval_strategy="steps"' in finding.remedies[0].code
    [finding] = diagnose(
        tmp_path, with_evaluations(0.6), facts={"libraries": {"pytorch_lightning": "2.5"}}
    ).findings
    assert finding.remedies[0].framework == "Lightning"


@pytest.mark.parametrize(("each_s", "every"), [(0.1, 10), (2.0, 50), (0.05, 40)])
def test_checkpoints_that_take_time_are_reported_with_a_better_interval(tmp_path, each_s, every):
    [finding] = diagnose(tmp_path, with_checkpoints(each_s, every)).findings
    assert finding.id == "ckpt.stall"
    expected = each_s / (each_s + every * 0.0505)
    assert finding.share == pytest.approx(expected, rel=0.15)
    assert finding.severity == ("warning" if finding.share > 0.06 else "notice")
    rarer = int(finding.tries[0].split()[3].replace(",", ""))
    # Young: the square root of twice the cost times a day.
    assert np.sqrt(2 * each_s * 86400) / 0.06 <= rarer <= 5 * np.sqrt(2 * each_s * 86400) / 0.04
    assert finding.estimate.likely == pytest.approx(finding.share, rel=0.1)


def test_rare_checkpoints_are_fine(tmp_path):
    assert diagnose(tmp_path, with_checkpoints(0.1, 300)).findings == ()
    assert diagnose(tmp_path, with_checkpoints(0.02, 50)).findings == ()


def test_a_run_of_seconds_may_spend_some_of_them_on_checkpoints(tmp_path):
    assert diagnose(tmp_path, with_checkpoints(0.05, 20, steps=100)).findings == ()
    [finding] = diagnose(tmp_path, with_checkpoints(0.5, 20, steps=100)).findings
    assert finding.id == "ckpt.stall"


def test_anomaly_detection_that_is_still_on_is_reported(tmp_path):
    on = ("census", {**SETUP[1], "detect_anomaly": True})
    [finding] = diagnose(tmp_path, going_well(4, STEPS), events=(on,)).findings
    assert (finding.id, finding.severity) == ("cfg.debug_left_on", "warning")
    assert finding.headline.startswith("Anomaly detection is on")
    assert "set_detect_anomaly(False)" in finding.remedies[0].code


def test_anomaly_detection_that_was_switched_off_again_is_not_reported(tmp_path):
    on = ("census", {**SETUP[1], "detect_anomaly": True})
    assert diagnose(tmp_path, going_well(4, STEPS), events=(on, SETUP)).findings == ()


@pytest.mark.parametrize(
    "name", ["CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_DISTRIBUTED_DEBUG"]
)
def test_variables_for_gpus_and_ranks_count_only_where_there_are_some(tmp_path, name):
    value = "DETAIL" if name == "TORCH_DISTRIBUTED_DEBUG" else "1"
    fields = {**SETUP[1], "environment": {name: value}}
    run = going_well(5, STEPS)
    assert diagnose(tmp_path, run, events=(("census", fields),)).findings == ()
    gpu = ("census", {**fields, "devices": [{"index": 0, "name": "H200"}]})
    [finding] = diagnose(tmp_path, run, run, events=(gpu,)).findings
    assert finding.id == "cfg.debug_left_on"
    assert name in finding.headline


def test_the_deterministic_mode_is_a_hint_on_a_gpu_only(tmp_path):
    run = going_well(5, STEPS)
    fields = {**SETUP[1], "deterministic_algorithms": True}
    assert diagnose(tmp_path, run, events=(("census", fields),)).findings == ()
    gpu = ("census", {**fields, "devices": [{"index": 0, "name": "H200"}]})
    [finding] = diagnose(tmp_path, run, events=(gpu,)).findings
    assert (finding.id, finding.severity) == ("cfg.debug_left_on", "info")
    assert finding.headline.startswith("The deterministic mode is on")


def test_compilations_again_and_again_are_reported_with_their_reason(tmp_path):
    late = dict.fromkeys(range(100, 400, 50), 3.0)
    reason = {"reason": "tensor 'x' size mismatch at index 0. expected 64, actual 63", "place": "train.py:12"}
    run, events = compiled(late, recompile=reason)
    [finding] = diagnose(tmp_path, run, events=events).findings
    assert finding.id == "compile.recompile"
    assert "compiled again in 6 steps at train.py:12" in finding.headline
    assert finding.as_dict()["where"] == "train.py:12"
    assert reason["reason"] in [evidence.value for evidence in finding.evidence]
    assert "drop_last=True" in finding.remedies[0].code
    assert finding.share == pytest.approx(18 / run["step_seconds"].sum())


@pytest.mark.parametrize("late", [{}, {100: 0.05}, dict.fromkeys(range(2, 12), 3.0)])
def test_compilations_in_the_first_steps_or_of_little_time_are_fine(tmp_path, late):
    run, events = compiled(late)
    assert [finding.id for finding in diagnose(tmp_path, run, events=events).findings] == []


def test_a_function_that_is_no_longer_compiled_is_reported_even_in_the_first_steps(tmp_path):
    reason = "0/7: mode == 'b' # if mode == 'a': # train.py:18 in forward User stack trace: ..."
    gave_up = {"reason": reason, "function": "forward", "place": "model.py:7"}
    run, events = compiled(dict.fromkeys(range(2, 10), 0.1), compile_limit=gave_up)
    [finding] = diagnose(tmp_path, run, events=events).findings
    assert (finding.id, finding.severity, finding.estimate) == ("compile.recompile", "warning", None)
    assert finding.headline == "PyTorch has given up compiling `forward` at model.py:7."
    values = {evidence.label: evidence.value for evidence in finding.evidence}
    assert values == {"compiled again": "8 times", "because": "mode == 'b'"}
    assert finding.tries == ("no Python values that change",)


def test_a_graph_that_ends_early_is_a_notice_with_the_line(tmp_path):
    cut = {"reason": "Unsupported Tensor.item() call", "place": "train.py:17 in forward"}
    run, events = compiled({}, graph_break=cut)
    [finding] = diagnose(tmp_path, run, events=events).findings
    assert (finding.id, finding.severity, finding.share) == ("compile.graph_break", "notice", None)
    assert finding.headline == "The compiled model is cut at 1 place, first at train.py:17 in forward."
    assert finding.where == "train.py:17 in forward"
    assert "loss.item()" in finding.remedies[0].code
