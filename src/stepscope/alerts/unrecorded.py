"""Finds alert rules that cannot fire, because the run does not record what they look at."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.alerts.conditions.expression import doubts
from stepscope.alerts.defaults import default_rules
from stepscope.samplers.base import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stepscope.alerts.rule import Rule
    from stepscope.store.base import Reader

FIRST_CHECK_NS = 60 * 10**9
"""A run is given this long to record everything for the first time."""

RULE_FIELD = "rule"
"""Field of a notice of a run that names the rule it is about."""


class UnrecordedMetrics:
    """Checks the rules of one run, each once. The usual rules are left out: they fit most runs, not all."""

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
        """Yields a sentence by the name of each rule that looks at what was not recorded so far."""
        if now_ns < self._next_ns and not has_ended:
            return
        self._next_ns = now_ns + FIRST_CHECK_NS
        new = [rule for rule in rules if rule.name not in self._checked and not _is_usual(rule)]
        if not new:
            return
        known = {info.key for axis in ("step", "seconds") for info in reader.keys(self._run_id, axis)}
        if now_ns - self._began_ns < FIRST_CHECK_NS:
            known |= sampled_keys()  # a short run may end before every sampler was polled
        for rule in new:
            self._checked.add(rule.name)
            found = [] if rule.condition is None else doubts(rule.condition, known)
            if found:
                text = f"The alert rule {rule.name!r} looks at what is not recorded: {' '.join(found)}"
                yield rule.name, text


def sampled_keys() -> set[str]:
    """Every metric that samplers can read."""
    samplers = [plugins.load("samplers", name, Sampler) for name in plugins.names("samplers")]  # type: ignore[type-abstract]  # only its members
    return {metric.key for sampler in samplers for metric in sampler.metrics}


def _is_usual(rule: Rule) -> bool:
    return rule == _usual().get(rule.name)


@functools.cache
def _usual() -> dict[str, Rule]:
    return {rule.name: rule for rule in default_rules()}
