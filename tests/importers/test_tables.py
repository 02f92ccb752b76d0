"""CSV files and JSON lines, as people have them."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest

from stepscope import TrainingMonitor
from stepscope.cli.main import main
from stepscope.errors import SourceError


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_csv_file_has_a_row_for_each_step(written, imported):
    path = written(
        "größe.csv", "Step,wall time,loss,note\n0,1700000000.5,0.5,a\n10,1700000001.5,nan,b\n20,,-inf,\n"
    )
    [run] = imported(path)
    assert run.name == "größe"
    loss = run.series("loss")
    assert loss.steps.tolist() == [0, 10, 20]
    assert np.array_equal(loss.values, [0.5, math.nan, -math.inf], equal_nan=True)
    assert loss.times_ns.tolist() == [
        1_700_000_000_500_000_000,
        1_700_000_001_500_000_000,
        1_700_000_001_500_000_000,
    ]
    assert [info.key for info in run.keys()] == ["loss"]


def test_a_csv_file_may_have_a_row_for_each_value(written, imported):
    [run] = imported(written("x.csv", "step;key;value\n0;a/b;1\n0;c,d;2\n1;a/b;3\n"))
    assert run.series("a/b").values.tolist() == [1.0, 3.0]
    assert run.series("c,d").steps.tolist() == [0]


@pytest.mark.parametrize(
    ("time", "nanoseconds"),
    [
        ("1700000000", 1_700_000_000 * 10**9),
        ("1700000000123", 1_700_000_000_123 * 10**6),
        ("1700000000123456789", 1_700_000_000_123_456_789),
        ("2026-01-01T00:00:00.123456Z", 1_767_225_600_123_456_000),
        ("2026-01-01 01:00:00+01:00", 1_767_225_600 * 10**9),
        ("2026-01-01", 1_767_225_600 * 10**9),
    ],
)
def test_times_may_have_any_common_form(time, nanoseconds, written, imported):
    [run] = imported(written("x.csv", f"time,loss\n{time},1\n"))
    assert run.series("loss").times_ns.tolist() == [nanoseconds]


def test_an_epoch_is_the_step_where_there_is_none(written, imported):
    [run] = imported(written("x.csv", "epoch,loss\n3,1\n4,2\n"))
    assert run.series("loss").steps.tolist() == [3, 4]
    assert run.series("epoch").values.tolist() == [3.0, 4.0]


def test_cells_that_are_no_numbers_are_left_out(written, imported):
    [run] = imported(written("x.csv", "step,a\n1,1e400\n2,-1e400\n3,0x10\n4,1_000\n5, 7 \n6,true\n"))
    assert run.series("a").steps.tolist() == [1, 2, 5]
    assert run.series("a").values.tolist() == [math.inf, -math.inf, 7.0]


def test_rows_without_a_step_are_numbered(written, imported):
    [run] = imported(written("x.csv", "loss\n5\n6\n"))
    assert run.series("loss").steps.tolist() == [0, 1]


def test_json_lines_have_numbers_texts_and_nested_values(written, imported):
    lines = [
        {"step": 0, "timestamp": 1700000000.25, "loss": 0.5, "nested": {"a": 1}},
        {"step": 5, "timestamp": 1700000001.25, "loss": "NaN", "note": "text", "big": 10**400, "flag": True},
    ]
    [run] = imported(
        written("x.jsonl", "\n".join(map(json.dumps, lines)) + '\n\n{"step": 6, "loss": Infinity}\n')
    )
    loss = run.series("loss")
    assert np.array_equal(loss.values, [0.5, math.nan, math.inf], equal_nan=True)
    assert loss.steps.tolist() == [0, 5, 6]
    assert loss.times_ns.tolist() == [
        1_700_000_000_250_000_000,
        1_700_000_001_250_000_000,
        1_700_000_001_250_000_000,
    ]
    assert run.series("nested.a").values.tolist() == [1.0]
    assert run.series("flag").values.tolist() == [1.0]
    assert [event.fields["value"] for event in run.events("text")] == ["text"]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_what_export_writes_can_be_imported_again(ending, folder, tmp_path, imported, without_agent):
    with TrainingMonitor(run="train", directory=folder) as monitor:
        for step in range(20):
            monitor.log({"loss": 1 / (step + 1), "odd": [math.nan, math.inf][step % 2]}, step=3 * step)
    path = tmp_path / f"exported.{ending}"
    assert main(["export", "train", "--keys", "loss,odd", "--store", str(folder), "--output", str(path)]) == 0
    [run] = imported(path)
    assert run.series("loss").values.tolist() == [1 / (step + 1) for step in range(20)]
    assert run.series("loss").steps.tolist() == [3 * step for step in range(20)]
    assert np.array_equal(run.series("odd").values, [math.nan, math.inf] * 10, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.csv", "", "no rows"),
        ("x.csv", "a,b\nx,y\n", "no column of numbers"),
        ("x.csv", "a,b\n1,2\n1\n1,2\n", "line 3: 1 cells for 2 columns"),
        ("x.csv", "a,a\n1,2\n", "two columns named 'a'"),
        ("x.csv", ",".join(f"c{n}" for n in range(1_000_000)) + "\n", "1,000,000 columns"),
        ("x.csv", "step,a\nhalf,2\n", "line 2: the step 'half'"),
        ("x.csv", "step,a\n1e300,2\n", "the step '1e300'"),
        ("x.csv", "time,a\n1e300,2\n", "line 2: the time 1"),
        ("x.csv", b"step,a\n1,\xff\n", "line 2: byte 2 is not UTF-8"),
        ("x.csv", "a\n" + "9" * (17 << 20), "longer than 16 MiB"),
        ("x.csv", 'a\n"1"2\n', "a cell"),
        ("x.jsonl", "", "no objects"),
        ("x.jsonl", '{"a": "b"}\n', "no numbers"),
        ("x.jsonl", '{"a": 1}\n[1]\n', "line 2: JSON of the type list"),
        ("x.jsonl", '{"a": 1}\n{"a": \n{"a": 1}\n', "line 2"),
        ("x.jsonl", '{"a":' * 100_000 + "1" + "}" * 100_000 + "\n", "line 1: JSON that is nested too deeply"),
        ("x.jsonl", '{"step": 1.5, "a": 1}\n', "the step '1.5'"),
        ("x.jsonl", b'{"a": 1}\n\x80\x04\x95.\n', "line 2: byte 0 is not UTF-8"),
    ],
    ids=[
        "empty", "no numbers", "a short row", "equal names", "a million columns", "step", "huge step",
        "huge time", "encoding", "long line", "quotes", "no lines", "texts", "a list", "no JSON", "deep JSON",
        "half a step", "a pickle",
    ],
)  # fmt: skip
def test_a_damaged_table_is_an_error_that_names_the_place(name, text, words, written, folder, imported):
    path = written(name, text)
    with pytest.raises(SourceError) as raised:
        imported(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert not (folder / "store.sqlite").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.csv", "step,a,b\n0,1,2\n1,3"), ("x.jsonl", '{"step": 0, "a": 1}\n{"step": 1, "a"')],
)
def test_a_last_line_that_is_cut_off_is_left_out(name, text, written, imported):
    [run] = imported(written(name, text))
    assert run.series("a").steps.tolist() == [0]


def test_nested_values_that_are_too_deep_are_no_metrics(written, imported):
    deep = '{"a":' * 50 + "1" + "}" * 50
    [run] = imported(written("x.jsonl", f'{{"loss": 1, "deep": {deep}}}\n'))
    assert [info.key for info in run.keys()] == ["loss"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(written, imported):
    path = written("x.csv", "step,loss\n" + "".join(f"{step},{step / 7}\n" for step in range(20_000)))
    tracemalloc.start()
    try:
        [run] = imported(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(run.series("loss")) == 20_000
    assert peak < 40 << 20
