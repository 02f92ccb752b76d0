"""Thresholds by name, as older settings have them."""

import math

import numpy as np
import pytest

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.run_history import History
from stepscope.alerts.thresholds import threshold_rules
from stepscope.errors import ConfigError
from tests.alerts.made_up import feed, gpu, machine, source

TODAY = {
    "cpu_usage_percent": (90.0, "cpu/utilization_ratio", machine(), 0.9),
    "cpu_percent": (90.0, "cpu/utilization_ratio", machine(), 0.9),
    "cpu_usage": (0.95, "cpu/utilization_ratio", machine(), 0.95),
    "memory_usage_percent": (85.0, "memory/used_ratio", machine(), 0.85),
    "memory_percent": (85.0, "memory/used_ratio", machine(), 0.85),
    "memory_usage": (0.85, "memory/used_ratio", machine(), 0.85),
    "gpu_utilization": (95.0, "gpu/utilization_ratio", gpu(), 0.95),
    "gpu_memory_percent": (90.0, "gpu/memory_used_ratio", gpu(), 0.9),
    "gpu_memory": (0.9, "gpu/memory_used_ratio", gpu(), 0.9),
    "gpu_temperature": (85.0, "gpu/temperature_celsius", gpu(), 85.0),
    "training_time_per_step": (10.0, "step_seconds", source(), 10.0),
    "gradient_norm": (100.0, "gradient_norm", source(), 100.0),
    "grad_norm_exploded": (10.0, "gradient_norm", source(), 10.0),
    "loss": (2.0, "loss", source(), 2.0),
    "my odd-metric": (-2.5, "my odd-metric", source(), -2.5),
}


def is_true(name, limit, key, values, of):
    [rule] = threshold_rules({name: limit})
    history = History()
    now_ns = feed(history, key, values, of=of)
    [outcome] = evaluate(rule.condition, history, now_ns)
    return outcome.is_true


@pytest.mark.parametrize("name", TODAY)
def test_a_threshold_is_converted_to_the_current_metric_and_unit(name):
    limit, key, of, passed_at = TODAY[name]
    margin = abs(passed_at) / 100
    assert is_true(name, limit, key, [passed_at + margin] * 60, of) is True
    assert is_true(name, limit, key, [passed_at - margin] * 60, of) is False


@pytest.mark.parametrize(("level", "fires"), [(2.1, False), (2.3, True)])
def test_a_loss_is_compared_with_its_baseline(level, fires):
    losses = [2.0] * 200 + [level] * 30
    assert is_true("loss_increase", 0.1, "loss", losses, source()) is fires
    assert is_true("loss_increase", 0.1, "train/loss", losses, source()) is fires


def test_a_negative_loss_increases_when_it_rises():
    assert is_true("loss_increase", 0.1, "loss", [-2.0] * 200 + [-1.5] * 30, source()) is True
    assert is_true("loss_increase", 0.1, "loss", [-2.0] * 200 + [-2.5] * 30, source()) is False


@pytest.mark.parametrize(("step_s", "fires"), [(1.0, False), (1.9, False), (2.1, True)])
def test_a_speed_is_compared_with_its_baseline(step_s, fires):
    seconds = np.array([1.0] * 200 + [step_s] * 30)
    assert is_true("training_speed", 0.5, "step_seconds", seconds, source()) is fires


@pytest.mark.parametrize("limit", [True, math.nan, math.inf, "5"])
def test_a_threshold_must_be_a_number(limit):
    with pytest.raises(ConfigError, match=r"alerts.thresholds.loss is .*; it must be a number."):
        threshold_rules({"loss": limit})


def test_a_share_must_be_above_zero():
    with pytest.raises(ConfigError, match="training_speed is 0.0; it must be a share above 0"):
        threshold_rules({"training_speed": 0})


def test_each_threshold_becomes_a_rule_of_its_name():
    rules = threshold_rules({name: limit for name, (limit, *_) in TODAY.items()})
    assert [rule.name for rule in rules] == list(TODAY)
