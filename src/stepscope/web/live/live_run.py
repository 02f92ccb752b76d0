"""What is new in one run since the last look: points, its row, alerts, findings, events."""

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
from stepscope.web.live.subscriber import Message, resync

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Points
    from stepscope.store.following import Counter
    from stepscope.store.sqlite import SqliteReader
    from stepscope.web.app_state import AppState
    from stepscope.web.reader_pool import OpenStore

MAX_POINTS = 20_000
"""More at once is not sent: reading anew in buckets costs a client less."""

MAX_MOMENTS = 240

ROW_EVERY_S = 1.0
RESYNC_EVERY_S = 5.0
"""So often a client is told to read anew while more is recorded than can be sent."""


@dataclass(frozen=True)
class StepTimes:
    """When which step was the newest, as far as it was seen: places machine points on the axis of steps."""

    times_ns: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def seen(self, counters: list[Counter]) -> StepTimes:
        """With what the counters say now."""
        logged = [(one.last_ns, one.last_step) for one in counters if one.source.axis == "step"]
        newest = max(logged, default=(0, None))
        if newest[1] is None or (self.times_ns and newest[0] <= self.times_ns[-1]):
            return self
        return StepTimes((*self.times_ns, newest[0])[-MAX_MOMENTS:], (*self.steps, newest[1])[-MAX_MOMENTS:])

    def steps_at(self, times_ns: NDArray[np.int64]) -> list[int]:
        """The step in progress at each moment: the next that was seen, or the last of all."""
        if not self.steps:
            return [0] * len(times_ns)
        after = np.searchsorted(self.times_ns, times_ns, side="left")
        return [self.steps[at] for at in np.minimum(after, len(self.steps) - 1).tolist()]


@dataclass
class PointsBatch:
    """The new points of some series, as text, and the cursor one has after them."""

    run_id: str
    cursor: str
    series: list[tuple[str, str]] = field(default_factory=list)
    """Key and JSON of each."""
    _messages: dict[frozenset[str], Message | None] = field(default_factory=dict)

    def message(self, keys: frozenset[str]) -> Message | None:
        """What a client of these keys is sent; None when there is nothing for it."""
        if keys not in self._messages:
            texts = [text for key, text in self.series if key in keys]
            body = f'{{"run":{json.dumps(self.run_id)},"series":[{",".join(texts)}]}}'
            self._messages[keys] = Message("points", body, self.cursor) if texts else None
        return self._messages[keys]


