"""The default alert rules, which apply to every run unless they are disabled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.alerts.delivery.quiet_hours import QuietHours
from stepscope.alerts.finding_alerts import PREFIX
from stepscope.alerts.rule import rules_from
from stepscope.alerts.target_rules import NAMES
from stepscope.alerts.thresholds import LOSS, threshold_rules
from stepscope.config.reference import nearest
from stepscope.errors import ConfigError
from stepscope.schema.keys import BATCH_SIZES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from stepscope.alerts.rule import Rule
    from stepscope.config.sections import Alerts

# Times on the GPU's clock are preferred: a wait of the host costs nothing while the GPU has work.
DATA, STEP = "device/data_seconds|phase/data_seconds", "device/step_seconds|step_seconds"
INPUT_SHARE = f"median({DATA}, 100 points) / median({STEP}, 100 points)"

# Step time divided by batch size. Sizes are recorded less often than steps, so fewer of them cover the same
# time; the sizes of the first batches belong to the steps of the baseline.
WORK = "|".join(BATCH_SIZES)
SECONDS_PER_SAMPLE = f"median(step_seconds, 50 points) / median({WORK}, 10 points)"
INITIAL_SECONDS_PER_SAMPLE = f"baseline(step_seconds) / start({WORK})"

THROTTLE_REASONS = ("hardware_thermal", "software_thermal", "hardware_slowdown", "power_brake")

RULES: list[dict[str, Any]] = [
    {
        "name": "nonfinite_loss",
        "when": f"nonfinite({LOSS}, 20 points) > 0",
        "severity": "critical",
        "message": "Loss is not finite: NaN or infinite in {value:.0f} of the last 20 values.",
        "advice": (
            "Stop and go back to the last good checkpoint. Check the gradients of the steps before, lower "
            "the learning rate or clip gradients, and look for a division by zero or a logarithm of zero."
        ),
    },
    {
        "name": "loss_divergence",
        "when": f"divergence({LOSS}, 1000 points) > 0",
        "for": "5 points",
        # The rise leaves the window after a while, but the alert ends only when the loss has come back.
        "clear": f"recovery({LOSS}, 20 points) > 50%",
        "severity": "critical",
        "message": "Loss is diverging: it rose by {value} and has not come back.",
        "advice": "Lower the learning rate, clip gradients, or go back to a checkpoint from before the rise.",
    },
    {
        "name": "stalled",
        "when": 'status == "stalled"',
        "severity": "critical",
        "message": "Training is stalled: {reason}.",
        "advice": "Check what its processes are doing with py-spy dump --pid, and check the other ranks.",
    },
    {
        "name": "crashed",
        "when": 'status == "crashed" or status == "failed"',
        "severity": "critical",
        "message": "Training {status}: {reason}.",
        "advice": "See its last events with stepscope show. Restart from the newest checkpoint.",
    },
    {
        "name": "memory_risk",
        "when": (
            "gpu/memory_used_ratio >= 92% and slope(gpu/memory_used_ratio, 5m) > 1e-5 "
            "and gpu/memory_used_ratio + 600 * slope(gpu/memory_used_ratio, 5m) >= 1"
        ),
        "clear": "gpu/memory_used_ratio < 90% or slope(gpu/memory_used_ratio, 5m) <= 0",
        "for": "2m",
        "message": "GPU memory is {gpu/memory_used_ratio:.0%} full and will be full within minutes.",
        "advice": (
            "Look for tensors that are kept from step to step, such as a loss that is summed with its graph; "
            "or lower the batch size."
        ),
    },
    {
        "name": "memory_retries",
        "when": (
            "delta(memory/alloc_retries_total, 5m) > 2 and memory/alloc_retries_total - "
            "baseline(memory/alloc_retries_total) > 2"
        ),
        "clear": "delta(memory/alloc_retries_total, 5m) <= 0",
        "message": "PyTorch emptied its GPU memory cache {value:.0f} times in 5 minutes to avoid an out of "
        "memory error.",
        "advice": (
            "Each time it waits for the GPU, and the next allocation may fail. Lower the batch size, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        ),
    },
    {
        "name": "gpu_hot",
        "when": "median(gpu/temperature_celsius, 1m) >= 85",
        "clear": "median(gpu/temperature_celsius, 1m) < 80",
        "for": "60s",
        "message": "GPU temperature is {value:.0f} °C.",
        "advice": "Check its fans and the airflow; a lower power limit cools it immediately.",
    },
    {
        "name": "gpu_throttled",
        "when": " or ".join(f"mean(gpu/throttled_{reason}, 5m) >= 1%" for reason in THROTTLE_REASONS),
        "for": "60s",
        "message": "GPU was throttled for heat or lack of power in {value:.0%} of the last 5 minutes.",
        "advice": "Check its cooling and its power supply. Other ranks wait for this one.",
    },
    {
        "name": "memory_pressure",
        "when": "median(memory/nearest_limit_used_ratio, 1m) >= 90%",
        "clear": "median(memory/nearest_limit_used_ratio, 1m) < 85%",
        "for": "60s",
        "message": "Memory of the machine or its container is {value:.0%} full.",
        "advice": (
            "At 100% a process is killed. Use fewer loader workers or a smaller prefetch_factor, and look "
            "for memory that grows from epoch to epoch."
        ),
    },
    {
        "name": "input_bound",
        "when": f"{INPUT_SHARE} >= 20% and count({STEP}, 100 points) >= 20",
        "clear": f"{INPUT_SHARE} < 15%",
        "for": "60s",
        "message": "Training spends {value:.0%} of each step waiting for data.",
        "advice": "Use more loader workers or pin_memory=True, or preprocess the samples in advance.",
    },
    {
        "name": "throughput_drop",
        "when": (
            "median(step_seconds, 50 points) > 1.5 * baseline "
            f"and {SECONDS_PER_SAMPLE} > 1.5 * {INITIAL_SECONDS_PER_SAMPLE}"
        ),
        "clear": "median(step_seconds, 50 points) < 1.25 * baseline",
        "for": "60s",
        "message": "A step takes {value} s; the limit is {threshold} s, 1.5 times the time at the start.",
        "advice": "Compare the phases of a step with those at the start, and look for other processes on the "
        "machine.",
    },
    {
        "name": "disk_full",
        "when": "disk/used_ratio >= 95% and disk/free_bytes < 20GiB",
        "clear": "disk/used_ratio < 94% or disk/free_bytes > 25GiB",
        "for": "30s",
        "message": "File system {device} is {disk/used_ratio:.0%} full.",
        "advice": "Delete old checkpoints: the next one may not fit.",
    },
    {
        "name": "gradient_explosion",
        "when": (
            "p90(gradient_norm, 20 points) > max(100 * median(gradient_norm, 200 points), 1) "
            "and p90(gradient_norm, 20 points) > highest_before(gradient_norm, 20 points) "
            "and count(gradient_norm, 200 points) >= 60"
        ),
        "message": "Gradient norm rose to {value}; the limit is {threshold}, 100 times the usual norm.",
        "advice": "Clip gradients, and check the batches of these steps.",
    },
]


def default_rules(switched_off: Collection[str] = ()) -> list[Rule]:
    """Returns the default rules without those whose names are given."""
    return [rule for rule in rules_from(RULES, "the default rules") if rule.name not in switched_off]


def rules_of(settings: Alerts) -> list[Rule]:
    """Returns the rules of these settings; a user's rule replaces the default rule of the same name."""
    if not settings.enabled:
        return []
    return [rule for rule in all_rules(settings) if rule.name not in settings.disabled]


