"""Converts thresholds by name, as older settings have them, into rules over the current metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stepscope.alerts.conditions.expression import parse
from stepscope.alerts.conditions.tree import Comparison, Expression, Name, Negative, Number
from stepscope.alerts.rule import Rule
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOSS = "loss|train_loss|train/loss|training_loss"
"""Common names of the loss; the first one that a run has is used."""

PERCENT = {
    "cpu_usage_percent": "mean(cpu/utilization_ratio, 30s)",
    "cpu_percent": "mean(cpu/utilization_ratio, 30s)",
    "cpu_usage": "mean(cpu/utilization_ratio, 30s)",
    "memory_usage_percent": "memory/used_ratio",
    "memory_percent": "memory/used_ratio",
    "memory_usage": "memory/used_ratio",
    "gpu_utilization": "mean(gpu/utilization_ratio, 30s)",
    "gpu_memory_percent": "gpu/memory_used_ratio",
    "gpu_memory": "gpu/memory_used_ratio",
}
"""Thresholds in percent for metrics that are ratios now; a value of 1 or less is taken as a ratio."""

PLAIN = {
    "gpu_temperature": "gpu/temperature_celsius",
    "training_time_per_step": "step_seconds",
    "gradient_norm": "gradient_norm",
    "grad_norm_exploded": "gradient_norm",
}
"""Thresholds for metrics that have another name now, in the same unit."""

BASELINE = {
    "loss_increase": f"median({LOSS}, 20 points) - baseline({LOSS}) > {{limit}} * abs(baseline({LOSS}))",
    "training_speed": "median(step_seconds, 20 points) * {limit} > baseline",
}
"""Thresholds relative to the beginning of the run itself."""

MESSAGES = {
    "loss_increase": "Loss is {value:.4g} above its initial level; the limit is {threshold:.4g}.",
    "training_speed": "A step takes {step_seconds:.3g} s, too slow compared with the start of the run.",
}


def threshold_rules(thresholds: Mapping[str, float], where: str = "alerts.thresholds") -> list[Rule]:
    """Creates a rule for each threshold, named after it; an unknown name is taken as the name of a metric."""
    return [_rule(name, limit, f"{where}.{name}") for name, limit in thresholds.items()]


def _rule(name: str, limit: float, where: str) -> Rule:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not is_number or not math.isfinite(limit):
        raise ConfigError(f"{where} is {limit!r}; it must be a number.")
    if name in BASELINE:
        return _against_baseline(name, float(limit), where)
    if name in PERCENT:
        return Rule(name, parse(f"{PERCENT[name]} > {limit / 100 if limit > 1 else limit!r}"))
    if name in PLAIN:
        return Rule(name, _above(Name((PLAIN[name],)), float(limit)))
    return Rule(name, _above(Name((name,)), float(limit)))


def _against_baseline(name: str, limit: float, where: str) -> Rule:
    if limit <= 0:
        raise ConfigError(f"{where} is {limit!r}; it must be a share above 0, such as 0.5 for half.")
    condition = parse(BASELINE[name].format(limit=repr(limit)))
    return Rule(name, condition, message=MESSAGES[name])


def _above(metric: Expression, limit: float) -> Expression:
    number = Number(abs(limit))
    return Comparison(">", metric, Negative(number) if limit < 0 else number)
