"""The rules that hold for every run unless they are switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.rule import rules_from
from stepscope.alerts.thresholds import LOSS, threshold_rules
from stepscope.config.wording import nearest
from stepscope.errors import ConfigError
from stepscope.schema.keys import BATCH_SIZES

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from stepscope.alerts.rule import Rule
    from stepscope.config.sections import Alerts

# Where a GPU times its own phases they count: what the host waits for while the GPU has work costs nothing.
DATA, STEP = "device/data_seconds|phase/data_seconds", "device/step_seconds|step_seconds"
INPUT_SHARE = f"median({DATA}, 100 points) / median({STEP}, 100 points)"

# How long a step takes for what it does. Sizes are recorded less often than steps, so fewer of them tell of
# the same time; those of the first batches go with the steps that the baseline is made from.
WORK = "|".join(BATCH_SIZES)
SECONDS_FOR_WORK = f"median(step_seconds, 50 points) / median({WORK}, 10 points)"
SECONDS_AT_FIRST = f"baseline(step_seconds) / start({WORK})"

HELD_BY_HEAT_OR_POWER = ("hardware_thermal", "software_thermal", "hardware_slowdown", "power_brake")

RULES: list[dict[str, Any]] = [
    {
        "name": "nonfinite_loss",
        "when": f"nonfinite({LOSS}, 20 points) > 0",
        "severity": "critical",
        "message": "The loss is not a finite number: {value:.0f} of its last 20 values are NaN or infinite.",
        "advice": (
            "Stop and go back to the last good checkpoint. Look at the gradients of the steps before, lower "
            "the learning rate or clip gradients, and look for a division or a logarithm of zero."
        ),
    },
    {
        "name": "loss_divergence",
        "when": f"divergence({LOSS}, 1000 points) > 0",
        "for": "5 points",
        # The rise leaves the window sooner or later, and is over only when the loss has come back.
        "clear": f"recovery({LOSS}, 20 points) > 50%",
        "severity": "critical",
        "message": "The loss is diverging: it has risen by {value} and does not come back.",
        "advice": "Lower the learning rate, clip gradients, or go back to a checkpoint from before the rise.",
    },
    {
        "name": "stalled",
        "when": 'status == "stalled"',
        "severity": "critical",
        "message": "The training is stalled: {reason}.",
        "advice": "Look at what its processes are doing, with py-spy dump --pid, and at the other ranks.",
    },
    {
        "name": "crashed",
        "when": 'status == "crashed" or status == "failed"',
        "severity": "critical",
        "message": "The training {status}: {reason}.",
        "advice": "stepscope show has its last events. Start again from the newest checkpoint.",
    },
    {
        "name": "memory_risk",
        "when": (
            "gpu/memory_used_ratio >= 92% and slope(gpu/memory_used_ratio, 5m) > 1e-5 "
            "and gpu/memory_used_ratio + 600 * slope(gpu/memory_used_ratio, 5m) >= 1"
        ),
        "clear": "gpu/memory_used_ratio < 90% or slope(gpu/memory_used_ratio, 5m) <= 0",
        "for": "2m",
        "message": "The memory of the GPU is {gpu/memory_used_ratio:.0%} full and grows: minutes are left.",
        "advice": (
            "Look for tensors that are kept from step to step, such as a loss that is added up with its "
            "graph; or lower the batch size."
        ),
    },
    {
        "name": "memory_retries",
        "when": (
            "delta(memory/alloc_retries_total, 5m) > 2 and memory/alloc_retries_total - "
            "baseline(memory/alloc_retries_total) > 2"
        ),
        "clear": "delta(memory/alloc_retries_total, 5m) <= 0",
        "message": "PyTorch had to empty its cache of GPU memory {value:.0f} times in 5 minutes to go on.",
        "advice": (
            "Each time waits for the GPU, and the next may fail. Lower the batch size, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        ),
    },
    {
        "name": "gpu_hot",
        "when": "median(gpu/temperature_celsius, 1m) >= 85",
        "clear": "median(gpu/temperature_celsius, 1m) < 80",
        "for": "60s",
        "message": "The GPU is at {value:.0f} °C.",
        "advice": "Look at its fans and at the air around it; a lower power limit cools it at once.",
    },
    {
        "name": "gpu_throttled",
        "when": " or ".join(f"mean(gpu/throttled_{one}, 5m) >= 1%" for one in HELD_BY_HEAT_OR_POWER),
        "for": "60s",
        "message": "The GPU slows itself down for heat or want of power, {value:.0%} of the last 5 minutes.",
        "advice": "Look at its cooling and its power supply. Other ranks wait for this one.",
    },
    {
        "name": "memory_pressure",
        "when": "median(memory/nearest_limit_used_ratio, 1m) >= 90%",
        "clear": "median(memory/nearest_limit_used_ratio, 1m) < 85%",
        "for": "60s",
        "message": "The memory of the machine, or of its container, is {value:.0%} full.",
        "advice": (
            "At 100 % a process is killed. Use fewer loader workers or a smaller prefetch_factor, and look "
            "for memory that grows from epoch to epoch."
        ),
    },
    {
        "name": "input_bound",
        "when": f"{INPUT_SHARE} >= 20% and count({STEP}, 100 points) >= 20",
        "clear": f"{INPUT_SHARE} < 15%",
        "for": "60s",
        "message": "The training spends {value:.0%} of each step waiting for data.",
        "advice": "Use more loader workers, pin_memory=True, or do in advance what is done to each sample.",
    },
    {
        "name": "throughput_drop",
        "when": (
            "median(step_seconds, 50 points) > 1.5 * baseline "
            f"and {SECONDS_FOR_WORK} > 1.5 * {SECONDS_AT_FIRST}"
        ),
        "clear": "median(step_seconds, 50 points) < 1.25 * baseline",
        "for": "60s",
        "message": "A step takes {value} s; {threshold} s would be half as much again as at first.",
        "advice": "Compare the phases of a step with those at the start, and look for others on the machine.",
    },
    {
        "name": "disk_full",
        "when": "disk/used_ratio >= 95% and disk/free_bytes < 20GiB",
        "clear": "disk/used_ratio < 94% or disk/free_bytes > 25GiB",
        "for": "30s",
        "message": "The file system {device} is {disk/used_ratio:.0%} full.",
        "advice": "Remove old checkpoints: the next one may not fit.",
    },
    {
        "name": "gradient_explosion",
        "when": (
            "p90(gradient_norm, 20 points) > max(100 * median(gradient_norm, 200 points), 1) "
            "and p90(gradient_norm, 20 points) > highest_before(gradient_norm, 20 points) "
            "and count(gradient_norm, 200 points) >= 60"
        ),
        "message": "The norm of the gradients rose to {value}; usual is a hundredth of {threshold}.",
        "advice": "Clip gradients, and look at the batches of these steps.",
    },
]


def default_rules(switched_off: Collection[str] = ()) -> list[Rule]:
    """All of them but those whose names are given."""
    return [rule for rule in rules_from(RULES, "the default rules") if rule.name not in switched_off]


def rules_of(settings: Alerts) -> list[Rule]:
    """All rules of these settings; one of the user's takes the place of a usual one of the same name."""
    if not settings.enabled:
        return []
    return [rule for rule in every_rule(settings) if rule.name not in settings.disabled]


def every_rule(settings: Alerts) -> list[Rule]:
    """The same with those that are switched off, which are not enabled."""
    found = {rule.name: rule for rule in default_rules()}
    for rule in (*threshold_rules(settings.thresholds), *rules_from(settings.rules)):
        found[rule.name] = rule
    return [
        replace(rule, enabled=False) if name in settings.disabled else rule for name, rule in found.items()
    ]


def check_rules(settings: Alerts) -> None:
    """Raises ConfigError for a rule, a name or a time that makes no sense."""
    known = {rule.name for rule in every_rule(settings)}
    for name in settings.disabled:
        if name not in known:
            meant = nearest(name, known)
            rest = f"did you mean {meant!r}?" if meant else f"there are {', '.join(sorted(known))}."
            raise ConfigError(f"alerts.disabled has {name!r}, and there is no such rule; {rest}")
    if settings.quiet_hours is not None:
        QuietHours.parse(settings.quiet_hours)
