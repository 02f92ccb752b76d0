"""Words what a notice says: its subject, its text for people, its fields for programs."""

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
"""Of the fields; a field may be added to a version, never removed or changed."""

MAX_SUBJECT = 200
MAX_NAME = 120
MAX_SENTENCE = 600
MAX_LINK = 500
MAX_TOLD = 10
MAX_LISTED = 100
"""Alerts in the fields; text tells fewer of them."""

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def subject(notice: Notice) -> str:
    """One line: how bad it is, which run, what happened."""
    alerts = worst_first(notice)
    what = "the channel works" if notice.kind == "test" else "all is well"
    if alerts:
        what = _what(alerts[0], most=MAX_NAME)
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    line = f"[{_label(notice.kind, notice.severity)}] {_run(notice)}: {what}"
    return one_line(line, MAX_SUBJECT - len(more)) + more


def text(notice: Notice, now_ns: int | None = None) -> str:
    """All of it for a person, as plain text.

    How long something has lasted is counted until `now_ns`; without it until the moment of the notice, so
    that every attempt to deliver it says the same.
    """
    alerts = worst_first(notice)
    parts = [heading(notice)]
    for told in alerts[:MAX_TOLD]:
        lines = [f"  {name}: {fact}" for name, fact in facts(told, notice, now_ns)]
        parts.append("\n".join([headline(told, notice.kind), *lines]))
    if len(alerts) > MAX_TOLD:
        parts.append(f"and {len(alerts) - MAX_TOLD} more")
    if notice.link:
        parts.append(f"Open the run: {one_line(notice.link, MAX_LINK)}")
    return "\n\n".join(parts) + "\n"


def heading(notice: Notice) -> str:
    """The sentence a text begins with: which run, and how many alerts."""
    count = len(notice.alerts)
    many = "an alert" if count == 1 else f"{count} alerts"
    around = []
    if notice.project:
        around.append(f"project {one_line(notice.project, MAX_NAME)}")
    if notice.host:
        around.append(f"on {one_line(notice.host, MAX_NAME)}")
    run = _run(notice) + (f" ({', '.join(around)})" if around else "")
    if notice.kind == "test":
        return f"This is a test of the alerts for the run {run}; nothing is wrong."
    if notice.kind == "resolved":
        return f"{many[0].upper()}{many[1:]} of the run {run} {'is' if count == 1 else 'are'} over."
    return f"The run {run} {'still has' if notice.kind == 'reminder' else 'has'} {many}."


def headline(told: AlertDetail, kind: Kind) -> str:
    """How bad an alert is, and what happened."""
    return f"{_label(kind, told.severity)}: {_what(told, most=MAX_SENTENCE)}"


def facts(told: AlertDetail, notice: Notice, now_ns: int | None = None) -> list[tuple[str, str]]:
    """What is known about an alert, each fact with its name; what is not known is left out."""
    found = [
        ("rule", one_line(told.rule, MAX_NAME)),
        ("value", _value(told)),
        ("since", _since(told, notice, now_ns)),
        ("where", _where(told)),
        ("recent", sparkline(told.recent)),
        ("what to do", "" if notice.kind == "resolved" else one_line(told.advice, MAX_SENTENCE)),
    ]
    return [(name, fact) for name, fact in found if fact]


def fields(notice: Notice) -> dict[str, Any]:
    """The same for programs, as JSON has it.

    Numbers that are not finite are the texts "NaN", "Infinity" and "-Infinity".
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
        "alerts": [_alert_fields(told) for told in alerts[:MAX_LISTED]],
        "left_out": max(0, len(alerts) - MAX_LISTED),
    }


def worst_first(notice: Notice) -> list[AlertDetail]:
    """The alerts of a notice in the order they are told."""
    return sorted(notice.alerts, key=lambda told: SEVERITIES.index(told.severity))


def moment(time_ns: int) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def lasting(time_ns: int) -> str:
    """A length of time in its two largest units: 12 s, 3 min 5 s, 1 h 12 min."""
    left = max(0, time_ns) // 1_000_000_000
    parts = []
    for length, unit in UNITS:
        count, left = divmod(left, length)
        parts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    said = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(said) or "0 s"


def _label(kind: Kind, severity: str) -> str:
    if kind == "test":
        return "TEST"
    before = {"firing": "", "reminder": "still ", "resolved": "resolved "}[kind]
    return before + severity.upper()


def _run(notice: Notice) -> str:
    return one_line(notice.run, MAX_NAME) or one_line(notice.run_id, MAX_NAME)


def _what(told: AlertDetail, most: int) -> str:
    return one_line(told.message, most) or one_line(told.rule, most)


def _value(told: AlertDetail) -> str:
    if told.value is None:
        return ""
    what = told.quantity or told.key
    key = f"{one_line(what, MAX_NAME)} = " if what else ""
    threshold = "" if told.threshold is None else f", threshold {number(told.threshold)}"
    return f"{key}{number(told.value)}{threshold}"


def _since(told: AlertDetail, notice: Notice, now_ns: int | None) -> str:
    until_ns = notice.at_ns if now_ns is None else now_ns
    if until_ns - told.since_ns < 1_000_000_000:
        return moment(told.since_ns)
    verb = "lasted" if notice.kind == "resolved" else "for"
    return f"{moment(told.since_ns)}, {verb} {lasting(until_ns - told.since_ns)}"


def _where(told: AlertDetail) -> str:
    known = []
    if told.step is not None:
        known.append(f"step {told.step}")
    if told.rank is not None:
        known.append(f"rank {told.rank}")
    if told.device:
        known.append(one_line(told.device, MAX_NAME))
    return ", ".join(known)


def _alert_fields(told: AlertDetail) -> dict[str, Any]:
    return {
        "rule": one_line(told.rule, MAX_NAME),
        "severity": told.severity,
        "message": one_line(told.message, MAX_SENTENCE),
        "since": moment(told.since_ns),
        "key": one_line(told.key, MAX_NAME),
        "quantity": one_line(told.quantity, MAX_NAME),
        "value": _json_number(told.value),
        "threshold": _json_number(told.threshold),
        "step": told.step,
        "rank": told.rank,
        "device": one_line(told.device, MAX_NAME),
        "recent": [_json_number(value) for value in told.recent],
        "advice": one_line(told.advice, MAX_SENTENCE),
    }


def _json_number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
