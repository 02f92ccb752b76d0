"""Reads series for charts: buckets by step or by time, one part for each key, place and segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Buckets, Selection
from stepscope.store import rollup
from stepscope.store.sealing import NS
from stepscope.store.timeline import bucket_by_step, read_timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Axis
    from stepscope.store.following import Counter
    from stepscope.store.sqlite import SqliteReader
    from stepscope.store.timeline import Timeline

MAX_POINTS = 65_536
"""A longer series changes its axis in buckets instead of points, `OVERSAMPLING` for each requested one."""

OVERSAMPLING = 4

TICKS_PER_SECOND = 1024
"""Buckets by time start at such fractions: in whole seconds a run of two seconds would be three points."""

_FirstSteps = dict[tuple[str, "int | None", "str | None", "str | None"], dict[str, int]]


@dataclass(frozen=True)
class SeriesQuery:
    """What a chart asks for; None matches anything."""

    axis: Axis
    buckets: int
    low: int | None = None
    high: int | None = None
    rank: int | None = None
    host: str | None = None
    device: str | None = None
    merge: bool = False


@dataclass(frozen=True)
class Part:
    """A series, or its part from one place and one segment."""

    key: str
    rank: int | None
    host: str
    device: str
    segment: str
    superseded: bool
    points: int
    buckets: Buckets
    ticks: int = 1
    """Units of its bucket starts in one step or second."""

    def described(self) -> dict[str, object]:
        """Its entry in the header."""
        buckets = self.buckets
        return {
            "key": self.key,
            "rank": self.rank,
            "host": self.host,
            "device": self.device,
            "segment": self.segment,
            "superseded": self.superseded,
            "width": (
                buckets.width / self.ticks if buckets.width < self.ticks else buckets.width // self.ticks
            ),
            "length": len(buckets),
            "points": self.points,
            "exact": buckets.width <= self.ticks and bool((buckets.count <= 1).all()),
        }

    def columns(self) -> list[NDArray[np.float64]]:
        """Start, count, minimum, maximum, mean, last, non-finite count, time."""
        buckets = self.buckets
        count, nonfinite = (column.astype(np.float64) for column in (buckets.count, buckets.nonfinite))
        starts = buckets.starts / self.ticks
        values = [buckets.minimum, buckets.maximum, buckets.mean, buckets.last]
        return [starts, count, *values, nonfinite, buckets.times]


@dataclass(frozen=True)
class Place:
    """The series of one key at one place in one segment, or of all of them."""

    key: str
    own_axis: Axis
    rank: int | None
    host: str | None
    device: str | None
    segment: str | None
    points: int


def places_of(counters: Iterable[Counter], keys: Iterable[str], query: SeriesQuery) -> list[Place]:
    """The places that have a key, in the order of keys; logged series take precedence over sampled ones."""
    places: list[Place] = []
    candidates = list(counters)
    for key in dict.fromkeys(keys):
        matching = [counter for counter in candidates if counter.key == key and _matches(counter, query)]
        own: Axis = "step" if any(counter.source.axis == "step" for counter in matching) else "seconds"
        matching = [counter for counter in matching if counter.source.axis == own]
        if query.merge and matching:
            total = sum(counter.points for counter in matching)
            places.append(Place(key, own, query.rank, query.host, query.device, None, total))
            continue
        for counter in matching:
            source = counter.source
            labels = (source.rank, source.host, source.device, source.segment)
            places.append(Place(key, own, *labels, counter.points))
    return places


class StepLookup:
    """Finds the step in progress at a time; reads the timeline of a segment on first use."""

    def __init__(self, run: Run, reader: SqliteReader) -> None:
        self._run, self._reader = run, reader
        self._timelines: dict[str, Timeline] = {}

    def steps_at(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step in progress at each time, from the segment that ran then."""
        steps = np.zeros(len(times_ns), np.int64)
        first_steps = [part.started_ns for part in self._run.segments]
        owners = np.searchsorted(first_steps, times_ns, side="right") - 1
        for number, part in enumerate(self._run.segments):
            here = owners == number
            if here.any():
                steps[here] = self._timeline(part.id).steps_at(times_ns[here])
        return steps

    def first_step(self, segment: str) -> int | None:
        """The first step of a segment; None where it logged none."""
        steps = self._timeline(segment).steps
        return int(steps.min()) if len(steps) else None

    def _timeline(self, segment: str) -> Timeline:
        if segment not in self._timelines:
            self._timelines[segment] = read_timeline(self._reader, self._run.id, segment)
        return self._timelines[segment]


