"""Series come in aligned buckets on either axis, for several keys and places, as bytes or as JSON."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepscope.schema.series import Selection, Source
from stepscope.store import buckets as buckets_module
from tests.web.asking import (
    API,
    BEARER,
    BEGUN_NS,
    NS,
    RUN,
    append,
    ask,
    error_of,
    get,
    header_and_columns,
    times,
)

SERIES = f"{API}/runs/{RUN}/series"


def binary(app, query: str):
    response = ask(app, f"{SERIES}?{query}")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    return header_and_columns(response.content)


def as_json(app, query: str):
    return ask(app, f"{SERIES}?{query}&format=json").json()


def test_there_is_a_part_for_each_key_and_place_and_what_was_repeated_is_superseded(app) -> None:
    header, _ = binary(app, "keys=loss,step_seconds&buckets=64")
    places = [
        (series["key"], series["rank"], series["segment"], series["superseded"])
        for series in header["series"]
    ]
    parts = [("s1", False), ("s1", True), ("s2", False)]
    expected = [(key, rank, *part) for key in ("loss", "step_seconds") for rank in (0, 1) for part in parts]
    assert sorted(places, key=str) == sorted(expected, key=str)
    assert header["missing"] == []
    assert header["columns"] == ["start", "count", "min", "max", "mean", "last", "nonfinite", "time"]


def test_superseded_steps_are_those_a_later_segment_went_through_again(app) -> None:
    header, columns = binary(app, "keys=loss&rank=0&buckets=4000")
    kept, tail, again = [column["start"].tolist() for column in columns]
    assert kept == list(range(800))
    assert tail == list(range(800, 1000))
    assert again == list(range(800, 1600))
    assert [series["exact"] for series in header["series"]] == [True, True, True]
    assert [series["points"] for series in header["series"]] == [1000, 1000, 800]


def test_buckets_are_those_of_the_store_with_edges_at_multiples_of_their_width(app, store) -> None:
    header, [_, _, again] = binary(app, "keys=loss&rank=1&buckets=10")
    expected = store.buckets(Selection(RUN, "loss", "s2", 1), 10)
    assert header["series"][2]["width"] == expected.width
    for name, column in (
        ("start", expected.starts),
        ("mean", expected.mean),
        ("max", expected.maximum),
        ("time", expected.times),
    ):
        np.testing.assert_array_equal(again[name], column)
    assert (again["start"] % expected.width == 0).all()


def test_the_same_step_falls_into_the_same_bucket_however_the_range_moves(app) -> None:
    known = {}
    for low in range(0, 200, 7):
        header, [column, *_] = binary(app, f"keys=loss&rank=0&from={low}&to={low + 255}&buckets=32")
        width = header["series"][0]["width"]
        for start, mean in zip(column["start"], column["mean"], strict=True):
            assert known.setdefault((width, start), mean) == mean


def test_what_is_not_finite_is_counted_and_null_in_json_and_nan_in_bytes(app) -> None:
    data = as_json(app, "keys=loss&rank=0&from=500&to=500")["series"][0]["data"]
    assert data["nonfinite"] == [1.0]
    assert data["last"] == data["mean"] == [None]
    _, [columns, _] = binary(app, "keys=loss&rank=0&from=500&to=500")
    assert math.isnan(columns["last"][0])


def test_json_and_bytes_hold_the_same(app) -> None:
    query = "keys=loss,gpu/utilization_ratio&buckets=16"
    header, columns = binary(app, query)
    answer = as_json(app, query)
    assert [{**series, "data": None} for series in answer["series"]] == [
        {**series, "data": None} for series in header["series"]
    ]
    for one, column in zip(answer["series"], columns, strict=True):
        for name, values in one["data"].items():
            assert values == [None if math.isnan(value) else value for value in column[name].tolist()]


def test_merged_there_is_one_part_for_each_key(app) -> None:
    header, [columns] = binary(app, "keys=loss&merge=true&buckets=1")
    [series] = header["series"]
    assert (series["rank"], series["host"], series["segment"], series["points"]) == (None, "", "", 3600)
    assert columns["count"].sum() == 3600


def test_a_key_that_is_not_there_is_missing_and_one_with_a_comma_is_found(app, store) -> None:
    append(store, {"odd,key": [1.0]}, [1], times(1, 200))
    header, _ = binary(app, "keys=odd,key&keys=loss,nope")
    assert {series["key"] for series in header["series"]} == {"odd,key", "loss"}
    assert header["missing"] == ["nope"]


def test_places_can_be_chosen(app) -> None:
    assert {series["rank"] for series in as_json(app, "keys=loss&rank=1")["series"]} == {1}
    assert as_json(app, "keys=loss&host=node2")["series"] == []
    assert len(as_json(app, "keys=gpu/utilization_ratio&device=gpu0&axis=seconds")["series"]) == 1


def test_what_the_machine_was_read_is_joined_to_the_steps_in_progress(app) -> None:
    # A step every 10 ms: at second n of the run, step 100 n is the next to be logged.
    header, [columns] = binary(app, "keys=gpu/utilization_ratio&buckets=4000")
    assert header["series"][0]["points"] == 11
    assert columns["start"].tolist() == [0, *range(99, 1000, 100)]
    np.testing.assert_allclose(columns["last"], np.linspace(0, 1, 11))


def test_on_the_axis_of_seconds_everything_counts_in_seconds_since_the_epoch(app) -> None:
    begun_s = BEGUN_NS // NS
    header, columns = binary(app, "keys=loss,gpu/utilization_ratio&rank=0&axis=seconds&buckets=4000")
    assert header["axis"] == "seconds"
    first = columns[0]
    assert [first["start"][0] // 1, first["start"][-1] // 1] == [begun_s, begun_s + 10]
    assert first["count"].sum() == 1000
    gpu = as_json(app, "keys=gpu/utilization_ratio&axis=seconds")["series"][0]["data"]
    assert gpu["start"] == [begun_s + second for second in range(11)]


def test_a_run_of_a_few_seconds_has_as_many_buckets_by_time_as_it_needs(app) -> None:
    header, columns = binary(app, "keys=loss&rank=0&axis=seconds&buckets=4000")
    width, starts = header["series"][0]["width"], columns[0]["start"]
    assert len(starts) == 1000
    assert 0 < width < 0.01
    assert not (starts % width).any()
    begin = BEGUN_NS // NS + 2
    part, part_columns = binary(app, f"keys=loss&rank=0&axis=seconds&from={begin}&to={begin + 1}")
    assert set(part_columns[0]["start"] // 1) == {begin, begin + 1}
    assert part["series"][0]["exact"]
    coarse, _ = binary(app, "keys=loss&rank=0&axis=seconds&buckets=4")
    assert coarse["series"][0]["width"] == 4


@pytest.mark.parametrize("axis", ["step", "seconds"])
def test_a_long_series_on_its_other_axis_hides_no_extreme_and_loses_no_point(
    app, store, axis, monkeypatch
) -> None:
    own = "seconds" if axis == "step" else "step"
    values = np.sin(np.arange(3000))
    values[1234], values[2345] = 50.0, np.nan
    of = Source(RUN, "s1", None if own == "seconds" else 5, "node1", "gpu9", own)
    append(store, {"long": values}, np.arange(3000), times(3000, 0, 0.01), of)
    few = as_json(app, f"keys=long&axis={axis}&buckets=50")["series"][0]
    monkeypatch.setattr(buckets_module, "MAX_POINTS", 100)
    many = as_json(app, f"keys=long&axis={axis}&buckets=50")["series"][0]
    for series in (few, many):
        assert sum(series["data"]["count"]) == 3000
        assert max(value for value in series["data"]["max"] if value is not None) == 50.0
        assert sum(series["data"]["nonfinite"]) == 1
        assert series["length"] <= 50


def test_an_unchanged_response_is_not_sent_again(app, store) -> None:
    first = ask(app, f"{SERIES}?keys=loss")
    tag = first.headers["etag"]
    again = ask(app, f"{SERIES}?keys=loss", headers={**BEARER, "If-None-Match": f'"x", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    append(store, {"other": [1.0]}, [2000], times(1, 300))
    assert ask(app, f"{SERIES}?keys=loss", headers={**BEARER, "If-None-Match": tag}).status_code == 304
    append(store, {"loss": [1.0]}, [2000], times(1, 300), Source(RUN, "s2", 0, "node1"))
    response = ask(app, f"{SERIES}?keys=loss", headers={**BEARER, "If-None-Match": tag})
    assert (response.status_code, response.headers["etag"] != tag) == (200, True)
    assert ask(app, f"{SERIES}?keys=loss&buckets=7").headers["etag"] != response.headers["etag"]


def test_more_than_can_be_sent_at_once_is_refused_with_what_to_do(app, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.web.api.routes_series.MAX_BUCKETS", 100)
    response = ask(app, f"{SERIES}?keys=loss&buckets=800")
    assert response.status_code == 400
    assert "merge=true" in error_of(response)


def test_a_run_whose_segments_do_not_overlap_has_nothing_superseded(app, store) -> None:
    of = {segment: Source(RUN, segment, 7, "node1") for segment in ("s1", "s2")}
    append(store, {"x": np.arange(10.0)}, np.arange(10), times(10), of["s1"])
    append(store, {"x": np.arange(10.0)}, np.arange(10, 20), times(10, 100), of["s2"])
    listed = as_json(app, "keys=x&rank=7")["series"]
    assert [(series["segment"], series["superseded"], series["length"]) for series in listed] == [
        ("s1", False, 10),
        ("s2", False, 10),
    ]


def test_the_head_of_a_run_has_its_segments_axes_and_a_cursor(app) -> None:
    head = get(app, f"/runs/{RUN}")
    assert [(segment["id"], segment["first_step"], segment["last_step"]) for segment in head["segments"]] == [
        ("s1", 0, 999),
        ("s2", 800, 1599),
    ]
    axes = {axis["name"]: axis for axis in head["axes"]}
    assert list(axes) == ["step", "epoch", "samples", "tokens", "active", "process", "wall"]
    assert axes["tokens"]["why_not"].startswith("This axis needs the metric tokens_total")
    assert axes["active"]["why_not"] is None
    assert head["live"] is False
    assert head["cursor"]
