"""`stepscope export`: a run as a file, with nothing missing."""

import csv
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope import TrainingMonitor, open_store
from stepscope.cli.main import main
from stepscope.views.export.rows import Calls, column_names, line_up

LABELS = ["run", "segment", "rank", "host", "device", "step", "time", "time_seconds"]
ODD_KEYS = {"=1+2": 1.0, "a,b": 2.0, 'q"u': 3.0, "step": 4.0, "step_": 5.0, "語\n": 6.0, "'x": 7.0, "": 8.0}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "store"
    with TrainingMonitor(run="train", directory=folder) as monitor:
        monitor.log({"warmup": 0.0}, step=-1)
        for epoch in range(3):
            for batch in range(4):
                step = epoch * 4 + batch
                monitor.record_now({"phase/data_seconds": 0.5})
                monitor.log({"loss": 1 / (step + 3), "epoch": epoch}, step=step)
            monitor.log({"val/loss": math.nan}, step=step)
    with TrainingMonitor(run="again", directory=folder) as monitor:
        for turn in range(2):
            for step in range(3):
                monitor.log({"loss": 10.0 * turn + step}, step=step)
                if turn == 1:
                    monitor.log({"extra": -0.0}, step=step)
    with TrainingMonitor(run="again", directory=folder, resume=True) as monitor:
        monitor.log({"loss": math.inf}, step=2)
    with TrainingMonitor(run="odd", directory=folder) as monitor:
        monitor.log(ODD_KEYS)
    with TrainingMonitor(run="empty", directory=folder):
        pass
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))


def exported(capsysbinary, *arguments):
    assert main(["export", *arguments]) == 0
    return capsysbinary.readouterr().out.decode()


def as_dicts(text):
    return list(csv.DictReader(text.splitlines(keepends=True)))


def test_csv_to_standard_output_is_the_default(capsysbinary):
    rows = as_dicts(exported(capsysbinary, "train", "--keys", "loss,epoch"))
    assert list(rows[0]) == [*LABELS, "loss", "epoch"]
    assert [float(row["loss"]) for row in rows] == [1 / (step + 3) for step in range(12)]
    assert [row["step"] for row in rows] == [str(step) for step in range(12)]
    assert rows[0]["time"].endswith("Z")
    assert len(rows[0]["time"]) == len("2026-01-01T00:00:00.000000Z")


def test_what_is_logged_for_a_step_shares_a_row(capsysbinary):
    rows = as_dicts(exported(capsysbinary, "train"))
    (fourth,) = [row for row in rows if row["step"] == "3"]
    assert (fourth["loss"], fourth["epoch"], fourth["val/loss"]) == (repr(1 / 6), "0.0", "nan")
    assert fourth["warmup"] == ""


def test_repeated_steps_stay_separate_rows_in_the_order_logged(capsysbinary):
    rows = as_dicts(exported(capsysbinary, "again"))
    assert [(row["step"], row["loss"], row["extra"]) for row in rows] == [
        ("0", "0.0", ""),
        ("1", "1.0", ""),
        ("2", "2.0", ""),
        ("0", "10.0", "-0.0"),
        ("1", "11.0", "-0.0"),
        ("2", "12.0", "-0.0"),
        ("2", "inf", ""),
    ]
    assert len({row["segment"] for row in rows}) == 2


def test_the_long_form_has_a_row_for_every_value(capsysbinary, store):
    rows = as_dicts(exported(capsysbinary, "train", "--long"))
    assert list(rows[0]) == ["run", "segment", "rank", "host", "device", "step", "time", "key", "value"]
    known = open_store(store).run("train").keys()
    assert Counter(row["key"] for row in rows) == {info.key: info.points for info in known}


@pytest.mark.parametrize("name", ["out.jsonl", "out.ndjson", "out.json", "out.parquet", "out.csv"])
def test_every_format_has_the_same_rows(capsysbinary, name):
    assert main(["export", "train", "--output", name]) == 0
    assert b"rows to" in capsysbinary.readouterr().err
    if name.endswith("parquet"):
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(name).to_pylist()
        losses = [row["loss"] for row in rows]
    elif name.endswith("csv"):
        rows = as_dicts(Path(name).read_text())
        losses = [float(row["loss"]) if row["loss"] else None for row in rows]
    else:
        text = Path(name).read_text()
        parts = [text] if name == "out.json" else text.splitlines()
        read = [json.loads(part, parse_constant=pytest.fail) for part in parts]
        rows = read[0] if name == "out.json" else read
        losses = [row.get("loss") for row in rows]
        assert [row["val/loss"] for row in rows if "val/loss" in row] == ["NaN"] * 3
    expected = [1 / (step + 3) for step in range(12)]
    assert [value for value in losses if value is not None] == expected


def test_odd_keys_stay_distinct_and_harmless(capsysbinary):
    text = exported(capsysbinary, "odd")
    (row,) = list(csv.DictReader(text.splitlines(keepends=True)))
    assert row["'=1+2"] == "1.0"
    assert row["''x"] == "7.0"
    assert (row["step"], row["step__"], row["step_"]) == ("0", "4.0", "5.0")
    assert float(row["語\n"]) == 6.0
    (as_json,) = json.loads(exported(capsysbinary, "odd", "--format", "json"))
    renamed = {"step__" if key == "step" else key: value for key, value in ODD_KEYS.items()}
    assert {key: as_json[key] for key in renamed} == renamed


