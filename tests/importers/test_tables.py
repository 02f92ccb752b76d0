"""CSV files and JSON lines, as people have them."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest

from stepscope import TrainingMonitor, open_store
from stepscope.cli.main import main
from stepscope.errors import SourceError
from stepscope.source_files.exported_rows import LONG_COLUMNS, WIDE_LABELS
from stepscope.views.export import rows


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
        1_700_000_001_500_000_001,  # that of the row before, and after it
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


def remarks_of(run):
    [event] = run.own_events("imported")
    return [remark for remark in event.fields["remarks"] if "written to" not in remark]


def test_cells_that_are_no_numbers_are_left_out_and_counted(written, imported):
    lines = "1,1e400,x\n2,-1e400,\n3,0x10,\n4,1_000,\n5, 7 ,\n6,true,\n7,1%,\n"
    [run] = imported(written("x.csv", f"step,a,note\n{lines}"))
    assert remarks_of(run) == ["left out cells that are not numbers: note (1), a (4)"]
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
        1_700_000_001_250_000_001,  # that of the row before, and after it
    ]
    assert run.series("nested.a").values.tolist() == [1.0]
    assert run.series("flag").values.tolist() == [1.0]
    assert [event.fields["value"] for event in run.events("text")] == ["text"]


def test_commas_between_semicolons_are_decimal_points(written, imported):
    [run] = imported(written("x.csv", "step;time;loss\n0;1700000000,5;0,5\n1;1700000001,5;-1,5e-3\n"))
    assert run.series("loss").values.tolist() == [0.5, -0.0015]
    assert run.series("loss").times_ns[0] == 1_700_000_000_500_000_000
    assert remarks_of(run) == ["commas in numbers were read as decimal points: 1700000000,5 is 1700000000.5"]


@pytest.mark.parametrize(
    "head", ["\n", "# made by x\n", "# made by x\n\n#\n", "\ufeff"], ids=["blank", "comment", "both", "mark"]
)
def test_blank_lines_and_comments_may_be_before_the_names(head, written, imported):
    [run] = imported(written("x.csv", f"{head}step,loss\n3,1\n4,2\n"))
    assert run.series("loss").steps.tolist() == [3, 4]


def test_a_comment_before_numbers_has_the_names_as_numpy_writes_it(written, imported):
    [run] = imported(written("x.csv", "# step,loss\n0.0,1.5\n1.0,0.5\n"))
    assert run.series("loss").values.tolist() == [1.5, 0.5]
    assert run.series("loss").steps.tolist() == [0, 1]


def test_an_index_without_a_name_as_pandas_writes_it_is_no_metric(written, imported):
    [run] = imported(written("x.csv", ",loss\n0,1\n1,2\n"))
    assert [info.key for info in run.keys()] == ["loss"]
    assert remarks_of(run) == ["columns without a name were left out: 1"]


def test_a_column_name_beside_other_numbers_is_no_row_for_each_value(written, imported):
    [run] = imported(written("x.csv", "name,step,loss,value\na,0,1,2\na,1,3,4\n"))
    assert run.series("loss").values.tolist() == [1.0, 3.0]
    assert run.series("value").values.tolist() == [2.0, 4.0]
    assert remarks_of(run) == ["left out cells that are not numbers: name (2)"]


def test_texts_beside_a_value_are_counted(written, imported):
    [run] = imported(written("x.csv", "host,epoch,name,value\nn1,0,loss,1\nn1,1,loss,2\n"))
    assert run.series("loss").values.tolist() == [1.0, 2.0]
    assert "host (2)" in remarks_of(run)[0]


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-16", "\r\n"), ("utf-16-be", "\n"), ("utf-8", "\r"), ("utf-8", "\r\n")]
)
def test_files_of_excel_and_of_old_macs_can_be_read(encoding, end, written, imported):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = end.join([f"{mark}step\tgröße", "0\t1", "1\t2", ""])
    [run] = imported(written("x.csv", text.encode(encoding)))
    assert run.series("größe").values.tolist() == [1.0, 2.0]


def test_json_values_of_one_name_and_lists_are_counted_as_left_out(written, imported):
    [run] = imported(written("x.jsonl", '{"a": {"b": 1}, "a.b": 2, "list": [1], "none": null}\n'))
    assert run.series("a.b").values.tolist() == [1.0]
    [remark] = remarks_of(run)
    assert remark.endswith("a.b (1), list (1)")


ODD_KEYS = ["=cmd()", "'quoted", "run", "step", "step_", "a.b", "two\nlines", "rank", "value", "key", "a,b"]


@pytest.mark.parametrize("options", [[], ["--long"]], ids=["wide", "long"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_export_comes_back_with_its_keys_steps_and_times(
    ending, options, folder, tmp_path, imported, without_agent
):
    with TrainingMonitor(run="train", directory=folder) as monitor:
        for step in range(5):
            monitor.log({key: step + 10 * place for place, key in enumerate(ODD_KEYS)}, step=3 * step)
    path = tmp_path / f"exported.{ending}"
    command = ["export", "train", *options, "--store", str(folder), "--output", str(path)]
    assert main(command) == 0
    original = open_store(folder).run("train")
    [run] = imported(path)
    assert run.name == "train-2"
    assert {info.key for info in run.keys()} == {info.key for info in original.keys()}
    assert {*ODD_KEYS} <= {info.key for info in run.keys()}
    for info in original.keys():
        first, second = original.series(info.key), run.series(info.key)
        assert second.values.tolist() == first.values.tolist()
        assert second.steps.tolist() == first.steps.tolist()
        assert np.abs(second.times_ns - first.times_ns).max() < 1000
    assert run.events("text") == []
    assert remarks_of(run) == []


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_export_of_several_ranks_is_a_run_for_each(ending, written, imported):
    labels = dict(
        zip(WIDE_LABELS, ("train", "s", 0, "h", "", 0, "2026-01-01T00:00:00Z", 1767225600.0), strict=True)
    )
    records = [
        {**labels, "rank": rank, "step": step, "loss": rank + step} for rank in (0, 1) for step in (0, 1)
    ]
    if ending == "csv":
        lines = [",".join(records[0]), *(",".join(map(str, record.values())) for record in records)]
    else:
        lines = [*map(json.dumps, records)]
    runs = {run.name: run for run in imported(written(f"x.{ending}", "\n".join(lines) + "\n"))}
    assert {name: run.series("loss").values.tolist() for name, run in runs.items()} == {
        "train/rank0": [0.0, 1.0],
        "train/rank1": [1.0, 2.0],
    }


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_export_that_is_cut_off_says_so(ending, folder, tmp_path, imported, without_agent):
    with TrainingMonitor(run="train", directory=folder) as monitor:
        for step in range(3):
            monitor.log({"loss": 1.0}, step=step)
    path = tmp_path / f"x.{ending}"
    main(["export", "train", "--store", str(folder), "--output", str(path)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    [run] = imported(path)
    assert (run.series("loss").steps.tolist(), run.status) == ([0, 1], "crashed")
    assert remarks_of(run) == ["the last line is cut off and was left out"]


def test_an_export_with_other_lines_is_damaged(written, imported):
    line = json.dumps(dict.fromkeys(WIDE_LABELS, 0))
    with pytest.raises(SourceError, match="line 2: its names are not those of the first line"):
        imported(written("x.jsonl", f'{line}\n{{"loss": 1}}\n'))


def test_the_columns_of_an_export_are_those_that_are_recognised():
    assert rows.WIDE_LABELS == WIDE_LABELS
    assert (*rows.LONG_LABELS, "value") == LONG_COLUMNS


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
        ("x.csv", "0,1.5\n1,0.5\n", "only numbers in its first line"),
        ("x.csv", "1\n2\n", "only numbers in its first line"),
        ("x.csv", b"a\0,\0b\0\n\0", "byte 1 is a zero byte"),
        ("x.csv", b"\xff\xfea", "is not UTF-16"),
        ("x.csv", 'a\n"1\n2\n', "a quoted cell that is not closed"),
        ("x.csv", ",".join(f"c{n}" for n in range(1_000_000)) + "\n", "1,000,000 columns"),
        ("x.csv", "step,a\nhalf,2\n", "line 2: the step 'half'"),
        ("x.csv", "step,a\n1e300,2\n", "the step '1e300'"),
        ("x.csv", "time,a\n1e300,2\n", "line 2: the time 1"),
        ("x.csv", b"step,a\n1,\xff\n", "line 2: byte 2 is not UTF-8"),
        ("x.csv", "a\n" + "9" * (17 << 20), "longer than 16 MiB"),
        ("x.csv", 'a\n"1"2\n', "line 2: a quoted cell"),
        ("x.jsonl", "", "no objects"),
        ("x.jsonl", '{"a": "b"}\n', "no numbers"),
        ("x.jsonl", '{"a": 1}\n[1]\n', "line 2: JSON of the type list"),
        ("x.jsonl", '{"a": 1}\n{"a": \n{"a": 1}\n', "line 2: it is not JSON from character"),
        ("x.jsonl", "x\n", "line 1: it is not JSON from character 1 on"),
        ("x.jsonl", f'{{"a": {"9" * 5000}}}\n', "line 1: a number with more than 4,300 digits"),
        ("x.jsonl", '{"a":' * 100_000 + "1" + "}" * 100_000 + "\n", "line 1: JSON that is nested too deeply"),
        ("x.jsonl", '{"step": 1.5, "a": 1}\n', "the step '1.5'"),
        ("x.jsonl", b'{"a": 1}\n\x80\x04\x95.\n', "line 2: byte 0 is not UTF-8"),
    ],
    ids=[
        "empty", "no numbers", "a short row", "equal names", "no names", "one column without a name",
        "zero bytes", "half a character", "an open quote", "a million columns", "step", "huge step",
        "huge time", "encoding", "long line", "quotes", "no lines", "texts", "a list", "half an object",
        "no JSON", "digits", "deep JSON", "half a step", "a pickle",
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
    assert (run.status, run.reason) == ("crashed", "the file ends within a line")
    assert "is cut off and was left out" in remarks_of(run)[0]


def test_nested_values_that_are_too_deep_are_no_metrics(written, imported):
    deep = '{"a":' * 50 + "1" + "}" * 50
    [run] = imported(written("x.jsonl", f'{{"loss": 1, "deep": {deep}}}\n'))
    assert [info.key for info in run.keys()] == ["loss"]


@pytest.mark.parametrize("times", ["", "time"])
def test_rows_of_one_time_keep_their_order_where_columns_are_sparse(times, written, imported):
    rows = [f"{step % 70},{1 / (step + 1)},{1 if step % 10 == 0 else ''},1700000000" for step in range(100)]
    [run] = imported(written("x.csv", "\n".join([f"step,loss,val_loss,{times}", *rows]) + "\n"))
    assert run.series("loss").values.tolist() == [1 / (step + 1) for step in range(100)]
    assert run.series("loss").steps.tolist() == [step % 70 for step in range(100)]
    assert len(run.series("val_loss")) == 10


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ('{"a":' * 300 + "1" + "}" * 300, "JSON that is nested too deeply"),
        ("[" * 300 + "]" * 300, "JSON that is nested too deeply"),
        (f'{{"{"n" * 20_000}": 1}}', "of 20,006 characters, expected 10,000 at most"),
    ],
    ids=["objects", "lists", "name"],
)
def test_values_that_would_exhaust_memory_or_python_are_refused(values, words, written, imported):
    path = written("x.jsonl", f'{{"loss": 1}}\n{{"loss": 1, "value": {values}}}\n')
    with pytest.raises(SourceError, match=f"line 2.*{words}"):
        imported(path)


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


SHORT = "step,loss\n0,0.123456789\n1,0.987654321\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{SHORT}2,",
        f"{SHORT}2,-",
        f"{SHORT}2,1.2e",
        f"{SHORT}2,0.",
        f"{SHORT}2,0.12",
        "step;loss\n0;0,123456\n1;0,1",
    ],
)
def test_a_last_value_that_is_evidently_cut_off_is_left_out(text, written, imported):
    [run] = imported(written("live.csv", text))
    assert run.series("loss").steps.tolist() == list(range(text.count("\n") - 1))
    assert (run.status, run.reason) == ("crashed", "the file ends within a line")
    assert "the last line is cut off and was left out" in remarks_of(run)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("step,loss\n0,1.5\n1,1.2", "1.2"),
        ("step,loss\n0,1.2", "1.2"),
        (f"{SHORT}2,0.0", "0.0"),
        (f"{SHORT}2,nan", "nan"),
        (f"{SHORT}2,0.98765", "0.98765"),
        ("step,loss,note\n0,1,\n1,2,", ""),
        ("step,loss,note\n0,1,start\n1,2,e", "e"),
    ],
    ids=["digits", "one row", "zero", "nan", "half", "empty", "text"],
)
def test_a_file_without_a_last_line_break_is_kept_whole_with_a_remark(text, cell, written, imported):
    [run] = imported(written("made.csv", text))
    assert len(run.series("loss")) == text.count("\n")
    assert run.status == "finished"
    remark = f"the file does not end with a line break, so its last value, {cell!r}, may be incomplete"
    assert remark in remarks_of(run)


def test_a_time_that_is_cut_off_at_the_end_is_left_out_with_its_line(written, imported):
    [run] = imported(written("x.csv", "loss,time\n1,2026-01-01T00:00:00\n2,2026-0"))
    assert (run.series("loss").values.tolist(), run.status) == ([1.0], "crashed")


def test_a_step_that_is_no_number_is_damage_also_in_an_open_line(written, imported):
    with pytest.raises(SourceError, match="line 3: the step 'half'"):
        imported(written("x.csv", "step,loss\n0,1\nhalf,2"))


def exported_machine(written, ending, sources):
    """A file as `stepscope export --machine` writes it, with a row for each rank, host and device."""
    start = {"run": "healthy", "segment": "s", "step": 0, "time": "2026-01-01T00:00:00Z"}
    records = [
        {**dict.fromkeys(WIDE_LABELS), **start, "time_seconds": 1767225600.0 + place}
        | {"rank": rank, "host": host, "device": device, "value of": place}
        for place, (rank, host, device) in enumerate(sources)
    ]
    if ending == "jsonl":
        return written("x.jsonl", "".join(f"{json.dumps(record)}\n" for record in records))
    cells = [["" if value is None else str(value) for value in record.values()] for record in records]
    return written("x.csv", "".join(",".join(row) + "\n" for row in [[*records[0]], *cells]))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (
            [(0, "h", ""), (None, "h", ""), (None, "h", "eth0"), (None, "h", "/"), (None, "h", "/data")],
            ["rank0", "machine", "machine/eth0", "machine/root", "machine/data"],
        ),
        ([(None, "h", ""), (None, "h", "eth0")], ["machine", "machine/eth0"]),
        (
            [(0, "a", ""), (1, "b", ""), (None, "a", ""), (None, "b", "")],
            ["rank0/a", "rank1/b", "machine/a", "machine/b"],
        ),
    ],
    ids=["devices", "no ranks", "hosts"],
)
def test_rows_of_a_machine_get_its_name_and_that_of_the_device(ending, sources, names, written, imported):
    runs = {run.name: run for run in imported(exported_machine(written, ending, sources))}
    assert {name: run.series("value of").values.tolist() for name, run in runs.items()} == {
        f"healthy/{name}": [place] for place, name in enumerate(names)
    }


def test_devices_of_one_name_become_two_runs(written, imported):
    sources = [(None, "h", "/"), (None, "h", "/root"), (None, "h", "")]
    names = [run.name for run in imported(exported_machine(written, "csv", sources))]
    assert names == ["healthy/machine/root", "healthy/machine/root-2", "healthy/machine"]


def test_a_key_with_a_zero_byte_is_refused_in_csv_and_comes_back_from_json_lines(
    folder, tmp_path, imported, without_agent
):
    with TrainingMonitor(run="train", directory=folder) as monitor:
        monitor.log({"a\0b": 1.0, "loss": 2.0}, step=0)
    for ending in ("csv", "jsonl"):
        main(["export", "train", "--store", str(folder), "--output", str(tmp_path / f"x.{ending}")])
    with pytest.raises(SourceError, match=r"is a zero byte\. .*export it again with --format jsonl"):
        imported(tmp_path / "x.csv")
    [run] = imported(tmp_path / "x.jsonl")
    assert run.series("a\0b").values.tolist() == [1.0]
