"""A damaged or forged file gives a clear refusal or its data, never another exception."""

import contextlib
import json
import shutil
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
from stepscope.errors import NotFound, StoreError, StoreUnavailable
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteReader, SqliteStore, tables
from tests.golden import make
from tests.store.run_samples import append, bits, points, process, seal

RUN = make.RUN
SOUND = make.STORE.read_bytes()

ordinary = settings(max_examples=120, deadline=None, database=None)
thorough = settings(max_examples=4000, deadline=None, database=None)
flips = st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(1, 255)), min_size=1, max_size=30)


def read_everything(path):
    reader = SqliteReader(path)
    try:
        reader.runs()
        reader.processes(RUN)
        reader.events(RUN)
        reader.alerts(RUN)
        reader.findings(RUN)
        reader.arrays(RUN, "grads")
        reader.progress_of_all()
        reader.bytes_used()
        for known in reader.keys(RUN):
            points = reader.points(Selection(RUN, known.key))
            assert len(points.times) == len(points)
            for most in (1, 10, 10_000):
                reader.buckets(Selection(RUN, known.key), most)
    finally:
        reader.close()


def read_or_refused(path):
    """The text of the refusal; None when all could be read."""
    try:
        read_everything(path)
    except StoreError as refusal:
        text = str(refusal)
    else:
        return None
    assert str(path) in text
    return text


def check_flips(tmp_path_factory, flips):
    damaged = bytearray(SOUND)
    for at, mask in flips:
        damaged[at] ^= mask
    path = tmp_path_factory.mktemp("flips") / "store.sqlite"
    path.write_bytes(damaged)
    read_or_refused(path)


@pytest.mark.slow
@ordinary
@given(flips)
def test_flipped_bytes_are_read_or_refused(tmp_path_factory, flips):
    check_flips(tmp_path_factory, flips)


@pytest.mark.slow
@thorough
@given(flips)
def test_flipped_bytes_are_read_or_refused_in_a_long_search(tmp_path_factory, flips):
    check_flips(tmp_path_factory, flips)


@pytest.mark.parametrize("kept", [1, 15, 16, 99, 100, 512, 4095, 4096, 4097, 0.25, 0.5, 0.9])
def test_a_truncated_store_is_refused(tmp_path, kept):
    path = tmp_path / "store.sqlite"
    path.write_bytes(SOUND[: kept if isinstance(kept, int) else int(len(SOUND) * kept)])
    assert read_or_refused(path) is not None


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"step,loss\n1,0.5\n" * 500, id="text"),
        pytest.param(np.random.default_rng(1).bytes(50_000), id="random"),
        pytest.param(SOUND[:100] + np.random.default_rng(2).bytes(50_000), id="header, then random"),
        pytest.param(bytes(50_000), id="zeros"),
    ],
)
def test_a_file_that_is_not_a_store_is_refused(tmp_path, contents):
    path = tmp_path / "store.sqlite"
    path.write_bytes(contents)
    assert read_or_refused(path) is not None
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        stepscope.open_store(tmp_path).runs()
    assert path.read_bytes() == contents


def test_a_folder_in_the_place_of_the_store_is_refused(tmp_path):
    (tmp_path / "store.sqlite").mkdir()
    assert read_or_refused(tmp_path / "store.sqlite") is not None
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        SqliteStore(tmp_path / "store.sqlite")


def test_a_store_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path / "file" / "store.sqlite")


@pytest.mark.parametrize("contents", [b"plain text, not a database" * 99, SOUND[:3000]])
def test_a_file_that_is_not_a_store_is_not_written_to(tmp_path, contents):
    path = tmp_path / "store.sqlite"
    path.write_bytes(contents)
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        SqliteStore(path)
    assert path.read_bytes() == contents


def test_the_database_of_another_program_is_not_written_to(tmp_path):
    path = tmp_path / "store.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(path)
    with pytest.raises(StoreError, match="not a store"):
        SqliteReader(path)
    assert path.read_bytes() == before


def test_an_empty_file_is_a_store_only_once_it_was_opened_to_write(tmp_path):
    (tmp_path / "store.sqlite").touch()
    with pytest.raises(NotFound, match="only being made"):
        SqliteReader(tmp_path / "store.sqlite")
    store = SqliteStore(tmp_path / "store.sqlite")
    assert store.runs() == []
    store.close()


def test_a_missing_store_says_what_to_do(tmp_path):
    with pytest.raises(NotFound, match=r"There is no store at .*store\.sqlite.* STEPSCOPE_DIR"):
        SqliteReader(tmp_path / "store.sqlite")
    with pytest.raises(NotFound, match="Record a run first"):
        stepscope.open_store(tmp_path)
    assert list(tmp_path.iterdir()) == []


BOMB = b"\x03\x28\xb5\x2f\xfd\xe0" + (2**50).to_bytes(8, "little") + b"\x01\x00\x00"