def test_a_key_with_a_comma_can_be_chosen(capsysbinary):
    (row,) = as_dicts(exported(capsysbinary, "odd", "--keys", "a,b"))
    assert list(row) == [*LABELS, "a,b"]


def test_an_unknown_key_fails_with_names_like_it(capsys):
    assert main(["export", "train", "--keys", "loss,epch"]) == 1
    assert "did you mean 'epoch'" in capsys.readouterr().err


def test_each_epoch_gets_its_own_file(capsysbinary):
    assert main(["export", "train", "--per-epoch", "--output", "train.csv"]) == 0
    names = sorted(path.name for path in Path().iterdir())
    assert names == [
        "train.epoch-0000.csv",
        "train.epoch-0001.csv",
        "train.epoch-0002.csv",
        "train.epoch-none.csv",
    ]
    for number, name in enumerate(names[:3]):
        rows = as_dicts(Path(name).read_text())
        losses = [row["loss"] for row in rows if row["loss"]]
        assert losses == [repr(1 / (number * 4 + batch + 3)) for batch in range(4)]
    (before,) = as_dicts(Path(names[3]).read_text())
    assert before["warmup"] == "0.0"


def test_per_epoch_files_have_only_the_chosen_keys(capsysbinary):
    assert main(["export", "train", "--per-epoch", "--keys", "loss", "--output", "t.csv"]) == 0
    rows = as_dicts(Path("t.epoch-0001.csv").read_text())
    assert list(rows[0]) == [*LABELS, "loss"]
    assert len(rows) == 4


def test_an_existing_file_is_kept_unless_forced(capsys):
    Path("out.csv").write_text("precious")
    assert main(["export", "train", "--output", "out.csv"]) == 1
    assert Path("out.csv").read_text() == "precious"
    assert "--force" in capsys.readouterr().err
    assert main(["export", "train", "--output", "out.csv", "--force"]) == 0
    assert Path("out.csv").read_text().startswith("run,")
    assert [path.name for path in Path().iterdir()] == ["out.csv"]


def test_a_folder_or_device_is_never_replaced(capsys):
    Path("folder.csv").mkdir()
    assert main(["export", "train", "--output", "folder.csv", "--force"]) == 1
    assert main(["export", "train", "--output", "/dev/null", "--format", "csv", "--force"]) == 1
    assert Path("/dev/null").is_char_device()


def test_a_failed_export_leaves_nothing_behind(store):
    reader = open_store(store)  # holds files that the command could not create
    reader.runs()
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200));"
    code = f"{limit} from stepscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "export", "train", "--output", "out.csv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "could not be written" in done.stderr
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "out.xyz"],
        ["--per-epoch", "--format", "json"],
    ],
)
def test_usage_errors_and_failures_have_different_exit_codes(capsys, arguments):
    assert main(["export", "train", *arguments]) == 2
    assert capsys.readouterr().err


def test_the_long_form_and_a_file_per_epoch_exclude_each_other(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "train", "--long", "--per-epoch"])


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "parquet"])
def test_a_run_without_values_is_a_file_without_rows(capsysbinary, form):
    assert main(["export", "empty", "--format", form, "--output", "empty"]) == 0
    content = Path("empty").read_bytes()
    if form == "csv":
        assert content.decode() == ",".join(LABELS) + "\n"
    elif form == "json":
        assert json.loads(content) == []
    elif form == "jsonl":
        assert content == b""
    else:
        import pyarrow.parquet

        assert pyarrow.parquet.read_table("empty").num_rows == 0


def test_a_reader_that_leaves_early_is_not_an_error(store):
    done = subprocess.run(
        f"{sys.executable} -m stepscope export train --long | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("run,")
    assert done.stderr == ""


series = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=8)


@given(st.lists(series, max_size=4))
def test_no_row_has_a_key_twice_and_every_call_has_a_row(logged):
    distinct = [
        Calls(
            np.array([step for step, _ in calls], np.int64),
            np.cumsum([gap for _, gap in calls]),
        )
        for calls in logged
    ]
    rows, goes_to = line_up(distinct)
    assert (np.diff(rows.times_ns) >= 0).all()
    for calls, places in zip(distinct, goes_to, strict=True):
        assert len(set(places.tolist())) == len(places) == len(calls.steps)
        assert (rows.steps[places] == calls.steps).all()
        assert (rows.times_ns[places] <= calls.times_ns).all()
    assert {place for places in goes_to for place in places.tolist()} == set(range(len(rows.steps)))


@given(st.lists(st.sampled_from(["step", "step_", "step__", "run", "run_", "loss"]), unique=True))
def test_column_names_differ_from_labels_and_from_each_other(keys):
    names = column_names(keys, ("run", "step"))
    assert len({*names, "run", "step"}) == len(keys) + 2
    assert [name.rstrip("_") for name in names] == [key.rstrip("_") for key in keys]
