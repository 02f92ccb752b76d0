"""Lists all rules with their origin: the defaults, the settings, the page, or a training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stepscope.alerts.conditions.tree import Window
from stepscope.alerts.defaults import all_rules, default_rules
from stepscope.alerts.rule import Rule, rule_from_training
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.alerts.page_rules import PageRuleSet
    from stepscope.config.sections import Alerts
    from stepscope.schema.record import Event

Origin = Literal["usual", "configuration", "page", "training"]

MAX_FROM_TRAININGS = 500


@dataclass(frozen=True)
class ListedRule:
    """A rule, enabled or disabled, and where it comes from."""

    rule: Rule
    origin: Origin
    run: str = ""
    """The run it applies to, or a pattern; empty for every run."""
    project: str = ""
    replaces: Origin | None = None
    """Origin of the rule of the same name that it replaces."""
    fields: Mapping[str, Any] | None = None
    """The keys as people wrote them, for a rule of the page."""


def rules_of_trainings(runs: Iterable[tuple[str, Iterable[Event]]]) -> list[ListedRule]:
    """Returns the rules that trainings defined, from the events of each run id; each name once."""
    rules: dict[str, ListedRule] = {}
    for run_id, events in runs:
        for event in events:
            try:
                rule = rule_from_training(event.fields)
            except ConfigError:
                continue  # the agent has logged it
            if len(rules) < MAX_FROM_TRAININGS:
                rules[rule.name] = ListedRule(rule, "training", run=run_id)
    return list(rules.values())


def rules_of_recorded_settings(
    recorded: Iterable[tuple[str, Alerts, list[Rule]]], settings: Alerts
) -> list[ListedRule]:
    """Returns the rules of the settings with which runs were started, without those of `settings`.

    Each run has an id, its alert settings, and the rules of its targets.
    """
    known = all_rules(settings)
    listed: list[ListedRule] = []
    for run_id, alerts, targets in recorded:
        try:
            rules = all_rules(alerts, targets) if alerts.enabled else []
        except ConfigError:
            continue  # the agent has logged it
        own = [rule for rule in rules if rule not in known]
        listed += [ListedRule(rule, "configuration", run=run_id) for rule in own]
    return listed[:MAX_FROM_TRAININGS]


def list_rules(
    settings: Alerts, page_rules: PageRuleSet, of_runs: Iterable[ListedRule] = ()
) -> list[ListedRule]:
    """Returns all rules, those of the page first, without rules that a page rule replaces in every run."""
    defaults = {rule.name: rule for rule in default_rules()}
    others = [*of_runs]
    for rule in all_rules(settings):
        is_default = defaults.get(rule.name) == replace(rule, enabled=True)
        others.append(ListedRule(rule, "usual" if is_default else "configuration"))
    origins = {other.rule.name: other.origin for other in reversed(others)}
    own = [
        ListedRule(own.rule, "page", own.run, own.project, origins.get(own.rule.name), own.fields)
        for own in page_rules.rules
    ]
    replaced = {own.rule.name for own in page_rules.rules if own.is_for_all}
    switched = [
        _enabled(other, enabled=page_rules.switches.get(other.rule.name, other.rule.enabled))
        for other in others
        if other.rule.name not in replaced
    ]
    listed = [*own, *switched]
    return listed if settings.enabled else [_enabled(rule, enabled=False) for rule in listed]


def _enabled(listed: ListedRule, *, enabled: bool) -> ListedRule:
    return replace(listed, rule=replace(listed.rule, enabled=enabled))


def written_times(rule: Rule) -> dict[str, str]:
    """Returns the times of a rule as people write them; empty for a time that it does not have."""
    duration = Window(points=rule.for_points) if rule.for_points else Window(seconds=rule.for_s)
    return {
        "for": str(duration) if rule.for_points or rule.for_s else "",
        "cooldown": str(Window(seconds=rule.cooldown_s)),
        "remind": "" if rule.remind_s is None else str(Window(seconds=rule.remind_s)),
    }
