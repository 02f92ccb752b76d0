"""Event files of TensorBoard, as its writers make them and as they may be damaged."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from stepscope.errors import SourceError
from stepscope.run_import.run_import import RunImport
from stepscope.run_import.source_runs import Request
from stepscope.source_files.record_file import masked_checksum

VALUES = [0.5, math.nan, math.inf, -math.inf, -0.0, 1e-30, 3e38]
START = 1_700_000_000.25


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    tensorboard = pytest.importorskip("tensorboardX")
    root = tmp_path_factory.mktemp("logs")
    with tensorboard.SummaryWriter(str(root / "größe" / "one")) as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("train/loss", value, step, walltime=START + step)
            writer.add_scalar("backwards", step, 10 - step, walltime=START + step)
        writer.add_histogram("weights", np.arange(10.0), 3, walltime=START)
        writer.add_text("notes", "two\nlines", 2, walltime=START)
    with tensorboard.SummaryWriter(str(root / "two")) as writer:
        writer.add_scalar("loss", 1.0, 0, walltime=START + 60)
        writer.add_hparams({"lr": 0.1, "name": "adam"}, {"score": 2.0}, name="trial", global_step=4)
    return root


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked_checksum(length) + content + masked_checksum(content)


def event(value: float, step: int = 0, wall_time: float = START, tag: bytes = b"loss") -> bytes:
    scalar = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    return (
        b"\x09"
        + struct.pack("<d", wall_time)
        + b"\x10"
        + bytes([step])
        + b"\x2a"
        + bytes([len(summary)])
        + summary
    )


def event_file(folder: Path, *records: bytes) -> Path:
    path = folder / "events.out.tfevents.1.host.2.3"
    path.write_bytes(b"".join(records))
    return path


def test_every_scalar_has_its_value_step_and_time(logs, imported):
    run = next(run for run in imported(logs) if run.name == "größe/one")
    points = run.series("train/loss")
    assert points.values.tobytes() == np.array(VALUES, np.float32).astype(np.float64).tobytes()
    assert points.steps.tolist() == list(range(len(VALUES)))
    assert points.times_ns.tolist() == [int(START * 4) * 10**9 // 4 + step * 10**9 for step in range(7)]
    assert run.series("backwards").steps.tolist() == [10 - step for step in range(len(VALUES))]


def test_the_reader_of_tensorboard_agrees_with_every_point(logs, imported):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for run in imported(logs):
        other = accumulators.EventAccumulator(str(logs / run.name), {"scalars": 0}).Reload()
        assert {info.key for info in run.keys()} == set(other.Tags()["scalars"])
        for tag in other.Tags()["scalars"]:
            points, scalars = run.series(tag), other.Scalars(tag)
            assert points.steps.tolist() == [scalar.step for scalar in scalars]
            assert points.values.tobytes() == np.array([scalar.value for scalar in scalars]).tobytes()
            assert np.abs(points.times - [scalar.wall_time for scalar in scalars]).max() < 1e-6


def test_histograms_texts_and_hyper_parameters_are_kept(logs, imported):
    runs = {run.name: run for run in imported(logs)}
    one, two, trial = runs["größe/one"], runs["two"], runs["two/trial"]
    [(step, histogram)] = one.arrays("weights")
    assert (step, histogram[:, 1].sum()) == (3, 10)
    [text] = one.events("text")
    assert (text.fields["key"], text.fields["value"], text.step) == ("notes", "two\nlines", 2)
    assert trial.params == {"lr": 0.1, "name": "adam"}
    assert trial.status == "finished"
    assert two.series("loss").values.tolist() == [1.0]


def test_a_file_that_ends_within_a_record_keeps_what_is_before(tmp_path, imported):
    event_file(tmp_path, record(event(1.0)), record(event(2.0, 1))[:-3])
    [run] = imported(tmp_path, "tensorboard")
    assert run.series("loss").values.tolist() == [1.0]
    assert run.status == "crashed"
    assert "ends within a record" in run.reason


def wrong_checksum(content: bytes) -> bytes:
    whole = bytearray(record(content))
    whole[-1] ^= 1
    return bytes(whole)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (wrong_checksum(event(2.0)), "its checksum is wrong"),
        (struct.pack("<Q", 2**60) + masked_checksum(struct.pack("<Q", 2**60)), "a record of"),
        (struct.pack("<Q", 2**60) + bytes(4), "its checksum is wrong"),
        (record(event(1.0, wall_time=math.nan)), "the time nan"),
        (record(event(1.0, wall_time=1e300)), "expected seconds since 1970"),
        (record(b"\x2a\xff\xff\xff\xff\x0f"), "a field of"),
        (record(event(1.0, tag=b"\xff\xfe")), "byte 0 of a text is not UTF-8"),
        (record(b"\xff" * 30), "an integer without an end"),
    ],
    ids=["checksum", "huge", "length", "nan time", "huge time", "field", "text", "no message"],
)
def test_damage_names_the_file_and_the_place_and_nothing_is_imported(bad, words, tmp_path, folder, imported):
    path = event_file(tmp_path, record(event(1.0)), bad, record(event(3.0)))
    with pytest.raises(SourceError) as raised:
        imported(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "byte" in str(raised.value)
    assert [file for file in folder.rglob("*") if "journal" in file.parts or file.parent.name == "runs"] == []


def test_a_long_record_is_passed_over_unread(tmp_path, imported):
    event_file(tmp_path, record(event(1.0)), record(bytes(5 << 20)), record(event(2.0, 1)))
    [run] = imported(tmp_path)
    assert run.series("loss").values.tolist() == [1.0, 2.0]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path, imported):
    (tmp_path / "secret").mkdir()
    (tmp_path / "logs").mkdir()
    secret = event_file(tmp_path / "secret", record(event(9.0)))
    event_file(tmp_path / "logs", record(event(1.0)))
    (tmp_path / "logs" / "tfevents.link").symlink_to(secret)
    (tmp_path / "logs" / "folder").symlink_to(secret.parent)
    (secret.parent / "train.log").touch()
    (tmp_path / "logs" / "train.log").symlink_to(secret.parent / "train.log")
    warnings = []
    [run] = imported(tmp_path / "logs", warn=warnings.append)
    assert run.series("loss").values.tolist() == [1.0]
    [warning] = warnings
    assert "2 symbolic links lead out of the folder and were not followed" in warning
    assert f"folder -> {secret.parent}" in warning


def test_links_within_the_folder_are_not_mentioned(tmp_path, imported):
    (tmp_path / "run").mkdir()
    event_file(tmp_path / "run", record(event(1.0)))
    (tmp_path / "latest").symlink_to("run")
    (tmp_path / "loop").symlink_to("loop")
    assert len(imported(tmp_path)) == 1


def test_a_folder_with_nothing_but_links_says_so(tmp_path, imported):
    (tmp_path / "logs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    event_file(tmp_path / "elsewhere", record(event(1.0)))
    (tmp_path / "logs" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="no runs of its own. 1 symbolic link leads out of the folder"):
        imported(tmp_path / "logs")


def test_the_files_of_a_restarted_training_are_one_run_with_every_point(tmp_path, imported):
    for number, steps in enumerate(([0, 1, 2], [1, 2, 3])):
        events = [event(number + step / 8, step, START + 10 * number + step) for step in steps]
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(b"".join(map(record, events)))
    [run] = imported(tmp_path)
    points = run.series("loss")
    assert points.steps.tolist() == [0, 1, 2, 1, 2, 3]
    assert points.values.tolist() == [0.0, 0.125, 0.25, 1.125, 1.25, 1.375]


def test_a_file_made_long_after_its_first_values_starts_with_these(tmp_path, imported):
    made = b"\x09" + struct.pack("<d", START + 500)
    event_file(tmp_path, record(made), record(event(1.0)), record(event(2.0, 1, START + 2)))
    [run] = imported(tmp_path)
    assert run.segments[0].started_ns == int(START * 4) * 10**9 // 4


def of_a_summary(tag: bytes, field: int, content: bytes) -> bytes:
    """An event with a value of a tag: an image, a sound or a tensor."""
    value = b"\x0a" + bytes([len(tag)]) + tag + bytes([field << 3 | 2, len(content)]) + content
    return b"\x09" + struct.pack("<d", START) + b"\x2a" + bytes([len(value) + 2, 0x0A, len(value)]) + value


IMAGE, AUDIO, TENSOR = 4, 6, 8
MEDIA = [record(of_a_summary(b"img", IMAGE, b"")), record(of_a_summary(b"img", IMAGE, b""))]
MEDIA += [record(of_a_summary(b"sound", AUDIO, b"")), record(of_a_summary(b"curve", TENSOR, b"\x08\x01"))]
LEFT_OUT = "left out pictures, tables and other media: img (2), sound (1), curve (1)"


def test_media_are_left_out_and_named(tmp_path, imported):
    event_file(tmp_path, record(event(1.0)), *MEDIA, record(bytes(5 << 20)))
    [run] = imported(tmp_path)
    assert [info.key for info in run.keys()] == ["loss"]
    [imported_event] = run.own_events("imported")
    assert f"{LEFT_OUT}, records of more than 4 MiB (1)" in imported_event.fields["remarks"]


def test_the_media_of_tensorboards_own_writer_are_named(tmp_path, imported):
    tensorboard = pytest.importorskip("tensorboardX")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.add_image("img", np.zeros((3, 4, 4)), 0)
        writer.add_pr_curve("curve", np.array([0, 1]), np.array([0.2, 0.7]), 0)
    [run] = imported(tmp_path)
    [imported_event] = run.own_events("imported")
    assert "left out pictures, tables and other media: img (1), curve (1)" in imported_event.fields["remarks"]


def test_a_folder_with_nothing_but_media_says_what_was_left_out(tmp_path, folder):
    event_file(tmp_path, *MEDIA)
    [run] = RunImport(folder, pytest.fail).run(Request(str(tmp_path)))
    assert (run.outcome, run.reason) == ("empty", LEFT_OUT)