@pytest.mark.parametrize(
    "forgery",
    [
        "UPDATE process SET status = 'dancing'",
        "UPDATE process SET facts = '{'",
        "UPDATE process SET facts = 5",
        "UPDATE process SET started_ns = 'yesterday'",
        "UPDATE series SET rank = 'first'",
        "UPDATE event SET fields = '[[['",
        "UPDATE alert SET fields = '5'",
        "UPDATE finding SET fields = '[1, 2]'",
        "UPDATE array SET fields = '[]'",
        """UPDATE array SET fields = '{"dtype": "O", "shape": [2, 3]}'""",
        """UPDATE array SET fields = '{"dtype": "<f4", "shape": [-7, 9999999999]}'""",
        "UPDATE array SET data = x'00'",
        "UPDATE key_set SET keys = '7' || id",
        "UPDATE key_set SET blocks = 9223372036854775807",
        "UPDATE block SET rows = 1099511627776",
        "UPDATE block SET rows = -4",
        "UPDATE block SET rows = 'many'",
        "UPDATE block SET steps = x''",
        "UPDATE block SET times = x'01'",
        "UPDATE chunk SET data = x'63'",
        "UPDATE chunk SET data = 'text'",
        f"UPDATE chunk SET data = x'{BOMB.hex()}'",
        "DELETE FROM block",
        "UPDATE node SET buckets = 1099511627776",
        "UPDATE node SET exponent = 9223372036854775807",
        "UPDATE node SET exponent = -9",
        "UPDATE node SET low = -9223372036854775808, high = 9223372036854775807",
        "UPDATE node SET starts = x'0102'",
        "UPDATE rollup SET data = x'ffffffff'",
        "UPDATE rollup SET data = x''",
        "UPDATE tail SET data = x'0102'",
        "UPDATE member SET position = 99",
        "DROP TABLE run",
        "DROP TABLE node",
        "ALTER TABLE run DROP COLUMN project",
        "ALTER TABLE process RENAME TO p; CREATE VIEW process AS SELECT * FROM p, p, p",
    ],
)
def test_a_forged_store_is_read_or_refused(tmp_path, forgery):
    path = shutil.copy(make.STORE, tmp_path / "store.sqlite")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(f"PRAGMA journal_mode = DELETE; {forgery}")
    connection.close()
    assert read_or_refused(path) != ""


def test_damaged_times_are_refused_when_they_are_asked_for(tmp_path):
    path = shutil.copy(make.STORE, tmp_path / "store.sqlite")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE block SET times = zeroblob(40)")
    connection.close()
    assert "damaged" in read_or_refused(path)


def test_a_damaged_schema_is_refused_in_one_line(tmp_path):
    path = tmp_path / "store.sqlite"
    path.write_bytes(SOUND.replace(b"\n    device ", b"\n   `device ", 1))
    refusal = read_or_refused(path)
    assert "malformed database schema" in refusal
    assert "\n" not in refusal


def test_deeply_nested_fields_are_refused(tmp_path):
    path = shutil.copy(make.STORE, tmp_path / "store.sqlite")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE event SET fields = ?", ("[" * 500_000,))
    connection.close()
    assert "damaged" in read_or_refused(path)


def test_a_flipped_bit_in_packed_values_is_noticed(tmp_path):
    values = np.random.default_rng(4).normal(size=40_000)
    store = SqliteStore(tmp_path / "store.sqlite")
    with store.transaction():
        store.put_process(process())
    append(store, {"loss": values})
    seal(store)
    store.close()
    sound = (tmp_path / "store.sqlite").read_bytes()
    noticed = 0
    for at in np.random.default_rng(5).integers(len(sound) // 4, len(sound), 60):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        path = tmp_path / f"{at}.sqlite"
        path.write_bytes(damaged)
        try:
            reader = SqliteReader(path)
            read = points(reader).values
        except StoreError:
            noticed += 1
        else:
            assert bits(read) == bits(values)
    assert noticed > 20


def test_a_closed_reader_is_not_called_damaged(tmp_path):
    reader = SqliteReader(shutil.copy(make.STORE, tmp_path / "store.sqlite"))
    reader.close()
    with pytest.raises(sqlite3.ProgrammingError):
        reader.runs()


def test_a_reader_continues_after_it_met_damage(tmp_path):
    path = shutil.copy(make.STORE, tmp_path / "store.sqlite")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE event SET fields = '{'")
    reader = SqliteReader(path)
    with pytest.raises(StoreError, match="damaged"):
        reader.events(RUN)
    assert len(points(reader, "lr", RUN)) == 400
    connection.execute("UPDATE event SET fields = ?", (json.dumps(make.EVENT.fields),))
    assert reader.events(RUN) == [make.EVENT]
    connection.close()
    reader.close()


def test_a_store_that_cannot_be_written_says_so_and_keeps_what_it_has(tmp_path):
    with contextlib.closing(SqliteStore(tmp_path / "store.sqlite")) as store:
        with store.transaction():
            store.put_process(process())
        store._connection.execute("PRAGMA max_page_count = 1")  # as on a full disk
        with pytest.raises(StoreUnavailable, match="cannot be written: database or disk is full"):
            append(store, {"loss": np.random.default_rng(1).standard_normal(100_000)})
        assert store.processes(process().run_id) == [process()]
        assert store.keys(process().run_id) == []


def test_a_store_whose_tables_are_made_while_it_is_opened_is_not_called_damaged(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    reader = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")

    def make_tables_after_the_version_is_read(statement: str) -> None:
        if "sqlite_master" in statement and not tables.version_of(writer):
            tables.migrate(writer)

    reader.set_trace_callback(make_tables_after_the_version_is_read)
    with pytest.raises(NotFound, match="only being made"):
        tables.check_before_reading(reader, path)
    tables.check_before_reading(reader, path)
    reader.close()
    writer.close()