class SeriesReader:
    """Reads the series of one request."""

    def __init__(self, run: Run, reader: SqliteReader, query: SeriesQuery) -> None:
        self._run, self._reader, self._query = run, reader, query
        self._lookup = StepLookup(run, reader)
        self._order = {segment.id: number for number, segment in enumerate(run.segments)}

    def parts(self, places: list[Place]) -> list[Part]:
        """The parts of all places; steps that a later segment repeated are a separate, superseded part."""
        first_steps = self._first_steps(places) if self._query.axis == "step" else {}
        parts: list[Part] = []
        for place in places:
            limit = self._superseded_from(place, first_steps)
            if limit is None:
                part = _part(place, self._buckets(place, self._query), superseded=False)
                parts.append(replace(part, ticks=self._ticks(place)))
                continue
            kept = self._buckets(place, _until(self._query, limit - 1))
            tail = _from_step(self._buckets(place, _from(self._query, limit)), limit)
            for buckets, superseded in ((kept, False), (tail, True)):
                if len(buckets):
                    parts.append(_part(place, buckets, superseded=superseded))
        return parts

    def _buckets(self, place: Place, query: SeriesQuery) -> Buckets:
        selection = self._selection(place)
        if place.own_axis == query.axis:
            return self._reader.buckets(selection, query.buckets, query.low, query.high)
        if place.points > MAX_POINTS:
            finer = self._reader.buckets(selection, OVERSAMPLING * query.buckets)
            return rebucketed(finer, self._on_axis((finer.times * 1e9).astype(np.int64)), query)
        points = self._reader.points(selection)
        ticks = self._ticks(place)
        if ticks == 1:
            moved = replace(points, steps=self._on_axis(points.times_ns))
            return bucket_by_step(moved, query.buckets, query.low, query.high)
        # Seconds and rest apart: nanoseconds since the epoch times the ticks would exceed 64 bits.
        rest = points.times_ns % NS * ticks // NS
        low = None if query.low is None else query.low * ticks
        high = None if query.high is None else query.high * ticks + ticks - 1
        fine = replace(points, steps=points.times_ns // NS * ticks + rest)
        return bucket_by_step(fine, query.buckets, low, high)

    def _ticks(self, place: Place) -> int:
        is_fine = place.own_axis == "step" and self._query.axis == "seconds" and place.points <= MAX_POINTS
        return TICKS_PER_SECOND if is_fine else 1

    def _on_axis(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times as steps or as seconds, by the axis of the chart."""
        return times_ns // NS if self._query.axis == "seconds" else self._lookup.steps_at(times_ns)

    def _selection(self, place: Place) -> Selection:
        labels = (place.segment, place.rank, place.host, place.device, place.own_axis)
        return Selection(self._run.id, place.key, *labels)

    def _first_steps(self, places: list[Place]) -> _FirstSteps:
        """The first step of each segment, for places with several segments."""
        first_steps: _FirstSteps = {}
        for place in places:
            if place.segment is not None:
                first_steps.setdefault(_where(place), {})[place.segment] = 0
        for place in places:
            segments = first_steps.get(_where(place), {})
            if place.segment is not None and len(segments) > 1:
                segments[place.segment] = self._first_step(place, place.segment)
        return first_steps

    def _first_step(self, place: Place, segment: str) -> int:
        if place.own_axis == "seconds":
            return self._lookup.first_step(segment) or 0
        reach = self._reader.reach(self._selection(place))
        return 0 if reach is None else reach[0]

    def _superseded_from(self, place: Place, first_steps: _FirstSteps) -> int | None:
        """The first step that a later segment repeated; None where none did."""
        here = self._order.get(place.segment or "", -1)
        segments = first_steps.get(_where(place), {})
        later = [first for segment, first in segments.items() if self._order.get(segment, -1) > here]
        return min(later, default=None)


def rebucketed(buckets: Buckets, x: NDArray[np.int64], query: SeriesQuery) -> Buckets:
    """The same buckets on another axis: each counts where its last point is."""
    inside = np.ones(len(x), bool)
    if query.low is not None:
        inside &= x >= query.low
    if query.high is not None:
        inside &= x <= query.high
    if not inside.any():
        return rollup.as_buckets(None, 0)
    x = x[inside]
    exponent = rollup.exponent_for(int(x.min()), int(x.max()), query.buckets)
    finite = buckets.count - buckets.nonfinite
    total = np.where(finite > 0, buckets.mean * finite, 0.0)
    part = rollup.Rollup(
        exponent=exponent,
        index=x >> exponent,
        count=buckets.count[inside],
        last_ns=(buckets.times[inside] * 1e9).astype(np.int64),
        minimum=buckets.minimum[inside, None],
        maximum=buckets.maximum[inside, None],
        total=total[inside, None],
        last=buckets.last[inside, None],
        nonfinite=buckets.nonfinite[inside, None],
    )
    return rollup.as_buckets(rollup.merge([part], exponent), exponent)


def _matches(counter: Counter, query: SeriesQuery) -> bool:
    filters = (query.rank, query.host, query.device)
    labels = (counter.source.rank, counter.source.host, counter.source.device)
    return all(value in (None, label) for value, label in zip(filters, labels, strict=True))


def _part(place: Place, buckets: Buckets, *, superseded: bool) -> Part:
    return Part(
        place.key,
        place.rank,
        place.host or "",
        place.device or "",
        place.segment or "",
        superseded,
        place.points,
        buckets,
    )


def _where(place: Place) -> tuple[str, int | None, str | None, str | None]:
    return place.key, place.rank, place.host, place.device


def _until(query: SeriesQuery, high: int) -> SeriesQuery:
    return replace(query, high=high if query.high is None else min(query.high, high))


def _from(query: SeriesQuery, low: int) -> SeriesQuery:
    return replace(query, low=low if query.low is None else max(query.low, low))


def _from_step(buckets: Buckets, limit: int) -> Buckets:
    """Drops a bucket that the part before also has."""
    columns = ("starts", "count", "minimum", "maximum", "mean", "last", "nonfinite", "times")
    inside = buckets.starts >= limit
    return replace(buckets, **{name: getattr(buckets, name)[inside] for name in columns})
