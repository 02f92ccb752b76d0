"""Reads what is new in one run since the last poll: points, its row, alerts, findings, events."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.schema.series import Selection
from stepscope.web.api.responses import to_text
from stepscope.web.live import cursor, live_rows
from stepscope.web.live.cursor import Position
from stepscope.web.live.events import PointsOfSeries
from stepscope.web.live.subscriber import Message, resync

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Points
    from stepscope.store.base import Counter, Reader
    from stepscope.store.step_clock import StepClock
    from stepscope.web.app_state import AppState
    from stepscope.web.live.events import WireNumber
    from stepscope.web.reader_pool import OpenStore

MAX_POINTS = 20_000
"""More new points are not sent one by one: reading buckets again costs a client less."""

ROW_EVERY_S = 1.0
RESYNC_EVERY_S = 5.0
"""How often clients are asked to read again while more is recorded than can be sent."""


@dataclass
class PointsBatch:
    """The new points of some series as JSON, and the cursor after them."""

    run_id: str
    cursor: str
    series: list[tuple[str, str]] = field(default_factory=list)
    """Key and JSON of each."""
    _messages: dict[frozenset[str], Message | None] = field(default_factory=dict)

    def message(self, keys: frozenset[str]) -> Message | None:
        """The message for a client that follows these keys; None when there is nothing new for it."""
        if keys not in self._messages:
            texts = [text for key, text in self.series if key in keys]
            body = f'{{"run":{json.dumps(self.run_id)},"series":[{",".join(texts)}]}}'
            self._messages[keys] = Message("points", body, self.cursor) if texts else None
        return self._messages[keys]


@dataclass(frozen=True)
class FollowedRun:
    """What clients of a run have been sent so far; the next poll is compared with it."""

    position: Position
    row: str = ""
    row_at_s: float = 0.0
    is_row_late: bool = False
    """Whether the row may have changed too soon after it was sent: it is to be read again."""
    documents: Mapping[tuple[live_rows.DocumentKind, str], str] = field(default_factory=dict)
    """Alerts and findings as they were sent."""
    flooded_at_s: float | None = None
    """When clients were last asked to read again because of too many points; None while there are not."""


@dataclass(frozen=True)
class RunUpdate:
    """What to send to all clients of a run, and its state after that."""

    followed: FollowedRun
    batch: PointsBatch | None
    messages: list[Message]


def read_update(
    state: AppState, opened: OpenStore, run_id: str, keys: frozenset[str], before: FollowedRun | None
) -> RunUpdate:
    """Reads everything that is new; at the first poll nothing is, and only the position is noted."""
    with opened.reader.moment():
        run = opened.run(run_id)
        counters = opened.reader.counters(run.id)
        now_s = state.now_ns() / 1e9
        position = position_of(state, opened, run, counters)
        if before is None:
            return RunUpdate(_first_position(state, run, position), None, [])
        after = replace(before, position=position)
        after, batch, messages = _points(opened, run.id, counters, keys, before, after)
        after, documents = _documents(state, run, before, after)
        messages += documents
        events = opened.reader.events_since(run.id, before.position.event_id)
        messages += [Message("mark", to_text(mark), None) for mark in live_rows.event_marks(events)]
        after, row = _row(state, run, after, now_s)
        return RunUpdate(after, batch, messages + row)


def missed_messages(
    state: AppState,
    opened: OpenStore,
    run_id: str,
    keys: frozenset[str],
    since: Position,
    until: FollowedRun,
) -> list[Message]:
    """What a client missed between its position and the newest poll; a `resync` if it is too much."""
    with opened.reader.moment():
        run = opened.run(run_id)
        counts = until.position.counts
        counters = [
            replace(counter, points=min(counter.points, counts.get(counter.series_id, 0)))
            for counter in opened.reader.counters(run.id)
        ]
        point_counts = read_from(counters, since.counts, keys)
        text = cursor.encode(run.id, until.position)
        if has_too_many_points(counters, point_counts):
            return [resync("There are more new points than are sent at once.", text)]
        messages = []
        clock = opened.reader.step_clock(run.id, counters)
        batch = read_points(opened.reader, counters, point_counts, clock, text)
        point_message = batch.message(keys)
        if point_message is not None:
            messages.append(point_message)
        events = [
            (event_id, event)
            for event_id, event in opened.reader.events_since(run.id, since.event_id)
            if event_id <= until.position.event_id
        ]
        messages += [Message("mark", to_text(mark)) for mark in live_rows.event_marks(events)]
        if since.documents != until.position.documents:
            recent = live_rows.documents_since(state, run, since.at_ms / 1000)
            messages += [Message(kind, to_text(document)) for kind, document in recent]
        return messages


def position_of(state: AppState, opened: OpenStore, run: Run, counters: list[Counter]) -> Position:
    """The position of a client that has everything the store holds now."""
    counts = {counter.series_id: counter.points for counter in counters}
    checksum = live_rows.documents_checksum(state, run)
    return Position(counts, opened.reader.newest_event(run.id), state.now_ns() // 1_000_000, checksum)


def _first_position(state: AppState, run: Run, position: Position) -> FollowedRun:
    documents = {name: text for name, text, _ in _comparable_documents(state, run)}
    return FollowedRun(position, documents=documents)


def _points(
    opened: OpenStore,
    run_id: str,
    counters: list[Counter],
    keys: frozenset[str],
    before: FollowedRun,
    after: FollowedRun,
) -> tuple[FollowedRun, PointsBatch | None, list[Message]]:
    now_s = after.position.at_ms / 1000
    since = read_from(counters, before.position.counts, keys)
    text = cursor.encode(run_id, after.position)
    if has_too_many_points(counters, since):
        if before.flooded_at_s is not None and now_s - before.flooded_at_s < RESYNC_EVERY_S:
            return after, None, []
        message = resync("More is recorded than can be sent point by point.", text)
        return replace(after, flooded_at_s=now_s), None, [message]
    if before.flooded_at_s is not None:
        message = resync("Points are sent one by one again.", text)
        return replace(after, flooded_at_s=None), None, [message]
    if not since:
        return after, None, []
    return (
        after,
        read_points(opened.reader, counters, since, opened.reader.step_clock(run_id, counters), text),
        [],
    )


def _documents(
    state: AppState, run: Run, before: FollowedRun, after: FollowedRun
) -> tuple[FollowedRun, list[Message]]:
    """Messages for alerts and findings that are new or have changed."""
    if after.position.documents == before.position.documents:
        return after, []
    sent = dict(before.documents)
    messages = []
    for name, text, document in _comparable_documents(state, run):
        if sent.get(name) != text:
            sent[name] = text
            messages.append(Message(name[0], to_text(document)))
    return replace(after, documents=sent), messages


def _comparable_documents(
    state: AppState, run: Run
) -> list[tuple[tuple[live_rows.DocumentKind, str], str, Any]]:
    return [
        ((kind, live_rows.name_of(kind, document)), live_rows.text_of(document), document)
        for kind, document in live_rows.documents(state, run)
    ]


def _row(state: AppState, run: Run, after: FollowedRun, now_s: float) -> tuple[FollowedRun, list[Message]]:
    is_late = now_s - after.row_at_s < ROW_EVERY_S
    after = replace(after, is_row_late=is_late)
    if is_late:
        return after, []
    text = to_text(state.row(run))
    if text == after.row:
        return after, []
    return replace(after, row=text, row_at_s=now_s), [Message("run", text)]


def read_from(counters: list[Counter], counts: Mapping[int, int], keys: frozenset[str]) -> dict[int, int]:
    """The series of these keys with new points, and how many points a client has of each."""
    return {
        counter.series_id: counts.get(counter.series_id, 0)
        for counter in counters
        if counter.key in keys and counter.points > counts.get(counter.series_id, 0)
    }


def has_too_many_points(counters: list[Counter], since: Mapping[int, int]) -> bool:
    """Whether there are more new points than are sent at once."""
    followed = (counter for counter in counters if counter.series_id in since)
    return sum(counter.points - since[counter.series_id] for counter in followed) > MAX_POINTS


def read_points(
    reader: Reader,
    counters: list[Counter],
    since: Mapping[int, int],
    clock: StepClock,
    cursor: str,
) -> PointsBatch:
    """The points of each series after those in `since`, up to the number in its counter."""
    batch = PointsBatch(counters[0].source.run_id if counters else "", cursor)
    for counter in counters:
        after = since.get(counter.series_id)
        if after is None:
            continue
        source = counter.source
        selection = Selection(
            source.run_id, counter.key, source.segment, source.rank, source.host, source.device, source.axis
        )
        points = reader.points_since(selection, after)
        batch.series.append((counter.key, _series_text(counter, points, counter.points - after, clock)))
    return batch


def _series_text(counter: Counter, points: Points, count: int, clock: StepClock) -> str:
    times_ns = points.times_ns[:count]
    is_logged = counter.source.axis == "step"
    series = PointsOfSeries(
        key=counter.key,
        rank=counter.source.rank,
        host=counter.source.host,
        device=counter.source.device,
        axis=counter.source.axis,
        steps=(points.steps[:count] if is_logged else clock.steps_at(times_ns)).tolist(),
        times=(times_ns / 1e9).tolist(),
        values=_values(points.values[:count]),
    )
    return json.dumps(vars(series), allow_nan=False, separators=(",", ":"))


def _values(values: NDArray[np.float64]) -> list[WireNumber]:
    if np.isfinite(values).all():
        return list(values.tolist())
    return [value if math.isfinite(value) else _named(value) for value in values.tolist()]


def _named(value: float) -> WireNumber:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
