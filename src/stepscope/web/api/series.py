"""Reads series for charts: buckets by step or by time, one part for each key, place and segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.series import Buckets, Selection
from stepscope.store.buckets import Limits
from stepscope.web.api.series_header import Columns, SeriesPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.schema.series import Axis
    from stepscope.store.base import Counter, Reader

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

    def described(self, *, with_columns: bool) -> SeriesPart:
        """Its entry in the header."""
        buckets = self.buckets
        return SeriesPart(
            key=self.key,
            rank=self.rank,
            host=self.host,
            device=self.device,
            segment=self.segment,
            superseded=self.superseded,
            width=(
                buckets.width / buckets.ticks
                if buckets.width < buckets.ticks
                else buckets.width // buckets.ticks
            ),
            length=len(buckets),
            points=self.points,
            exact=buckets.width <= buckets.ticks and bool((buckets.count <= 1).all()),
            data=Columns(*(column.tolist() for column in self.columns())) if with_columns else None,
        )

    def columns(self) -> list[NDArray[np.float64]]:
        """Start, count, minimum, maximum, mean, last, non-finite count, time."""
        buckets = self.buckets
        count, nonfinite = (column.astype(np.float64) for column in (buckets.count, buckets.nonfinite))
        starts = buckets.starts / buckets.ticks
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


class SeriesReader:
    """Reads the series of one request."""

    def __init__(self, run: Run, reader: Reader, query: SeriesQuery) -> None:
        self._run, self._reader, self._query = run, reader, query
        self._order = {segment.id: number for number, segment in enumerate(run.segments)}

    def parts(self, places: list[Place]) -> list[Part]:
        """The parts of all places; steps that a later segment repeated are a separate, superseded part."""
        first_steps = self._first_steps(places) if self._query.axis == "step" else {}
        parts: list[Part] = []
        for place in places:
            limit = self._superseded_from(place, first_steps)
            if limit is None:
                parts.append(_part(place, self._buckets(place, self._query), superseded=False))
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
        limits = Limits(query.buckets, query.low, query.high)
        return self._reader.buckets_on(selection, query.axis, limits, self._run.step_clock)

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
            return self._run.step_clock.first_step(segment) or 0
        reach = self._reader.reach(self._selection(place))
        return 0 if reach is None else reach[0]

    def _superseded_from(self, place: Place, first_steps: _FirstSteps) -> int | None:
        """The first step that a later segment repeated; None where none did."""
        here = self._order.get(place.segment or "", -1)
        segments = first_steps.get(_where(place), {})
        later = [first for segment, first in segments.items() if self._order.get(segment, -1) > here]
        return min(later, default=None)


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
