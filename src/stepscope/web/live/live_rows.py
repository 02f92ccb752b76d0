"""Alerts, findings and events of one run, in the form the live feed sends them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Literal

from stepscope.views.alerts.alert_rows import alert_rows
from stepscope.views.overview.event_marks import EventMark, is_marked, mark_of
from stepscope.views.overview.run_findings import listed_findings
from stepscope.web.api.responses import plain, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.web.app_state import AppState

Document = dict[str, Any]
DocumentKind = Literal["alert", "finding"]

SLACK_S = 2.0
"""Changes up to this long before a client's cursor are sent again: clocks of agent and server may differ."""


def documents_checksum(state: AppState, run: Run) -> int:
    """A cheap number that differs when an alert or a finding has changed."""
    acknowledged = sorted(state.silences.read().acknowledged)
    sent = [(notice["id"], notice["sent_ns"]) for notice in run.notices()]
    text = repr((run.alerts(), run.findings(), sent, acknowledged, state.marks.changes))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def documents(state: AppState, run: Run) -> list[tuple[DocumentKind, Document]]:
    """All alerts and findings of a run, each with the name of the event that sends it."""
    acknowledged = state.silences.read().acknowledged
    findings = listed_findings(run.findings(), state.marks.muted(run.id, run.project))
    return [
        *(("alert", plain(row)) for row in alert_rows(run, state.marks, acknowledged)),
        *(("finding", plain(finding)) for finding in findings),
    ]


def documents_since(state: AppState, run: Run, at_s: float) -> list[tuple[DocumentKind, Document]]:
    """Alerts and findings that have changed since a time, and some that changed shortly before it."""
    return [
        (kind, one)
        for kind, one in documents(state, run)
        if max(_moments(one), default=0.0) >= at_s - SLACK_S
    ]


def name_of(kind: str, document: Document) -> str:
    """The id of an alert, or the key of a finding."""
    return str(document.get("id" if kind == "alert" else "key"))


def text_of(document: Document) -> str:
    """Text to compare for changes; new points beside an alert do not count as a change of it."""
    return to_text({name: value for name, value in document.items() if name != "recent"})


def event_marks(events: Iterable[tuple[int, Event]]) -> list[EventMark]:
    """Events as the time line shows them; kinds that it does not show are left out."""
    return [mark_of(event) for _, event in events if is_marked(event)]


def _moments(document: Document) -> list[float]:
    times = (document.get(name) for name in ("fired", "resolved", "first_time", "last_time"))
    return [float(time) for time in times if isinstance(time, int | float)]
