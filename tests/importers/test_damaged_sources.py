"""Thousands of damaged sources: each is refused with its file, or all that was read of it is in the store."""

from __future__ import annotations

import random
import sqlite3
import struct
from zlib import crc32

import pytest

from stepscope import open_store
from stepscope.errors import SourceError
from stepscope.importers.wandb import MAGIC
from stepscope.run_import.run_import import RunImport
from stepscope.run_import.source_runs import Request
from tests.importers.test_tensorboard import event, record

CASES = 150


def field(number, content):
    return (
        bytes([number << 3 & 0x7F | 2 | 0x80 * (number > 15)])
        + b"\x01" * (number > 15)
        + bytes([len(content)])
        + content
    )


def wandb_record(content):
    return struct.pack("<IHB", crc32(content, crc32(b"\x01")), len(content), 1) + content


def history(step):
    items = [(b"_step", b"%d" % step), (b"_timestamp", b"1.7e9"), (b"loss", b"0.5"), (b"odd", b"NaN")]
    return field(2, b"".join(field(1, field(1, name) + field(16, value)) for name, value in items))


def trackio(path):
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, run_name, timestamp, step, metrics)"
    )
    rows = [(step, "a", "run", "2026-01-01T00:00:00+00:00", step, '{"loss": 0.5}') for step in range(50)]
    connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return {
        "tensorboard": b"".join(record(event(step / 3, step)) for step in range(50)),
        "wandb": MAGIC + b"".join(wandb_record(history(step)) for step in range(50)),
        "trackio": trackio(tmp_path_factory.mktemp("made") / "x.db"),
        "csv": b"step,time,loss\n" + b"".join(b"%d,17000000%02d,0.5\n" % (step, step) for step in range(50)),
        "jsonl": b"".join(b'{"step": %d, "nested": {"loss": 0.5}}\n' % step for step in range(50)),
    }


def damaged(content, draw):
    content = bytearray(content)
    for _ in range(draw.choice([1, 1, 3, 10])):
        at = draw.randrange(len(content))
        change = draw.random()
        if change < 0.6:
            content[at] = draw.randrange(256)
        elif change < 0.75 and at:
            del content[at:]
        elif change < 0.9:
            content[at:at] = draw.randbytes(draw.randrange(1, 9))
        else:
            content[at : at + 8] = b"\xff" * 8
    return bytes(content)


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "trackio", "csv", "jsonl"])
def test_the_undamaged_source_has_fifty_rows(kind, sources, folder, tmp_path):
    (tmp_path / "source").write_bytes(sources[kind])
    [imported] = RunImport(folder, pytest.fail).run(Request(str(tmp_path / "source"), kind))
    assert {info.points for info in open_store(folder).run(imported.run_id).keys()} == {50}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "trackio", "csv", "jsonl"])
def test_a_damaged_source_is_refused_or_stored_whole(kind, sources, tmp_path):
    draw = random.Random(kind)
    refusals: list[str] = []
    refused: list[tuple[str, bool]] = []
    for case in range(CASES):
        place, folder = tmp_path / str(case), tmp_path / f"store-{case}"
        place.write_bytes(damaged(sources[kind], draw))
        try:
            runs = RunImport(folder, pytest.fail).run(Request(str(place), kind))
        except SourceError as error:
            refusals.append(str(error))
            refused.append((str(place), (folder / "store.sqlite").exists()))
            continue
        if all(imported.outcome == "empty" for imported in runs):
            assert not (folder / "store.sqlite").exists()
            continue
        store = open_store(folder)
        assert store.set_aside() == []
        for imported in runs:
            run = store.run(imported.run_id)
            [process] = run.segments[0].processes
            assert (process.lost, process.dropped) == (0, 0)
            assert run.status == imported.summary.end.status
            assert sum(info.points for info in run.keys()) == imported.summary.points
        store.close()
    assert len(refused) > CASES // 10
    for message, (place, has_store) in zip(refusals, refused, strict=True):
        assert place in message
        assert not has_store
