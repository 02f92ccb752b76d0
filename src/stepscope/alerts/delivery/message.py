"""Formats a notice: its subject, its text for people, its fields for programs."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from stepscope.alerts.delivery.safe_text import one_line
from stepscope.alerts.delivery.sparkline import sparkline
from stepscope.number_format import number
from stepscope.schema.alert import SEVERITIES

if TYPE_CHECKING:
    from stepscope.schema.alert import AlertDetail, Kind, Notice

VERSION = 1
"""Version of the fields; fields may be added to a version, never removed or changed."""

MAX_SUBJECT = 200
MAX_NAME = 120
MAX_SENTENCE = 600
MAX_LINK = 500
MAX_IN_TEXT = 10
"""Maximum number of alerts in the text."""
MAX_IN_FIELDS = 100
"""Maximum number of alerts in the fields."""

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def subject(notice: Notice) -> str:
    """Returns one line: severity, run, and what happened."""
    alerts = worst_first(notice)
    what = "the channel works" if notice.kind == "test" else "all is well"
    if alerts:
        what = _what(alerts[0], most=MAX_NAME)
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    line = f"[{_label(notice.kind, notice.severity)}] {_run(notice)}: {what}"
    return one_line(line, MAX_SUBJECT - len(more)) + more


def text(notice: Notice, now_ns: int | None = None) -> str:
    """Returns the whole notice as plain text.

    Durations are counted until `now_ns`, by default until the time of the notice, so that every attempt to
    deliver it has the same text.
    """
    alerts = worst_first(notice)
    parts = [heading(notice)]
    for alert in alerts[:MAX_IN_TEXT]:
        lines = [f"  {name}: {fact}" for name, fact in facts(alert, notice, now_ns)]
        parts.append("\n".join([headline(alert, notice.kind), *lines]))
    if len(alerts) > MAX_IN_TEXT:
        parts.append(f"and {len(alerts) - MAX_IN_TEXT} more")
    if notice.link:
        parts.append(f"Open the run: {one_line(notice.link, MAX_LINK)}")
    return "\n\n".join(parts) + "\n"


def heading(notice: Notice) -> str:
    """Returns the first sentence of the text: the run and the number of alerts."""
    count = len(notice.alerts)
    alerts = "an alert" if count == 1 else f"{count} alerts"
    details = []
    if notice.project:
        details.append(f"project {one_line(notice.project, MAX_NAME)}")
    if notice.host:
        details.append(f"on {one_line(notice.host, MAX_NAME)}")
    run = _run(notice) + (f" ({', '.join(details)})" if details else "")
    if notice.kind == "test":
        return f"This is a test of the alerts for the run {run}; nothing is wrong."
    if notice.kind == "resolved":
        return f"{alerts[0].upper()}{alerts[1:]} of the run {run} {'is' if count == 1 else 'are'} resolved."
    return f"The run {run} {'still has' if notice.kind == 'reminder' else 'has'} {alerts}."


def headline(alert: AlertDetail, kind: Kind) -> str:
    """Returns the severity of an alert, and what happened."""
    return f"{_label(kind, alert.severity)}: {_what(alert, most=MAX_SENTENCE)}"


def facts(alert: AlertDetail, notice: Notice, now_ns: int | None = None) -> list[tuple[str, str]]:
    """Returns the known facts about an alert, each with its name."""
    by_name = [
        ("rule", one_line(alert.rule, MAX_NAME)),
        ("value", _value(alert)),
        ("since", _since(alert, notice, now_ns)),
        ("where", _where(alert)),
        ("recent", sparkline(alert.recent)),
        ("what to do", "" if notice.kind == "resolved" else one_line(alert.advice, MAX_SENTENCE)),
    ]
    return [(name, fact) for name, fact in by_name if fact]


def fields(notice: Notice) -> dict[str, Any]:
    """Returns the notice as plain values, for JSON.

    Numbers that are not finite are the strings "NaN", "Infinity" and "-Infinity".
    """
    alerts = worst_first(notice)
    return {
        "version": VERSION,
        "id": notice.id,
        "kind": notice.kind,
        "severity": notice.severity,
        "run": one_line(notice.run, MAX_NAME),
        "run_id": one_line(notice.run_id, MAX_NAME),
        "project": one_line(notice.project, MAX_NAME),
        "host": one_line(notice.host, MAX_NAME),
        "at": moment(notice.at_ns),
        "link": one_line(notice.link, MAX_LINK),
        "title": subject(notice),
        "text": text(notice),
        "alerts": [_alert_fields(alert) for alert in alerts[:MAX_IN_FIELDS]],
        "left_out": max(0, len(alerts) - MAX_IN_FIELDS),
    }


def worst_first(notice: Notice) -> list[AlertDetail]:
    """Returns the alerts of a notice, the worst first."""
    return sorted(notice.alerts, key=lambda alert: SEVERITIES.index(alert.severity))


def moment(time_ns: int) -> str:
    """Formats a time in UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(time_ns: int) -> str:
    """Formats a duration in its two largest units: 12 s, 3 min 5 s, 1 h 12 min."""
    left = max(0, time_ns) // 1_000_000_000
    parts = []
    for length, unit in UNITS:
        count, left = divmod(left, length)
        parts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def _label(kind: Kind, severity: str) -> str:
    if kind == "test":
        return "TEST"
    before = {"firing": "", "reminder": "still ", "resolved": "resolved "}[kind]
    return before + severity.upper()


def _run(notice: Notice) -> str:
    return one_line(notice.run, MAX_NAME) or one_line(notice.run_id, MAX_NAME)


def _what(alert: AlertDetail, most: int) -> str:
    return one_line(alert.message, most) or one_line(alert.rule, most)


def _value(alert: AlertDetail) -> str:
    if alert.value is None:
        return ""
    what = alert.quantity or alert.key
    key = f"{one_line(what, MAX_NAME)} = " if what else ""
    threshold = "" if alert.threshold is None else f", threshold {number(alert.threshold)}"
    return f"{key}{number(alert.value)}{threshold}"


def _since(alert: AlertDetail, notice: Notice, now_ns: int | None) -> str:
    until_ns = notice.at_ns if now_ns is None else now_ns
    if until_ns - alert.since_ns < 1_000_000_000:
        return moment(alert.since_ns)
    verb = "lasted" if notice.kind == "resolved" else "for"
    return f"{moment(alert.since_ns)}, {verb} {duration(until_ns - alert.since_ns)}"


def _where(alert: AlertDetail) -> str:
    places = []
    if alert.step is not None:
        places.append(f"step {alert.step}")
    if alert.rank is not None:
        places.append(f"rank {alert.rank}")
    if alert.device:
        places.append(one_line(alert.device, MAX_NAME))
    return ", ".join(places)


def _alert_fields(alert: AlertDetail) -> dict[str, Any]:
    return {
        "rule": one_line(alert.rule, MAX_NAME),
        "severity": alert.severity,
        "message": one_line(alert.message, MAX_SENTENCE),
        "since": moment(alert.since_ns),
        "key": one_line(alert.key, MAX_NAME),
        "quantity": one_line(alert.quantity, MAX_NAME),
        "value": _json_number(alert.value),
        "threshold": _json_number(alert.threshold),
        "step": alert.step,
        "rank": alert.rank,
        "device": one_line(alert.device, MAX_NAME),
        "recent": [_json_number(value) for value in alert.recent],
        "advice": one_line(alert.advice, MAX_SENTENCE),
    }


def _json_number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
