"""Files of every format version that was ever released are read exactly; newer ones are refused."""

import shutil
import sqlite3

import numpy as np
import pytest

import stepscope
from stepscope.errors import JournalError, StoreError
from stepscope.journal import layout
from stepscope.journal.reader import JournalReader
from stepscope.schema.series import Selection, Source
from stepscope.store.sqlite import SqliteReader, SqliteStore
from tests.golden import make
from tests.store.run_samples import append, bits, points, process, source

RUN = make.RUN


@pytest.fixture
def path(tmp_path):
    """A copy of the golden store, as a store folder has it."""
    return shutil.copy(make.STORE, tmp_path / "store.sqlite")


@pytest.fixture(params=[SqliteReader, SqliteStore])
def store(request, path):
    opened = request.param(path)
    yield opened
    opened.close()


def test_the_processes_of_an_old_store_are_read(store):
    assert store.processes(RUN) == [make.PROCESS, make.RESUMED]
    (run,) = store.runs()
    assert (run.name, run.project, run.status) == ("golden", "demo", "running")
    assert [part.status for part in run.segments] == ["failed", "running"]


def test_the_points_of_an_old_store_are_read_bit_for_bit(store):
    loss = points(store, "loss", RUN)
    assert bits(loss.values) == bits(make.LOSS + make.LOOSE)
    assert loss.steps.tolist() == [*make.STEPS, 7, 8]
    assert loss.times_ns[:8].tolist() == make.TIMES_NS
    assert bits(points(store, "accuracy", RUN).values) == bits(make.LOSS[::-1])
    assert bits(points(store, "lr", RUN).values) == bits(make.SCHEDULE)
    assert points(store, "watts", RUN, device="gpu0").values.tolist() == make.WATTS
    assert [(known.key, known.points) for known in store.keys(RUN)] == [
        ("accuracy", 8),
        ("loss", 10),
        ("lr", 400),
    ]
    assert [(known.key, known.points) for known in store.keys(RUN, "seconds")] == [("watts", 60)]


def test_the_buckets_of_an_old_store_are_read(store):
    buckets = store.buckets(Selection(RUN, "lr"), 4)
    assert (buckets.width, buckets.starts.tolist()) == (128, [0, 128, 256, 384])
    assert buckets.count.tolist() == [128, 128, 128, 16]
    assert buckets.last.tolist() == [make.SCHEDULE[at] for at in (127, 255, 383, 399)]
    seconds = store.buckets(Selection(RUN, "watts"), 100)
    assert seconds.starts[0] == make.BEGUN_NS // 10**9
    assert seconds.count.sum() == 60


def test_events_arrays_alerts_and_findings_of_an_old_store_are_read(store):
    assert store.events(RUN) == [make.EVENT]
    ((step, array),) = store.arrays(RUN, "grads")
    assert (step, array.dtype, array.tolist()) == (3, make.ARRAY.dtype, make.ARRAY.tolist())
    assert store.alerts(RUN) == [
        {
            "id": 1,
            "rule": "gpu_hot",
            "severity": "warning",
            "message": "GPU 0 is hot",
            "fired_ns": make.BEGUN_NS,
            "resolved_ns": None,
            "value": 91,
        }
    ]
    assert store.findings(RUN) == [
        {
            "problem": "input_bound",
            "severity": "warning",
            "opened_ns": make.BEGUN_NS,
            "closed_ns": make.BEGUN_NS + 1,
            "share": 0.4,
        }
    ]
    assert store.progress_of_all() == {make.PROGRESS[0]: make.PROGRESS[1]}


def test_an_old_store_continues_where_it_was(path):
    store = SqliteStore(path)
    append(store, {"loss": [0.5]}, [9], np.array([make.BEGUN_NS + 5 * 10**9]), source(RUN, "b2"))
    with store.transaction():
        store.put_process(process())
        store.seal(Source(RUN, "b2", 0, "node1"))
    assert points(store, "loss", RUN).values.tolist()[-3:] == [*make.LOOSE, 0.5]
    store.close()


def test_an_old_store_can_be_opened_as_a_folder(path):
    run = stepscope.open_store(path.parent).run("golden")
    assert bits(run.series("loss").values) == bits(make.LOSS + make.LOOSE)


def tables_of(path):
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return tables


def test_an_old_store_once_opened_has_the_tables_of_a_new_one(path, tmp_path):
    SqliteStore(path).close()
    SqliteStore(tmp_path / "new.sqlite").close()
    why = "A released table changes by a migration: people query it, and old files must get there too."
    assert tables_of(path) == tables_of(tmp_path / "new.sqlite"), why


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_newer_store_is_refused_and_left_untouched(path, mode):
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA journal_mode = {mode}; PRAGMA user_version = 99;")
    connection.close()
    before = path.read_bytes()
    for open_it in (SqliteReader, SqliteStore, lambda _: stepscope.open_store(path.parent)):
        with pytest.raises(StoreError) as refusal:
            open_it(path)
        text = str(refusal.value)
        assert f"{path} has version 99" in text
        assert "pip install -U stepscope" in text
    assert path.read_bytes() == before


@pytest.fixture
def journal(tmp_path):
    """A copy of the golden journal, where the journals of a store lie."""
    place = tmp_path / "store" / "journal" / RUN / "a1-r0-4242.0"
    place.parent.mkdir(parents=True)
    return shutil.copy(make.JOURNAL, place)


def test_an_old_journal_is_read_exactly(journal):
    reader = JournalReader(journal)
    batch = reader.read(final=True)
    (rows,) = batch.rows
    assert rows.keys == ("loss", "lr")
    assert rows.steps.tolist() == make.STEPS
    assert rows.times.tolist() == [make.BEGUN_NS + 10**6 * at for at in range(2, 10)]
    assert bits(rows.values[:, 0]) == bits(make.LOSS)
    assert rows.values[:, 1].tolist() == [0.5] * 8
    kinds = [kind for kind, _ in batch.notes]
    assert kinds == [layout.OPEN, layout.EVENT, layout.END]
    opening, event, end = (fields for _, fields in batch.notes)
    assert opening == {**make.OPENING, "time": make.BEGUN_NS + 10**6}
    assert (event["kind"], event["step"], event["fields"]) == ("checkpoint", 3, {"path": "ckpt/3"})
    assert {name: end[name] for name in make.END} == make.END
    ((fields, raw),) = batch.arrays
    assert (fields["key"], raw) == ("grads", make.ARRAY.tobytes())
    assert (batch.lost, batch.last, reader.closed_by_writer()) == (0, True, True)
    reader.close()


def test_an_old_journal_is_taken_in_when_its_folder_is_opened(journal):
    run = stepscope.open_store(journal.parents[2]).run("golden")
    assert bits(run.series("loss").values) == bits(make.LOSS)
    assert (run.status, len(run.events("checkpoint"))) == ("finished", 1)
    assert not journal.exists()


def test_a_newer_journal_is_refused_and_left_untouched(journal):
    raw = bytearray(journal.read_bytes())
    raw[24:28] = (7).to_bytes(4, "little")
    journal.write_bytes(raw)
    with pytest.raises(JournalError) as refusal:
        JournalReader(journal)
    assert f"{journal} has version 7" in str(refusal.value)
    assert "pip install -U stepscope" in str(refusal.value)
    stepscope.open_store(journal.parents[2]).close()
    assert journal.read_bytes() == bytes(raw)
