"""The alerts page: open and past alerts, rules, channels, silences and quiet hours."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepscope.alerts.delivery.delivery import DEFAULT_CHANNELS, make_channel
from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.rule import Rule
from stepscope.alerts.rule_list import (
    ListedRule,
    Origin,
    list_rules,
    rules_of_recorded_settings,
    rules_of_trainings,
    written_times,
)
from stepscope.alerts.silences import Silences
from stepscope.alerts.target_rules import target_rules
from stepscope.config.find import settings_for
from stepscope.config.sections import recorded_alerts, recorded_energy, recorded_targets
from stepscope.errors import StepscopeError
from stepscope.schema.alert import Severity  # noqa: TC001 - the schema of the API reads it
from stepscope.schema.run import LIVE, deciding_process
from stepscope.views.alerts.alert_rows import AlertRow, alert_rows
from stepscope.views.json_values import clean
from stepscope.views.runs.marks import NoMarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from stepscope.alerts.page_rules import PageRuleSet
    from stepscope.config.sections import Alerts
    from stepscope.reading import Run, Runs
    from stepscope.views.runs.marks import Marks

MAX_PAST = 500


@dataclass(frozen=True)
class RuleRow:
    """An alert rule, enabled or not."""

    name: str
    severity: Severity
    condition: str
    message: str
    enabled: bool
    is_default: bool
    """Whether it is an unchanged default rule."""
    advice: str
    origin: Origin
    """Where it comes from."""
    replaces: Origin | None
    """The origin of the rule of the same name that it overrides."""
    run: str
    """The runs it applies to; empty for all runs."""
    project: str
    """The projects it applies to; empty for all."""
    for_: str
    """How long the condition must hold before the alert fires."""
    clear: str
    """The condition that ends the alert; empty if it ends with its condition."""
    cooldown: str
    remind: str
    channels: tuple[str, ...] | None
    """The channels it uses; None for all."""
    resolve: bool
    problem: str
    """Why the rule is ignored; empty if it is not."""


@dataclass(frozen=True)
class ChannelRow:
    """A channel through which alerts are sent."""

    name: str
    kind: str
    target: str
    """Where alerts are sent, without secrets; if the channel cannot be used, the reason."""


@dataclass(frozen=True)
class SilenceRow:
    """A rule that is muted for a while."""

    rule: str
    run: str
    until: float | None
    reason: str


@dataclass(frozen=True)
class AlertList:
    """The contents of the alerts page."""

    open: tuple[AlertRow, ...]
    past: tuple[AlertRow, ...]
    rules: tuple[RuleRow, ...]
    channels: tuple[ChannelRow, ...]
    silences: tuple[SilenceRow, ...]
    quiet_hours: str | None
    rules_trouble: str
    """Why the rules made on the page cannot be read; empty if they can."""


def alerts_of(
    runs: Runs,
    folder: Path,
    *,
    settings: Alerts | None = None,
    marks: Marks | None = None,
    now_ns: int | None = None,
) -> AlertList:
    """Returns the alerts of all runs of a store, newest first, with the alert settings."""
    alerts = settings_for().alerts if settings is None else settings
    now_ns = time.time_ns() if now_ns is None else now_ns
    silences, page_rules = Silences(folder).read(), PageRules(folder).read()
    shown_marks = marks or NoMarks()
    all_runs = runs.runs()
    rows = [row for run in all_runs for row in alert_rows(run, shown_marks, silences.acknowledged)]
    rows.sort(key=lambda row: -row.fired)
    past = [row for row in rows if row.resolved is not None]
    return AlertList(
        open=tuple(row for row in rows if row.resolved is None),
        past=tuple(past[:MAX_PAST]),
        rules=_rules(alerts, page_rules, all_runs),
        channels=tuple(
            _channel(name, options) for name, options in {**DEFAULT_CHANNELS, **alerts.channels}.items()
        ),
        silences=tuple(
            SilenceRow(
                clean(silence.rule, 200),
                clean(silence.run, 200),
                silence.until_ns / 1e9,
                clean(silence.reason),
            )
            for silence in silences.silences
            if silence.until_ns > now_ns
        ),
        quiet_hours=alerts.quiet_hours,
        rules_trouble="The file of rules made on this page cannot be read." if page_rules.trouble else "",
    )


def rules_of_live_runs(runs: Iterable[Run], settings: Alerts) -> list[ListedRule]:
    """Returns the rules of live runs: from the training script, or from settings other than these."""
    live = [run for run in runs if run.status in LIVE]
    from_training = rules_of_trainings((run.id, run.own_events("alert_rule")) for run in live)
    return [
        *from_training,
        *rules_of_recorded_settings(map(_recorded_settings, live), settings),
    ]


def _recorded_settings(run: Run) -> tuple[str, Alerts, list[Rule]]:
    process = deciding_process(process for segment in run.segments for process in segment.processes)
    facts = {} if process is None else process.facts
    targets = target_rules(recorded_targets(facts), recorded_energy(facts).currency)
    return run.id, recorded_alerts(facts), targets


def _rules(alerts: Alerts, page_rules: PageRuleSet, runs: Sequence[Run]) -> tuple[RuleRow, ...]:
    run_rules = rules_of_live_runs(runs, alerts)
    return (
        *(_rule(listed) for listed in list_rules(alerts, page_rules, run_rules)),
        *(_invalid_rule(name, why) for name, why in page_rules.problems.items()),
    )


def _rule(listed: ListedRule) -> RuleRow:
    rule, fields = listed.rule, listed.fields or {}
    times = {
        **written_times(rule),
        **{key: str(fields[key]) for key in ("for", "cooldown", "remind") if key in fields},
    }
    return RuleRow(
        name=clean(rule.name, 200),
        severity=rule.severity,
        condition=clean(fields.get("when") or ("" if rule.condition is None else rule.condition), 4000),
        message=clean(rule.message),
        enabled=rule.enabled,
        is_default=listed.origin == "usual",
        advice=clean(rule.advice),
        origin=listed.origin,
        replaces=listed.replaces,
        run=clean(listed.run, 300),
        project=clean(listed.project, 300),
        for_=clean(times["for"], 50),
        clear=clean(fields.get("clear") or ("" if rule.clear is None else rule.clear), 4000),
        cooldown=clean(times["cooldown"], 50),
        remind=clean(times["remind"], 50),
        channels=None if rule.channels is None else tuple(clean(name, 100) for name in rule.channels[:100]),
        resolve=rule.resolve,
        problem="",
    )


def _invalid_rule(name: str, why: str) -> RuleRow:
    """Returns a row for an invalid rule made on the page, so that it can be fixed or deleted."""
    row = _rule(ListedRule(Rule("-", None, enabled=False), "page"))
    return replace(row, name=clean(name, 200), problem=clean(why.partition("\n")[0]))


def _channel(name: str, options: dict[str, Any]) -> ChannelRow:
    kind = clean(options.get("kind", name), 100)
    if not options.get("enabled", True):
        return ChannelRow(clean(name, 200), kind, "switched off")
    try:
        target = make_channel(name, options).target
    except StepscopeError as error:
        target = f"cannot be used: {error}"
    return ChannelRow(clean(name, 200), kind, clean(target, 400))
