"""Turns the targets of a run into alert rules, over figures that the agent computes every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.alerts.rule import rules_from

if TYPE_CHECKING:
    from typing import Any

    from stepscope.alerts.rule import Rule
    from stepscope.config.sections import Targets

PREFIX = "target/"
"""The beginning of the metrics with the current figures: `target/steps_per_second`."""

QUANTITIES = {
    "steps_per_second": ("Speed", " steps/s"),
    "samples_per_second": ("Speed", " samples/s"),
    "gpu_utilization_percent": ("GPU utilization", "%"),
    "cpu_utilization_percent": ("CPU utilization", "%"),
}
"""What each target is called in a message, and its unit."""

COST = "cost"
KEYS = frozenset(f"{PREFIX}{name}" for name in (*QUANTITIES, COST))
NAMES = frozenset(f"target_{name}" for name in (*QUANTITIES, COST))
"""The names of all rules that targets may become."""

WINDOW, LASTING = "12 points", "6 points"
"""Figures come every ten seconds, and only while steps are made: two minutes of training, and one more."""

MAX_CURRENCY = 20

ADVICE = "See what holds the run back: stepscope diagnose."
COST_ADVICE = "Stop the run if its result is not worth more, or raise targets.cost."


def target_rules(targets: Targets, currency: str) -> list[Rule]:
    """Returns a rule for each target that is set."""
    rules = [_rate_rule(name, goal) for name in QUANTITIES if (goal := getattr(targets, name)) is not None]
    if targets.cost is not None:
        rules.append(_cost_rule(targets.cost, currency))
    return rules_from(rules, "targets")


def _rate_rule(name: str, goal: float) -> dict[str, Any]:
    quantity, unit = QUANTITIES[name]
    return {
        "name": f"target_{name}",
        "when": f"median({PREFIX}{name}, {WINDOW}) < {goal!r}",
        "for": LASTING,
        "message": (
            f"{quantity} is {{value}}{unit}, {{difference}}{unit} below the target of {{threshold}}{unit}."
        ),
        "advice": ADVICE,
    }


def _cost_rule(goal: float, currency: str) -> dict[str, Any]:
    unit = currency[:MAX_CURRENCY].replace("{", "{{").replace("}", "}}")
    return {
        "name": f"target_{COST}",
        "when": f"{PREFIX}{COST} > {goal!r}",
        "message": (
            f"The run has cost {{value}} {unit}, {{difference}} {unit} above the target of "
            f"{{threshold}} {unit}."
        ),
        "advice": COST_ADVICE,
    }
