"""All rules there are, with where each comes from: the usual ones, the settings, the page, trainings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stepscope.alerts.conditions.tree import Window
from stepscope.alerts.defaults import default_rules, every_rule
from stepscope.alerts.rule import Rule, rule_said
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.alerts.page_rules import Made
    from stepscope.config.sections import Alerts
    from stepscope.schema.record import Event

Origin = Literal["usual", "configuration", "page", "training"]

MAX_FROM_TRAININGS = 500


@dataclass(frozen=True)
class ListedRule:
    """A rule, whether it is judged or switched off."""

    rule: Rule
    origin: Origin
    run: str = ""
    """The run, or the pattern of runs, that it is meant for; empty for every run."""
    project: str = ""
    replaces: Origin | None = None
    """Where the rule of the same name comes from that it takes the place of."""
    fields: Mapping[str, Any] | None = None
    """As people wrote it, where that was on the page."""


def rules_said(said: Iterable[tuple[str, Iterable[Event]]]) -> list[ListedRule]:
    """The rules that trainings have said, by the id of each run and its events; each name once."""
    found: dict[str, ListedRule] = {}
    for run_id, events in said:
        for event in events:
            try:
                rule = rule_said(event.fields)
            except ConfigError:
                continue  # the agent has said so
            if len(found) < MAX_FROM_TRAININGS:
                found[rule.name] = ListedRule(rule, "training", run=run_id)
    return list(found.values())


def rules_recorded(recorded: Iterable[tuple[str, Alerts]], settings: Alerts) -> list[ListedRule]:
    """The rules of the settings that runs were started with, where these settings do not have them."""
    known = every_rule(settings)
    found: list[ListedRule] = []
    for run_id, alerts in recorded:
        try:
            rules = every_rule(alerts) if alerts.enabled else []
        except ConfigError:
            continue  # the agent has said so
        own = [rule for rule in rules if rule not in known]
        found += [ListedRule(rule, "configuration", run=run_id) for rule in own]
    return found[:MAX_FROM_TRAININGS]


def listed_rules(settings: Alerts, made: Made, said: Iterable[ListedRule] = ()) -> list[ListedRule]:
    """Every rule, those made on the page first, but for those whose place such a one takes everywhere."""
    usual = {rule.name: rule for rule in default_rules()}
    others = [*said]
    for rule in every_rule(settings):
        is_usual = usual.get(rule.name) == replace(rule, enabled=True)
        others.append(ListedRule(rule, "usual" if is_usual else "configuration"))
    origins = {one.rule.name: one.origin for one in reversed(others)}
    own = [
        ListedRule(one.rule, "page", one.run, one.project, origins.get(one.rule.name), one.fields)
        for one in made.rules
    ]
    taken = {one.rule.name for one in made.rules if one.is_for_all}
    switched = [
        replace(one, rule=replace(one.rule, enabled=made.switches.get(one.rule.name, one.rule.enabled)))
        for one in others
        if one.rule.name not in taken
    ]
    every = [*own, *switched]
    if settings.enabled:
        return every
    return [replace(one, rule=replace(one.rule, enabled=False)) for one in every]


def written(rule: Rule) -> dict[str, str]:
    """The times of a rule as people write them; empty where there is none."""
    lasting = Window(points=rule.for_points) if rule.for_points else Window(seconds=rule.for_s)
    return {
        "for": str(lasting) if rule.for_points or rule.for_s else "",
        "cooldown": str(Window(seconds=rule.cooldown_s)),
        "remind": "" if rule.remind_s is None else str(Window(seconds=rule.remind_s)),
    }