@dataclass(frozen=True)
class FollowedRun:
    """How far the feed has come in a run; what was found is news only beside it."""

    position: Position
    moments: StepTimes = field(default_factory=StepTimes)
    row: str = ""
    row_at_s: float = 0.0
    documents: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Alerts and findings as they were told."""
    flooded_at_s: float | None = None
    """When clients were last told to read anew for a flood of points; None while there is none."""


@dataclass(frozen=True)
class RunUpdate:
    """What is to be told to all who follow a run."""

    seen: FollowedRun
    batch: PointsBatch | None
    messages: list[Message]


def look(
    state: AppState, opened: OpenStore, run_id: str, keys: frozenset[str], seen: FollowedRun | None
) -> RunUpdate:
    """Everything that is new; at the first look nothing is, and only the position is noted."""
    with opened.reader.moment():
        run = opened.run(run_id)
        counters = opened.reader.counters(run.id)
        now_s = state.now_ns() / 1e9
        position = position_of(state, opened, run, counters)
        if seen is None:
            return RunUpdate(_first(state, run, position, counters), None, [])
        after = replace(seen, position=position, moments=seen.moments.seen(counters))
        after, batch, messages = _points(opened, run.id, counters, keys, seen, after)
        after, told = _documents(state, run, seen, after)
        messages += told
        messages += [
            Message("mark", to_text(one), None)
            for one in live_rows.event_marks(opened.reader.events_since(run.id, seen.position.event_id))
        ]
        after, row = _row(state, run, after, now_s)
        return RunUpdate(after, batch, messages + row)


def missed(
    state: AppState, opened: OpenStore, run_id: str, keys: frozenset[str], told: Position, upto: FollowedRun
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
        if has_too_many_points(counters, since):
            return [resync("There are more new points than are sent at once.", text)]
        messages = []
        point_message = read_points(opened.reader, counters, since, upto.moments, text).message(keys)
        if point_message is not None:
            messages.append(point_message)
        events = [
            one
            for one in opened.reader.events_since(run.id, told.event_id)
            if one[0] <= upto.position.event_id
        ]
        messages += [Message("mark", to_text(one)) for one in live_rows.event_marks(events)]
        if told.documents != upto.position.documents:
            recent = live_rows.documents_since(state, run, told.at_ms / 1000)
            messages += [Message(kind, to_text(one)) for kind, one in recent]
        return messages


def position_of(state: AppState, opened: OpenStore, run: Run, counters: list[Counter]) -> Position:
    """How far one has come who has all that is in the store at this moment."""
    counts = {one.series_id: one.points for one in counters}
    mark = live_rows.documents_checksum(state, run)
    return Position(counts, opened.reader.newest_event(run.id), state.now_ns() // 1_000_000, mark)


def _first(state: AppState, run: Run, position: Position, counters: list[Counter]) -> FollowedRun:
    documents = {known: text for known, text, _ in _texts(state, run)}
    return FollowedRun(position, StepTimes().seen(counters), documents=documents)


def _points(
    opened: OpenStore,
    run_id: str,
    counters: list[Counter],
    keys: frozenset[str],
    seen: FollowedRun,
    after: FollowedRun,
) -> tuple[FollowedRun, PointsBatch | None, list[Message]]:
    now_s = after.position.at_ms / 1000
    since = behind(counters, seen.position.counts, keys)
    text = cursor.written(run_id, after.position)
    if has_too_many_points(counters, since):
        if seen.flooded_at_s is not None and now_s - seen.flooded_at_s < RESYNC_EVERY_S:
            return after, None, []
        why = resync("More is recorded than can be sent point by point.", text)
        return replace(after, flooded_at_s=now_s), None, [why]
    if seen.flooded_at_s is not None:
        why = resync("Points come one by one again.", text)
        return replace(after, flooded_at_s=None), None, [why]
    if not since:
        return after, None, []
    return after, read_points(opened.reader, counters, since, after.moments, text), []


def _documents(
    state: AppState, run: Run, seen: FollowedRun, after: FollowedRun
) -> tuple[FollowedRun, list[Message]]:
    """Alerts and findings that are new, or not as they were."""
    if after.position.documents == seen.position.documents:
        return after, []
    known = dict(seen.documents)
    messages = []
    for name, text, document in _texts(state, run):
        if known.get(name) != text:
            known[name] = text
            messages.append(Message(name[0], to_text(document)))
    return replace(after, documents=known), messages


def _texts(state: AppState, run: Run) -> list[tuple[tuple[str, str], str, Any]]:
    return [
        ((kind, live_rows.name_of(kind, document)), live_rows.text_of(document), document)
        for kind, document in live_rows.documents(state, run)
    ]


def _row(state: AppState, run: Run, after: FollowedRun, now_s: float) -> tuple[FollowedRun, list[Message]]:
    if now_s - after.row_at_s < ROW_EVERY_S:
        return after, []
    text = to_text(state.row(run))
    if text == after.row:
        return after, []
    return replace(after, row=text, row_at_s=now_s), [Message("run", text)]


def behind(counters: list[Counter], counts: Mapping[int, int], keys: frozenset[str]) -> dict[int, int]:
    """The series of these keys that have come on, and how many points one has who has so many of each."""
    return {
        one.series_id: counts.get(one.series_id, 0)
        for one in counters
        if one.key in keys and one.points > counts.get(one.series_id, 0)
    }


def has_too_many_points(counters: list[Counter], since: Mapping[int, int]) -> bool:
    """Whether there is more that is new than is sent at once."""
    new = sum(one.points - since[one.series_id] for one in counters if one.series_id in since)
    return new > MAX_POINTS


def read_points(
    reader: SqliteReader, counters: list[Counter], since: Mapping[int, int], moments: StepTimes, cursor: str
) -> PointsBatch:
    """The points of each series after the first so many, up to what the counters say."""
    batch = PointsBatch(counters[0].source.run_id if counters else "", cursor)
    for one in counters:
        after = since.get(one.series_id)
        if after is None:
            continue
        source = one.source
        selection = Selection(
            source.run_id, one.key, source.segment, source.rank, source.host, source.device, source.axis
        )
        points = reader.points_since(selection, after)
        batch.series.append((one.key, _text(one, points, one.points - after, moments)))
    return batch


def _text(one: Counter, points: Points, most: int, moments: StepTimes) -> str:
    times_ns = points.times_ns[:most]
    is_logged = one.source.axis == "step"
    return json.dumps(
        {
            "key": one.key,
            "rank": one.source.rank,
            "host": one.source.host,
            "device": one.source.device,
            "axis": one.source.axis,
            "steps": points.steps[:most].tolist() if is_logged else moments.steps_at(times_ns),
            "times": (times_ns / 1e9).tolist(),
            "values": _values(points.values[:most]),
        },
        allow_nan=False,
        separators=(",", ":"),
    )


def _values(values: NDArray[np.float64]) -> list[float | str]:
    if np.isfinite(values).all():
        return list(values.tolist())
    return [value if math.isfinite(value) else _named(value) for value in values.tolist()]


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
