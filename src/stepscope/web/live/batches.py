"""New points of a run, put into words once for all clients that follow it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Selection
from stepscope.web.live.subscriber import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.schema.series import Points
    from stepscope.store.following import Counter
    from stepscope.store.sqlite import SqliteReader

MAX_POINTS = 20_000
"""More at once is not sent: reading anew in buckets costs a client less."""

MAX_MOMENTS = 240


@dataclass(frozen=True)
class Moments:
    """When which step was the newest, as far as it was seen: places machine points on the axis of steps."""

    times_ns: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def seen(self, counters: list[Counter]) -> Moments:
        """With what the counters say now."""
        logged = [(one.last_ns, one.last_step) for one in counters if one.source.axis == "step"]
        newest = max(logged, default=(0, None))
        if newest[1] is None or (self.times_ns and newest[0] <= self.times_ns[-1]):
            return self
        return Moments((*self.times_ns, newest[0])[-MAX_MOMENTS:], (*self.steps, newest[1])[-MAX_MOMENTS:])

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


def behind(counters: list[Counter], counts: Mapping[int, int], keys: frozenset[str]) -> dict[int, int]:
    """The series of these keys that have come on, and how many points one has who has so many of each."""
    return {
        one.series_id: counts.get(one.series_id, 0)
        for one in counters
        if one.key in keys and one.points > counts.get(one.series_id, 0)
    }


def is_flood(counters: list[Counter], since: Mapping[int, int]) -> bool:
    """Whether there is more that is new than is sent at once."""
    new = sum(one.points - since[one.series_id] for one in counters if one.series_id in since)
    return new > MAX_POINTS


def read_batch(
    reader: SqliteReader, counters: list[Counter], since: Mapping[int, int], moments: Moments, cursor: str
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


def _text(one: Counter, points: Points, most: int, moments: Moments) -> str:
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
