"""The alerts of a run, with the channels that sent each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.schema.alert import Severity  # noqa: TC001 - the schema of the API reads it
from stepscope.views.json_values import clean, finite, finites

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from stepscope.reading import Run
    from stepscope.views.runs.marks import Marks


@dataclass(frozen=True)
class ChannelDelivery:
    """One channel through which an alert was to be sent."""

    channel: str
    at: float | None
    """When it was sent; None if it was not."""
    delivered: bool


@dataclass(frozen=True)
class AlertRow:
    """An alert, firing or past."""

    id: int
    run_id: str
    run: str
    rule: str
    severity: Severity
    message: str
    fired: float
    resolved: float | None
    """When it was resolved; None while it fires."""
    step: int | None
    rank: int | None
    device: str
    value: float | None
    threshold: float | None
    key: str
    quantity: str
    """The expression that gave the value; empty for the metric itself."""
    recent: tuple[float | None, ...]
    """The last points of the metric before it fired, oldest first."""
    advice: str
    """What to do about it."""
    acknowledged: bool
    told: tuple[ChannelDelivery, ...]
    """The channels that notified people."""


def alert_rows(run: Run, marks: Marks, acknowledged: Collection[int] = ()) -> list[AlertRow]:
    """Returns the alerts of a run, newest first."""
    alerts = run.alerts()
    if not alerts:
        return []
    notices = run.notices()
    name = clean(marks.name(run.id) or run.name, 300)
    return [_row(run.id, name, alert, notices, acknowledged) for alert in reversed(alerts)]


def _row(
    run_id: str,
    name: str,
    alert: dict[str, Any],
    notices: Sequence[dict[str, Any]],
    acknowledged: Collection[int],
) -> AlertRow:
    resolved_ns = alert["resolved_ns"]
    return AlertRow(
        id=alert["id"],
        run_id=run_id,
        run=name,
        rule=clean(alert["rule"], 200),
        severity=alert["severity"],
        message=clean(alert["message"]),
        fired=alert["fired_ns"] / 1e9,
        resolved=None if resolved_ns is None else resolved_ns / 1e9,
        step=alert.get("step"),
        rank=alert.get("rank"),
        device=clean(alert.get("device") or "", 200),
        value=finite(alert.get("value")),
        threshold=finite(alert.get("threshold")),
        key=clean(alert.get("key") or "", 300),
        quantity=clean(alert.get("quantity") or "", 300),
        recent=finites(alert.get("recent") or ()),
        advice=clean(alert.get("advice") or ""),
        acknowledged=alert["id"] in acknowledged,
        told=_deliveries(alert, notices),
    )


def _deliveries(alert: dict[str, Any], notices: Sequence[dict[str, Any]]) -> tuple[ChannelDelivery, ...]:
    """Returns, for each channel, the first notice that this alert is firing."""
    deliveries: dict[str, ChannelDelivery] = {}
    for notice in notices:
        if notice["kind"] == "firing" and any(_is_about(mentioned, alert) for mentioned in notice["alerts"]):
            sent_ns = notice["sent_ns"]
            delivery = ChannelDelivery(
                clean(notice["channel"], 200), None if sent_ns is None else sent_ns / 1e9, sent_ns is not None
            )
            deliveries.setdefault(delivery.channel, delivery)
    return tuple(deliveries.values())


def _is_about(mentioned: dict[str, Any], alert: dict[str, Any]) -> bool:
    return all(mentioned.get(name) == alert.get(name) for name in ("rule", "since_ns", "rank", "device"))
