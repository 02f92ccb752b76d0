"""Finds alert rules that cannot fire because the run does not record their metrics."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.alerts.conditions.expression import unknown_metrics
from stepscope.alerts.defaults import default_rules
from stepscope.alerts.target_rules import KEYS
from stepscope.samplers.base import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stepscope.alerts.rule import Rule
    from stepscope.store.base import Reader

FIRST_CHECK_NS = 60 * 10**9
"""Time that a run has to record every metric for the first time."""

RULE_FIELD = "rule"
"""Field of a notice event that names the rule."""


class UnrecordedMetrics:
    """Checks the rules of one run, each once. Default rules are skipped: no run records all their metrics."""

    def __init__(self, run_id: str, began_ns: int) -> None:
        self._run_id, self._began_ns = run_id, began_ns
        self._next_ns = began_ns + FIRST_CHECK_NS
        self._checked: set[str] = set()

    def skip(self, rule: str) -> None:
        """Notes that a rule was reported before, by an earlier agent."""
        self._checked.add(rule)

    def check(
        self, rules: Collection[Rule], reader: Reader, now_ns: int, *, has_ended: bool
    ) -> Iterator[tuple[str, str]]:
        """Yields name and warning for each rule that uses a metric that was not recorded so far."""
        if now_ns < self._next_ns and not has_ended:
            return
        self._next_ns = now_ns + FIRST_CHECK_NS
        new = [rule for rule in rules if rule.name not in self._checked and not _is_default(rule)]
        if not new:
            return
        known = {info.key for axis in ("step", "seconds") for info in reader.keys(self._run_id, axis)} | KEYS
        if now_ns - self._began_ns < FIRST_CHECK_NS:
            known |= sampled_keys()  # a short run may end before every sampler was polled
        for rule in new:
            self._checked.add(rule.name)
            warnings = [] if rule.condition is None else unknown_metrics(rule.condition, known)
            if warnings:
                text = f"Alert rule {rule.name!r} uses a metric that is not recorded: {' '.join(warnings)}"
                yield rule.name, text


def sampled_keys() -> set[str]:
    """Returns every metric that samplers can read."""
    samplers = [plugins.load("samplers", name, Sampler) for name in plugins.names("samplers")]  # type: ignore[type-abstract]  # only its members
    return {metric.key for sampler in samplers for metric in sampler.metrics}


def _is_default(rule: Rule) -> bool:
    return rule == _default_rules_by_name().get(rule.name)


@functools.cache
def _default_rules_by_name() -> dict[str, Rule]:
    return {rule.name: rule for rule in default_rules()}
