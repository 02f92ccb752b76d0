"""Alerts, findings and events of one run, in the shapes in which the feed tells of them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from stepscope.views.alerts.alert_rows import alert_rows
from stepscope.views.overview.event_marks import EventMark, is_marked, mark_of
from stepscope.web.api.responses import plain, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.reading import Run
    from stepscope.schema.record import Event
    from stepscope.web.app_state import AppState

Document = dict[str, Any]

STORED = ("problem", "opened_ns", "closed_ns")
"""What the store adds to a finding for its own use."""

SLACK_S = 2.0
"""What changed so long before a client's cursor is told again: clocks of agent and server may differ."""


def documents_checksum(state: AppState, run: Run) -> int:
    """Changes when an alert or a finding has; costs little."""
    said = sorted(state.silences.read().acknowledged)
    told = [(one["id"], one["sent_ns"]) for one in run.notices()]
    text = repr((run.alerts(), run.findings(), told, said, state.marks.changes))
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def documents(state: AppState, run: Run) -> list[tuple[str, Document]]:
    """All alerts and findings of a run, each with the event it is told by."""
    acknowledged = state.silences.read().acknowledged
    alerts = [("alert", plain(one)) for one in alert_rows(run, state.marks, acknowledged)]
    return alerts + [("finding", one) for one in findings(state, run)]


def findings(state: AppState, run: Run) -> list[Document]:
    """The findings of a run, each with whether it is muted."""
    muted = state.marks.muted(run.id)
    found = []
    for stored in run.findings():
        if "key" not in stored:  # put there by somebody else, and no page knows what to make of it
            continue
        document = {name: value for name, value in stored.items() if name not in STORED}
        names = {str(document.get("id")), str(document.get("key"))}
        found.append({**document, "muted": not names.isdisjoint(muted)})
    return found


def documents_since(state: AppState, run: Run, at_s: float) -> list[tuple[str, Document]]:
    """Alerts and findings that have changed since a moment; one that changed about then may be among them."""
    return [
        (kind, one)
        for kind, one in documents(state, run)
        if max(_moments(one), default=0.0) >= at_s - SLACK_S
    ]


def name_of(kind: str, document: Document) -> str:
    """What tells one alert from another, or one finding."""
    return str(document.get("id" if kind == "alert" else "key"))


def text_of(document: Document) -> str:
    """What is compared to see whether it has changed; the points beside an alert are no change of it."""
    return to_text({name: value for name, value in document.items() if name != "recent"})


def event_marks(events: Iterable[tuple[int, Event]]) -> list[EventMark]:
    """Events as the time line shows them; what is no moment people look for is left out."""
    return [mark_of(event) for _, event in events if is_marked(event)]


def _moments(document: Document) -> list[float]:
    times = (document.get(name) for name in ("fired", "resolved", "first_time", "last_time"))
    return [float(one) for one in times if isinstance(one, int | float)]
