"""The page on rules: its examples work, and it describes every key, function and default rule."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from stepscope.alerts.conditions.evaluation import evaluate
from stepscope.alerts.conditions.expression import FUNCTIONS
from stepscope.alerts.conditions.run_history import History
from stepscope.alerts.defaults import default_rules
from stepscope.alerts.rule import KEYS, rules_from
from stepscope.alerts.thresholds import BASELINE, PERCENT, PLAIN
from stepscope.cli.checks.settings_check import alert_problems
from stepscope.config.load import load
from tests.alerts.made_up import feed, gpu, machine, source

PAGE = (Path(__file__).parents[2] / "docs" / "alert-rules.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = {
    rule.name: rule
    for block in BLOCKS
    for rule in rules_from(yaml.safe_load(block)["alerts"].get("rules", ()))
}
FALLING, FLAT = np.linspace(5, 1, 1500), np.sin(np.arange(1500.0))


@pytest.mark.parametrize(
    ("name", "key", "of", "bad", "good"),
    [
        ("gpu_idle", "gpu/utilization_ratio", gpu(), [0.3] * 60, [0.9] * 60),
        ("memory_high", "memory/used_ratio", machine(), [0.95], [0.5]),
        ("gpu_memory_high", "gpu/memory_used_ratio", gpu(), [0.95], [0.5]),
        ("io_wait", "cpu/iowait_ratio", machine(), [0.4] * 60, [0.1] * 60),
        ("gpu_warm", "gpu/temperature_celsius", gpu(), [82.0], [70.0]),
        ("loss_does_not_fall", "loss", source(), FLAT, FALLING),
        ("worse_than_at_first", "val/accuracy", source(), [0.9] * 60 + [0.5] * 5, [0.9] * 65),
        ("worker_grows", "process/rss_bytes", source(), 1e6 * np.arange(600), [1e9] * 600),
        ("slow_steps", "step_seconds", source(), [1.0] * 200 + [2.0] * 200, [1.0] * 400),
    ],
)
def test_an_example_fires_when_it_should_and_not_otherwise(name, key, of, bad, good):
    for values, expected in ((bad, True), (good, False)):
        history = History()
        if name == "gpu_idle":
            feed(history, "step_seconds", [1.0] * len(values))
        now_ns = feed(history, key, values, of=of)
        [outcome] = evaluate(EXAMPLES[name].condition, history, now_ns)
        assert outcome.is_true is expected


@pytest.mark.parametrize("block", BLOCKS)
def test_the_settings_of_an_example_are_valid(block, monkeypatch):
    monkeypatch.setenv("SLACK_WEBHOOK", "https://hooks.slack.com/services/T0/B0/x")
    assert not alert_problems(load(yaml.safe_load(block), environment={}))


def test_a_rule_may_count_steps_while_it_uses_a_gpu_metric():
    history = History()
    feed(history, "step_seconds", [0.1] * 600, every_s=0.1)
    now_ns = feed(history, "gpu/utilization_ratio", [0.3] * 60, of=gpu())
    [outcome] = evaluate(EXAMPLES["gpu_idle"].condition, history, now_ns)
    assert outcome.points == 600


@pytest.mark.parametrize("name", [*KEYS, *FUNCTIONS, *(rule.name for rule in default_rules())])
def test_every_key_function_and_default_rule_is_on_the_page(name):
    assert re.search(rf"`{name}[`(]", PAGE)


@pytest.mark.parametrize("name", [*PERCENT, *PLAIN, *BASELINE])
def test_every_threshold_is_on_the_page(name):
    assert f"`{name}`" in PAGE
