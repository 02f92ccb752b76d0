"""Routes on series: the catalogue of keys, and columns of buckets for charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from fastapi.exceptions import HTTPException

from stepscope.views.metrics.catalogue import Catalogue, catalogue_of
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import (
    Axis,
    Buckets,
    Device,
    Format,
    High,
    Host,
    Keys,
    KnownTag,
    Low,
    Rank,
    Responses,
    RunId,
    StateOf,
    split_keys,
)
from stepscope.web.api.responses import BINARY, columns_to_bytes, etag_of, json_response, matches_etag
from stepscope.web.api.run_head import cursor_of
from stepscope.web.api.series import SeriesQuery, SeriesReader, places_of
from stepscope.web.api.series_header import COLUMNS, SeriesHeader

if TYPE_CHECKING:
    from stepscope.store.base import Counter
    from stepscope.web.api.series import Place

router = APIRouter(tags=["series"])

MAX_BUCKETS = 1_000_000
"""For all series of one response together: 64 MB."""

BYTES: Responses = {
    200: {
        "description": (
            "With format=binary: the length of the header as uint32, the header as JSON padded with spaces "
            "so that both are a multiple of 8 bytes, then for each series in order, for each column in "
            "order, its numbers as float64, all little-endian."
        ),
        "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client's copy is current."},
}


@router.get("/runs/{run_id}/keys", response_model=answer(Catalogue))
def keys_of_run(state: StateOf, run_id: RunId) -> Response:
    """All keys of a run, with unit, group, axis and the places they come from."""
    with state.readers.open() as opened:
        return json_response(catalogue_of(opened.run(run_id)))


@router.get("/runs/{run_id}/series", response_model=answer(SeriesHeader), responses=BYTES)
def series(  # noqa: PLR0913 - the parameters of a chart
    state: StateOf,
    run_id: RunId,
    keys: Keys,
    *,
    axis: Axis = "step",
    low: Low = None,
    high: High = None,
    buckets: Buckets = 800,
    rank: Rank = None,
    host: Host = None,
    device: Device = None,
    merge: Annotated[bool, Query(description="One series for each key, merged over all places.")] = False,
    format: Format = "binary",  # noqa: A002 - its name in the address
    if_none_match: KnownTag = None,
) -> Response:
    """Buckets of several keys, one part for each place; bucket edges are multiples of a power of two."""
    query = SeriesQuery(axis, buckets, low, high, rank, host, device, merge)
    with state.readers.open() as opened, opened.reader.moment():
        run = opened.run(run_id)
        counters = opened.reader.counters(run.id)
        names = split_keys(keys, {counter.key for counter in counters})
        places = places_of(counters, names, query)
        _check_size(len(places), buckets)
        etag = etag_of(run.id, names, query, format, _point_counts(counters, places, axis))
        if matches_etag(etag, if_none_match):
            return Response(status_code=304, headers={"ETag": etag})
        parts = SeriesReader(run, opened.reader, query).parts(places)
        header = SeriesHeader(
            run=run.id,
            axis=axis,
            columns=COLUMNS,
            series=tuple(part.described(with_columns=format == "json") for part in parts),
            cursor=cursor_of(state, opened, run, counters),
            missing=tuple(name for name in names if all(place.key != name for place in places)),
        )
    if format == "json":
        response = json_response(header)
    else:
        content = columns_to_bytes(header, (part.columns() for part in parts))
        response = Response(content, media_type=BINARY)
    response.headers["ETag"] = etag
    return response


def _check_size(places: int, buckets: int) -> None:
    if places * buckets > MAX_BUCKETS:
        raise HTTPException(
            400,
            f"The keys have {places} series, and {buckets} buckets of each are more than {MAX_BUCKETS:,} "
            "in all. Ask for fewer keys, fewer buckets, one rank, or merge=true.",
        )


def _point_counts(counters: list[Counter], places: list[Place], axis: str) -> object:
    """The points of each series that a response depends on: of all of them where one changes its axis."""
    if any(place.own_axis != axis for place in places):
        return [(counter.series_id, counter.points) for counter in counters]
    keys = {place.key for place in places}
    return [(counter.series_id, counter.points) for counter in counters if counter.key in keys]
