"""The page of alerts: what fires, what has fired, the rules that hold, channels, silences and quiet hours."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepscope.alerts.defaults import default_rules, rules_of
from stepscope.alerts.delivery import USUAL, make_channel
from stepscope.alerts.silences import Silences
from stepscope.config.find import settings_for
from stepscope.errors import StepscopeError
from stepscope.views.alert_rows import AlertRow, alert_rows
from stepscope.views.marks import NoMarks
from stepscope.views.plain import clean

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.alerts.rule import Rule
    from stepscope.config.sections import Alerts
    from stepscope.reading import Runs
    from stepscope.views.marks import Marks

MOST_PAST = 500


@dataclass(frozen=True)
class RuleRow:
    """A rule that holds here, or is switched off."""

    name: str
    severity: str
    condition: str
    message: str
    enabled: bool
    is_default: bool
    """Whether it is one of the usual ones, as it comes along."""
    advice: str


@dataclass(frozen=True)
class ChannelRow:
    """A way to tell people."""

    name: str
    kind: str
    target: str
    """Where notices go, without secrets; why it cannot be used, where it cannot."""


@dataclass(frozen=True)
class SilenceRow:
    """A rule of which nobody is told for a while."""

    rule: str
    run: str
    until: float | None
    reason: str


@dataclass(frozen=True)
class AlertList:
    """The page."""

    open: tuple[AlertRow, ...]
    past: tuple[AlertRow, ...]
    rules: tuple[RuleRow, ...]
    channels: tuple[ChannelRow, ...]
    silences: tuple[SilenceRow, ...]
    quiet_hours: str | None


def alerts_of(
    runs: Runs,
    folder: Path,
    *,
    settings: Alerts | None = None,
    marks: Marks | None = None,
    now_ns: int | None = None,
) -> AlertList:
    """The alerts of all runs of a store, newest first, and what the settings say of alerts."""
    alerts = settings_for().alerts if settings is None else settings
    now_ns = time.time_ns() if now_ns is None else now_ns
    said = Silences(folder).read()
    shown = marks or NoMarks()
    rows = [row for run in runs.runs() for row in alert_rows(run, shown, said.acknowledged)]
    rows.sort(key=lambda row: -row.fired)
    past = [row for row in rows if row.resolved is not None]
    return AlertList(
        open=tuple(row for row in rows if row.resolved is None),
        past=tuple(past[:MOST_PAST]),
        rules=_rules(alerts),
        channels=tuple(_channel(name, options) for name, options in {**USUAL, **alerts.channels}.items()),
        silences=tuple(
            SilenceRow(clean(one.rule, 200), clean(one.run, 200), one.until_ns / 1e9, clean(one.reason))
            for one in said.silences
            if one.until_ns > now_ns
        ),
        quiet_hours=alerts.quiet_hours,
    )


def _rules(alerts: Alerts) -> tuple[RuleRow, ...]:
    usual = {rule.name: rule for rule in default_rules()}
    every = rules_of(replace(alerts, enabled=True, disabled=[]))
    off = set(alerts.disabled) if alerts.enabled else {rule.name for rule in every}
    return tuple(
        _rule(rule, is_default=usual.get(rule.name) == rule, is_on=rule.enabled and rule.name not in off)
        for rule in every
    )


def _rule(rule: Rule, *, is_default: bool, is_on: bool) -> RuleRow:
    condition = "" if rule.condition is None else str(rule.condition)
    return RuleRow(
        clean(rule.name, 200),
        rule.severity,
        clean(condition),
        clean(rule.message),
        is_on,
        is_default,
        clean(rule.advice),
    )


def _channel(name: str, options: dict[str, Any]) -> ChannelRow:
    kind = clean(options.get("kind", name), 100)
    if not options.get("enabled", True):
        return ChannelRow(clean(name, 200), kind, "switched off")
    try:
        target = make_channel(name, options).target
    except StepscopeError as error:
        target = f"cannot be used: {error}"
    return ChannelRow(clean(name, 200), kind, clean(target, 400))
