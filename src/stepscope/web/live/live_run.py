"""What is new in one run since the last look: points, its row, alerts, findings, events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stepscope.web.api.answers import to_text
from stepscope.web.live import cursor, live_rows
from stepscope.web.live.batches import Moments, PointsBatch, behind, is_flood, read_batch
from stepscope.web.live.cursor import Position
from stepscope.web.live.subscriber import Message, resync

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run
    from stepscope.store.following import Counter
    from stepscope.web.app_state import AppState
    from stepscope.web.reader_pool import Opened

ROW_EVERY_S = 1.0
RESYNC_EVERY_S = 5.0
"""So often a client is told to read anew while more is recorded than can be sent."""


@dataclass(frozen=True)
class Seen:
    """How far the feed has come in a run; what was found is news only beside it."""

    position: Position
    moments: Moments = field(default_factory=Moments)
    row: str = ""
    row_at_s: float = 0.0
    documents: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Alerts and findings as they were told."""
    flooded_at_s: float | None = None
    """When clients were last told to read anew for a flood of points; None while there is none."""


@dataclass(frozen=True)
class News:
    """What is to be told to all who follow a run."""

    seen: Seen
    batch: PointsBatch | None
    messages: list[Message]


def look(site: AppState, opened: Opened, run_id: str, keys: frozenset[str], seen: Seen | None) -> News:
    """Everything that is new; at the first look nothing is, and only the position is noted."""
    with opened.reader.moment():
        run = opened.run(run_id)
        counters = opened.reader.counters(run.id)
        now_s = site.now_ns() / 1e9
        position = position_of(site, opened, run, counters)
        if seen is None:
            return News(_first(site, run, position, counters), None, [])
        after = replace(seen, position=position, moments=seen.moments.seen(counters))
        after, batch, messages = _points(opened, run.id, counters, keys, seen, after)
        after, told = _documents(site, run, seen, after)
        messages += told
        messages += [
            Message("mark", to_text(one), None)
            for one in live_rows.event_marks(opened.reader.events_since(run.id, seen.position.event_id))
        ]
        after, row = _row(site, run, after, now_s)
        return News(after, batch, messages + row)


def missed(
    site: AppState, opened: Opened, run_id: str, keys: frozenset[str], told: Position, upto: Seen
) -> list[Message]:
    """What somebody missed between a position and what the feed has seen; a call to read anew if too much."""
    with opened.reader.moment():
        run = opened.run(run_id)
        counts = upto.position.counts
        counters = [
            replace(one, points=min(one.points, counts.get(one.series_id, 0)))
            for one in opened.reader.counters(run.id)
        ]
        since = behind(counters, told.counts, keys)
        text = cursor.written(run.id, upto.position)
        if is_flood(counters, since):
            return [resync("There are more new points than are sent at once.", text)]
        messages = []
        point_message = read_batch(opened.reader, counters, since, upto.moments, text).message(keys)
        if point_message is not None:
            messages.append(point_message)
        events = [
            one
            for one in opened.reader.events_since(run.id, told.event_id)
            if one[0] <= upto.position.event_id
        ]
        messages += [Message("mark", to_text(one)) for one in live_rows.event_marks(events)]
        if told.documents != upto.position.documents:
            recent = live_rows.documents_since(site, run, told.at_ms / 1000)
            messages += [Message(kind, to_text(one)) for kind, one in recent]
        return messages


def position_of(site: AppState, opened: Opened, run: Run, counters: list[Counter]) -> Position:
    """How far one has come who has all that is in the store at this moment."""
    counts = {one.series_id: one.points for one in counters}
    mark = live_rows.documents_mark(site, run)
    return Position(counts, opened.reader.newest_event(run.id), site.now_ns() // 1_000_000, mark)


def _first(site: AppState, run: Run, position: Position, counters: list[Counter]) -> Seen:
    documents = {known: text for known, text, _ in _texts(site, run)}
    return Seen(position, Moments().seen(counters), documents=documents)


def _points(
    opened: Opened, run_id: str, counters: list[Counter], keys: frozenset[str], seen: Seen, after: Seen
) -> tuple[Seen, PointsBatch | None, list[Message]]:
    now_s = after.position.at_ms / 1000
    since = behind(counters, seen.position.counts, keys)
    text = cursor.written(run_id, after.position)
    if is_flood(counters, since):
        if seen.flooded_at_s is not None and now_s - seen.flooded_at_s < RESYNC_EVERY_S:
            return after, None, []
        why = resync("More is recorded than can be sent point by point.", text)
        return replace(after, flooded_at_s=now_s), None, [why]
    if seen.flooded_at_s is not None:
        why = resync("Points come one by one again.", text)
        return replace(after, flooded_at_s=None), None, [why]
    if not since:
        return after, None, []
    return after, read_batch(opened.reader, counters, since, after.moments, text), []


def _documents(site: AppState, run: Run, seen: Seen, after: Seen) -> tuple[Seen, list[Message]]:
    """Alerts and findings that are new, or not as they were."""
    if after.position.documents == seen.position.documents:
        return after, []
    known = dict(seen.documents)
    messages = []
    for name, text, document in _texts(site, run):
        if known.get(name) != text:
            known[name] = text
            messages.append(Message(name[0], to_text(document)))
    return replace(after, documents=known), messages


def _texts(site: AppState, run: Run) -> list[tuple[tuple[str, str], str, Any]]:
    return [
        ((kind, live_rows.name_of(kind, document)), live_rows.text_of(document), document)
        for kind, document in live_rows.documents(site, run)
    ]


def _row(site: AppState, run: Run, after: Seen, now_s: float) -> tuple[Seen, list[Message]]:
    if now_s - after.row_at_s < ROW_EVERY_S:
        return after, []
    text = to_text(site.row(run))
    if text == after.row:
        return after, []
    return replace(after, row=text, row_at_s=now_s), [Message("run", text)]
