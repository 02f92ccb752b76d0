"""Turns limits by name, as older settings have them, into rules over today's metrics."""

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
"""What people call the loss; the first that a run has is meant."""

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
"""Limits in percent of what is a ratio today; one of 1 or less is taken for a ratio."""

PLAIN = {
    "gpu_temperature": "gpu/temperature_celsius",
    "training_time_per_step": "step_seconds",
    "gradient_norm": "gradient_norm",
    "grad_norm_exploded": "gradient_norm",
}
"""Limits of what has another name today, in the same unit."""

BASELINE = {
    "loss_increase": f"median({LOSS}, 20 points) - baseline({LOSS}) > {{limit}} * abs(baseline({LOSS}))",
    "training_speed": "median(step_seconds, 20 points) * {limit} > baseline",
}
"""Limits against what the run itself was like at first."""

MESSAGES = {
    "loss_increase": "The loss is at {value:.4g} above what it was at first; the limit is {threshold:.4g}.",
    "training_speed": "A step takes {step_seconds:.3g} s, which is too slow beside the run's own start.",
}


def threshold_rules(thresholds: Mapping[str, float], where: str = "alerts.thresholds") -> list[Rule]:
    """A rule for each limit, by the name of the limit; a name that is no older one is a metric's own."""
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
        raise ConfigError(f"{where} is {limit!r}; it must be a share above 0, such as 0.5 for one half.")
    condition = parse(BASELINE[name].format(limit=repr(limit)))
    return Rule(name, condition, message=MESSAGES[name])


def _above(metric: Expression, limit: float) -> Expression:
    number = Number(abs(limit))
    return Comparison(">", metric, Negative(number) if limit < 0 else number)
