"""The default rules: none fires in a healthy run, and each detects its problem."""

import numpy as np
import pytest

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.run_history import History
from stepscope.alerts.defaults import default_rules
from tests.alerts.made_up import feed
from tests.alerts.simulated import fired, going_well, whole

RULES = {rule.name: rule for rule in default_rules()}
LATE = 1500
"""From this step on things go wrong, of 2,000."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "step_s", "losses"),
    [
        (0, 0.25, "usual"),
        (1, 0.02, "usual"),
        (2, 5.0, "usual"),
        (3, 0.25, "negative"),
        (4, 0.25, "near zero"),
    ],
)
def test_no_rule_fires_in_a_healthy_run(seed, step_s, losses):
    recording = going_well(seed, step_s, losses=losses)
    assert fired(RULES.values(), recording, tick_s=max(5.0, 10 * step_s)) == set()


def late(recording, key, change):
    """Changes the last quarter of a series."""
    seconds = recording.seconds_of(key)
    is_late = seconds > recording.seconds_of("loss")[LATE]
    values = recording[key].astype(float)
    recording[key] = np.where(is_late, change(values, seconds - seconds[np.argmax(is_late)]), values)


def a_loss_that_is_nan(run):
    late(run, "loss", lambda loss, _: np.where(np.arange(len(loss)) == LATE + 100, np.nan, loss))


def a_loss_that_rises(run):
    late(run, "loss", lambda loss, s: loss * 4)


def a_run_that_stalls(run):
    run.status = "stalled"


def a_run_that_crashes(run):
    run.status = "crashed"


def a_run_that_fails(run):
    run.status = "failed"


def a_memory_that_fills(run):
    run["gpu/memory_used_ratio"] = np.minimum(0.5 + run.seconds_of("gpu/memory_used_ratio") / 1200, 1.0)


def a_cache_that_is_emptied(run):
    late(run, "memory/alloc_retries_total", lambda retries, s: retries + np.floor(s / 10))


def a_gpu_that_is_hot(run):
    late(run, "gpu/temperature_celsius", lambda celsius, s: celsius + 20)


def a_gpu_that_slows_itself_down(run):
    late(run, "gpu/throttled_hardware_thermal", lambda flags, s: (s % 20 < 2) * 1.0)


def a_machine_without_memory(run):
    late(run, "memory/nearest_limit_used_ratio", lambda ratio, s: ratio + 0.3)


def a_slow_loader(run):
    late(run, "phase/data_seconds", lambda seconds, s: seconds + 0.1)
    late(run, "step_seconds", lambda seconds, s: seconds + 0.1)


def steps_that_take_longer(run):
    late(run, "step_seconds", lambda seconds, s: seconds * 1.8)


def a_disk_that_fills(run):
    late(run, "disk/used_ratio", lambda ratio, s: ratio * 0 + 0.99)
    late(run, "disk/free_bytes", lambda free, s: free * 0 + 10e9)


def gradients_that_explode(run):
    late(run, "gradient_norm", lambda norms, s: norms * np.where(s < 20, 1e3, 1))


BAD = [
    ("nonfinite_loss", a_loss_that_is_nan),
    ("loss_divergence", a_loss_that_rises),
    ("stalled", a_run_that_stalls),
    ("crashed", a_run_that_crashes),
    ("crashed", a_run_that_fails),
    ("memory_risk", a_memory_that_fills),
    ("memory_retries", a_cache_that_is_emptied),
    ("gpu_hot", a_gpu_that_is_hot),
    ("gpu_throttled", a_gpu_that_slows_itself_down),
    ("memory_pressure", a_machine_without_memory),
    ("input_bound", a_slow_loader),
    ("throughput_drop", steps_that_take_longer),
    ("disk_full", a_disk_that_fills),
    ("gradient_explosion", gradients_that_explode),
]


@pytest.mark.parametrize(("name", "goes_wrong"), BAD, ids=[wrong.__name__ for _, wrong in BAD])
def test_each_problem_fires_its_own_rule_only(name, goes_wrong):
    recording = going_well(seed=5, steps=2000)
    assert fired(RULES.values(), recording) == set()
    goes_wrong(recording)
    assert fired(RULES.values(), recording) == {name}


def test_every_rule_is_tested_with_a_problem():
    assert {name for name, _ in BAD} == RULES.keys()


def test_a_gpu_that_is_kept_busy_by_a_slow_loader_is_not_input_bound():
    recording = going_well(seed=6, steps=2000)
    a_slow_loader(recording)
    for figures in recording.figures.values():
        if "step_seconds" in figures:
            figures["device/data_seconds"] = figures["step_seconds"] * 0.01
            figures["device/step_seconds"] = figures["step_seconds"]
    assert fired(RULES.values(), recording) == set()


def test_rules_can_be_disabled():
    assert {rule.name for rule in default_rules({"input_bound", "stalled"})} == RULES.keys() - {
        "input_bound",
        "stalled",
    }


def test_every_rule_has_a_message_and_advice():
    for rule in RULES.values():
        assert rule.message
        assert rule.advice
        assert rule.severity == (
            "critical"
            if rule.name in ("nonfinite_loss", "loss_divergence", "stalled", "crashed")
            else "warning"
        )


def test_the_default_history_is_long_enough_for_the_default_rules():
    history = History()
    feed(history, "loss", np.zeros(3000), every_s=0.1)
    [series] = history.of("loss").values()
    for rule in RULES.values():
        for reach in rule.reach().values():
            assert reach.points <= len(series)
            assert reach.seconds <= 600


def test_a_clear_condition_has_the_same_subjects_and_is_true_in_a_healthy_run():
    history = whole(going_well(seed=7, steps=2000))
    for rule in RULES.values():
        outcomes = evaluate(rule.condition, *history)
        assert [outcome.is_true for outcome in outcomes] == [False]
        if rule.clear is not None:
            cleared = evaluate(rule.clear, *history)
            assert [(outcome.rank, outcome.host, outcome.device) for outcome in cleared] == [
                (outcome.rank, outcome.host, outcome.device) for outcome in outcomes
            ]
            assert [outcome.is_true for outcome in cleared] == [True]