def all_rules(settings: Alerts, targets: Collection[Rule] = ()) -> list[Rule]:
    """Returns all rules of these settings; those that the settings disable have `enabled=False`.

    `targets` are the rules of a run's targets.
    """
    rules = {rule.name: rule for rule in default_rules()}
    for rule in (*targets, *threshold_rules(settings.thresholds), *rules_from(settings.rules)):
        rules[rule.name] = rule
    return [
        replace(rule, enabled=False) if name in settings.disabled else rule for name, rule in rules.items()
    ]


def known_names(rules: Iterable[Rule], disabled: Collection[str]) -> set[str]:
    """Returns the names that `disabled` may have: those of these rules, of targets and of findings."""
    known = {rule.name for rule in rules} | NAMES
    if any(name.startswith(PREFIX) for name in disabled):
        from stepscope.analysis.detector_registry import known_detectors  # lazy: it loads NumPy

        known |= {f"{PREFIX}{detector}" for detector in known_detectors()}
    return known


def check_rules(settings: Alerts) -> None:
    """Raises ConfigError for an invalid rule, an unknown rule name or invalid quiet hours."""
    known = known_names(all_rules(settings), settings.disabled)
    for name in settings.disabled:
        if name not in known:
            similar = nearest(name, known)
            rest = f"did you mean {similar!r}?" if similar else f"there are {', '.join(sorted(known))}."
            raise ConfigError(f"alerts.disabled has {name!r}, and there is no such rule; {rest}")
    if settings.quiet_hours is not None:
        QuietHours.parse(settings.quiet_hours)
