"""Exported files read back as the same values, bit for bit."""

import csv
import io
import json
import math
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.errors import MissingExtra
from stepscope.exporters.base import Rows
from stepscope.exporters.csv_file import CsvFile, cell
from stepscope.exporters.json_file import JsonFile
from stepscope.exporters.jsonl import JsonLines
from stepscope.exporters.parquet import Parquet

TIME = "2026-01-02T03:04:05.678901"
NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.none() | st.floats() | st.sampled_from([-0.0, 5e-324, 1e308, 0.1, math.nan, math.inf])


@st.composite
def tables(draw):
    """Keys, and rows of a number or None for each of them."""
    keys = draw(st.lists(texts.filter(lambda key: key not in LABELS), unique=True, max_size=4))
    rows = draw(st.lists(st.tuples(*[numbers for _ in keys]), max_size=5))
    return draw(texts), keys, rows


LABELS = ("run", "rank", "step", "time", "seconds")


def as_rows(run, keys, rows):
    cells = np.array(rows, object).reshape(len(rows), len(keys))
    present = np.array([[cell is not None for cell in row] for row in cells], bool)
    values = np.where(cells == None, 0.0, cells).astype(float)  # noqa: E711 - element by element
    names = np.empty(len(rows), object)
    names.fill(run)
    labels = {
        "run": names,
        "rank": np.zeros(len(rows), np.int64),
        "step": np.arange(len(rows), dtype=np.int64) - 2**62,
        "time": np.full(len(rows), TIME, "datetime64[ns]"),
        "seconds": np.full(len(rows), 0.1),
    }
    return Rows(labels, tuple(keys), values, present.reshape(values.shape))


def written(exporter, rows):
    target = io.BytesIO()
    opened = exporter(target)
    half = len(rows) // 2
    for part in (slice(0, half), slice(half, None)):
        labels = {name: column[part] for name, column in rows.labels.items()}
        opened.publish(Rows(labels, rows.keys, rows.values[part], rows.present[part]))
    opened.close()
    return target.getvalue()


def same(value, expected):
    """NaN is NaN; everything else is equal to the last bit."""
    if expected is None or value is None:
        return expected is value
    if math.isnan(expected):
        return math.isnan(value)
    return struct.pack("d", value) == struct.pack("d", expected)


def assert_same(written_rows, rows):
    assert len(written_rows) == len(rows)
    for row, other in zip(written_rows, rows, strict=True):
        assert len(row) == len(other)
        assert all(map(same, row, other))


@pytest.mark.slow
@given(tables())
def test_csv_round_trips_keys_and_values(table):
    run, keys, rows = table
    text = written(CsvFile, as_rows(run, keys, rows)).decode()
    heading, *lines = csv.reader(io.StringIO(text, newline=""))
    assert [unguarded(name) for name in heading] == [*LABELS, *keys]
    assert all(unguarded(line[0]) == run for line in lines)
    assert all(line[3:5] == [f"{TIME}Z", "0.1"] for line in lines)
    values = [[float(cell) if cell else None for cell in line[len(LABELS) :]] for line in lines]
    assert_same(values, rows)


def unguarded(text):
    return text.removeprefix("'")


@given(tables())
def test_json_lines_round_trip_keys_and_values(table):
    run, keys, rows = table
    lines = written(JsonLines, as_rows(run, keys, rows)).decode().split("\n")[:-1]
    assert_same_objects([json.loads(line, parse_constant=pytest.fail) for line in lines], table)


@given(tables())
def test_json_round_trips_keys_and_values(table):
    run, keys, rows = table
    text = written(JsonFile, as_rows(run, keys, rows))
    assert_same_objects(json.loads(text, parse_constant=pytest.fail), table)


def assert_same_objects(objects, table):
    run, keys, rows = table
    assert all(row["run"] == run and row["time"] == f"{TIME}Z" for row in objects)
    assert all(row.keys() <= {*LABELS, *keys} for row in objects)
    read_values = [[NONFINITE.get(row.get(key), row.get(key)) for key in keys] for row in objects]
    assert_same(read_values, rows)


@pytest.mark.slow
@given(tables())
def test_parquet_round_trips_keys_and_values(table):
    import pyarrow.parquet

    run, keys, rows = table
    content = written(Parquet, as_rows(run, keys, rows))
    read = pyarrow.parquet.read_table(io.BytesIO(content))
    assert read.column_names == [*LABELS, *keys]
    assert set(read.column("run").to_pylist()) <= {run}
    assert str(read.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    columns = [read.column(len(LABELS) + place).to_pylist() for place in range(len(keys))]
    assert_same(list(zip(*columns, strict=True)) if keys else rows, rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loss", "loss"),
        ("=1+2", "'=1+2"),
        ("@cmd", "'@cmd"),
        ("-x", "'-x"),
        ("\tx", "'\tx"),
        ("'x", "''x"),
        ("a,b", '"a,b"'),
        ('=a"b', '"\'=a""b"'),
        ("", ""),
    ],
)
def test_a_text_cell_is_protected_and_quoted(text, expected):
    assert cell(text) == expected


def test_a_negative_number_is_not_protected():
    assert written(CsvFile, as_rows("r", ["a"], [(-1.5,)])).decode().endswith(",-1.5\n")


def test_parquet_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"stepscope\[parquet\]"):
        Parquet(io.BytesIO())
