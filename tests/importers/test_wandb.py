"""Run files of Weights & Biases, as its library writes them offline and as they may be damaged."""

from __future__ import annotations

import contextlib
import json
import math
import struct
import subprocess
import sys
from zlib import crc32

import numpy as np
import pytest

from stepscope.errors import SourceError
from stepscope.importers.wandb import MAGIC
from stepscope.store.open import open_marks

TRAIN = """
import math, sys, wandb
run = wandb.init(
    project="mnist", name="größe/1", dir=sys.argv[1], tags=["old"], mode="offline",
    config={"lr": 0.1, "nested": {"layers": [1, 2]}, "api_key": "sk-0123456789abcdef0123"},
)
for step in range(2000):
    run.log({"loss": 1 / (step + 1), "nested": {"a": step}, "odd": [math.nan, math.inf, -math.inf][step % 3]})
run.log({"hist": wandb.Histogram([1.0, 2.0, 3.0]), "note": "half way"}, step=5000)
print("what the training printed")
run.summary["best"] = 3.5
run.finish(exit_code=int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("wandb")
    environment = {"WANDB_SILENT": "true", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    command = [sys.executable, "-c", TRAIN, str(folder), "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run_file(offline, tmp_path):
    [source] = offline.rglob("run-*.wandb")
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    return path


def test_the_history_is_the_same_point_for_point(offline, imported):
    [run] = imported(offline)
    loss = run.series("loss")
    assert loss.values.tolist() == [1 / (step + 1) for step in range(2000)]
    assert loss.steps.tolist() == list(range(2000))
    assert run.series("nested.a").values.tolist() == list(range(2000))
    odd = np.array([math.nan, math.inf, -math.inf] * 667)[:2000]
    assert np.array_equal(run.series("odd").values, odd, equal_nan=True)
    assert np.all(np.diff(loss.times_ns) > 0)


@pytest.mark.slow
def test_what_else_the_source_says_of_the_run_is_kept(offline, imported):
    [run] = imported(offline)
    assert (run.name, run.project, run.status) == ("größe/1", "mnist", "finished")
    assert run.params["lr"] == 0.1
    assert run.params["nested"] == {"layers": [1, 2]}
    assert "0123456789" not in str(run.params)
    assert run.series("summary/best").values.tolist() == [3.5]
    [(step, histogram)] = run.arrays("hist")
    assert (step, histogram[:, 1].sum()) == (5000, 3)
    assert "what the training printed" in run.events("console")[0].fields["text"]
    assert [event.step for event in run.events("text")] == [5000]
    assert any(info.key.startswith("system.") for info in run.keys())


@pytest.mark.slow
def test_a_file_that_ends_early_keeps_what_is_before(run_file, imported):
    run_file.write_bytes(run_file.read_bytes()[:50_000])
    [run] = imported(run_file)
    values = run.series("loss").values
    assert values.tolist() == [1 / (step + 1) for step in range(len(values))]
    assert 10 < len(values) < 2000
    assert run.status == "crashed"


def test_a_changed_byte_is_an_error_and_nothing_is_imported(run_file, folder, imported):
    content = bytearray(run_file.read_bytes())
    content[40_000] ^= 1
    run_file.write_bytes(content)
    with pytest.raises(SourceError, match=r"run-.*\.wandb is damaged at byte \d+: its checksum is wrong"):
        imported(run_file)
    assert not (folder / "store.sqlite").exists()


def test_another_file_of_that_name_is_refused(tmp_path, imported):
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    with pytest.raises(SourceError, match="not a run file of W&B"):
        imported(path)


def varint(number):
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def items(number, values):
    """The items of a history or a summary: names of nested values are in parts."""
    parts = [
        b"".join(field(2, name.encode()) for name in names.split(".")) + field(16, json.dumps(value).encode())
        for names, value in values.items()
    ]
    return b"".join(field(number, part) for part in parts)


def write_run(path, *records):
    content = MAGIC
    for number, record in records:
        whole = field(number, record)
        content += struct.pack("<IHB", crc32(whole, crc32(b"\x01")), len(whole), 1) + whole
    path.write_bytes(content)
    return path


HISTORY, SUMMARY, RUN = 2, 3, 17
PICTURE = {"img._type": "image-file", "img.height": 4, "img.sha256": "d632", "img.path": "media/x.png"}


def test_media_are_left_out_and_named(tmp_path, imported):
    nested = {f"val.{name}": value for name, value in PICTURE.items()}
    values = {"_step": 0, "loss": 1.0, **PICTURE, **nested, "tab._type": "table-file", "tab.ncols": 3}
    history = items(1, values)
    path = write_run(tmp_path / "run-x.wandb", (HISTORY, history), (SUMMARY, items(1, values)))
    [run] = imported(path)
    assert [info.key for info in run.keys()] == ["loss"]
    assert run.events("text") == []
    [event] = run.own_events("imported")
    assert event.fields["remarks"][0] == (
        "left out pictures, tables and other media: img (1), val.img (1), tab (1)"
    )


def test_texts_of_the_summary_are_kept_unless_the_history_has_them(tmp_path, imported):
    history = items(1, {"_step": 0, "loss": 1.0, "phase": "warm-up"})
    summary = items(1, {"best_model": "resnet", "phase": "warm-up"})
    [run] = imported(write_run(tmp_path / "run-x.wandb", (HISTORY, history), (SUMMARY, summary)))
    texts = [(event.fields["key"], event.fields["value"]) for event in run.events("text")]
    assert texts == [("phase", "warm-up"), ("summary/best_model", "resnet")]


def test_the_newest_tags_and_notes_are_kept(tmp_path, folder, imported):
    history = items(1, {"_step": 0, "loss": 1.0})
    runs = [
        field(1, b"x") + field(9, notes) + b"".join(field(10, tag) for tag in tags)
        for notes, tags in ((b"draft", [b"a"]), ("läuft".encode(), [b"a", b"later"]))
    ]
    path = write_run(tmp_path / "run-x.wandb", (RUN, runs[0]), (HISTORY, history), (RUN, runs[1]))
    [run] = imported(path)
    with contextlib.closing(open_marks(folder)) as marks:
        tags, notes = marks.tags(run.id), marks.notes(run.id)
    assert tags == ("imported", "a", "later")
    assert [note.text for note in notes] == ["läuft"]
