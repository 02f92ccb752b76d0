"""A write-ahead log that was changed, cut off or deleted makes no shorter store: it is refused, and named."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.errors import StoreError
from stepscope.store.sqlite import SqliteReader, SqliteStore, log_check
from tests.store.run_samples import process
from tests.store.test_flipped_bytes import asked_of, fill


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store.sqlite"
    store = SqliteStore(path)
    fill(store)
    store.close()
    return path


@pytest.fixture(scope="module")
def right(sound: Path) -> dict[str, object]:
    return asked_of(sound)


def left_by_a_killed_writer(place: Path) -> Path:
    """A store whose log was not folded into the file."""
    pid = os.fork()
    if pid == 0:
        store = SqliteStore(place / "store.sqlite")
        store._connection.execute("PRAGMA wal_autocheckpoint = 0")
        fill(store)
        os._exit(0)
    os.waitpid(pid, 0)
    (place / "store.sqlite-shm").unlink(missing_ok=True)
    return place / "store.sqlite"


@pytest.mark.slow
def test_a_changed_byte_in_the_log_does_not_give_a_shorter_store(
    tmp_path: Path, right: dict[str, object]
) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    made.mkdir()
    path = left_by_a_killed_writer(made)
    log = Path(f"{path}-wal").read_bytes()
    draw = random.Random(1)
    for at in [0, 5, 17, 30, 33, 45, *(draw.randrange(len(log)) for _ in range(10))]:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place)
        changed = bytearray(log)
        changed[at] ^= 1 << draw.randrange(8)
        (place / "store.sqlite-wal").write_bytes(changed)
        answers = asked_of(place / "store.sqlite")
        assert all(answer in ("refused", right[name]) for name, answer in answers.items()), at


def commit_ends(log: bytes) -> list[int]:
    """Where the transactions of a log end."""
    return [at + 4120 for at in range(32, len(log), 4120) if any(log[at + 4 : at + 8])]


def test_a_log_cut_off_where_a_transaction_ends_does_not_give_a_shorter_store(
    tmp_path: Path, right: dict[str, object]
) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    made.mkdir()
    log = Path(f"{left_by_a_killed_writer(made)}-wal").read_bytes()
    ends = commit_ends(log)
    assert ends[-1] == len(log)
    for end in [*ends[-3:], None]:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place)
        if end is None:
            (place / "store.sqlite-wal").unlink()
        else:
            (place / "store.sqlite-wal").write_bytes(log[:end])
        if end == len(log):
            assert asked_of(place / "store.sqlite") == right
        else:
            with pytest.raises(StoreError, match=r"store.sqlite-wal lacks the last .*stepscope doctor"):
                SqliteReader(place / "store.sqlite")


def test_a_writer_continues_after_a_log_that_was_cut_off_and_says_what_was_lost(
    tmp_path: Path, capsys
) -> None:
    path = left_by_a_killed_writer(tmp_path)
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{path}-wal").write_bytes(log[: commit_ends(log)[-2]])
    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="next", directory=tmp_path) as monitor:
        monitor.log({"loss": 1.0})
    opened = stepscope.open_store(tmp_path)
    assert {run.name for run in opened.runs()} >= {"next"}
    (noted,) = opened.set_aside()
    assert noted.path == "store.sqlite-wal.damaged"
    assert main(["runs", "--store", str(tmp_path)]) == 0
    assert "cut off" in capsys.readouterr().err


def test_a_store_that_was_closed_may_be_replaced_by_an_older_copy(tmp_path: Path, sound: Path) -> None:
    path = Path(shutil.copy(sound, tmp_path / "store.sqlite"))
    older = path.read_bytes()
    store = SqliteStore(path)
    assert Path(f"{path}-commits").exists()
    with store.transaction():
        store.put_process(process(run_id="four"))
    store.close()
    path.write_bytes(older)
    SqliteReader(path).close()


def test_a_new_store_takes_no_notice_of_what_an_older_one_left(tmp_path: Path, sound: Path) -> None:
    path = left_by_a_killed_writer(tmp_path)
    for name in ("store.sqlite", "store.sqlite-wal"):
        (tmp_path / name).unlink()
    store = SqliteStore(path)
    with store.transaction():
        store.put_process(process(run_id="one"))
    SqliteReader(path).close()
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["store.sqlite"]


def test_a_log_that_is_whole_is_never_called_damaged(tmp_path: Path, right: dict[str, object]) -> None:
    made = tmp_path / "made"
    made.mkdir()
    path = left_by_a_killed_writer(made)
    assert asked_of(path) == right
    store = SqliteStore(path)
    with store.transaction():
        store.put_process(process(run_id="four"))
    assert not log_check.is_damaged(path)
    store.close()


def test_a_writer_keeps_what_is_intact_and_names_the_rest(tmp_path: Path, capsys) -> None:
    path = left_by_a_killed_writer(tmp_path)
    log = bytearray(Path(f"{path}-wal").read_bytes())
    log[len(log) * 3 // 4] ^= 1
    Path(f"{path}-wal").write_bytes(log)
    with pytest.raises(StoreError, match=r"store.sqlite-wal is damaged.*stepscope doctor"):
        SqliteReader(path)

    with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="next", directory=tmp_path) as monitor:
        monitor.log({"loss": 1.0})
    opened = stepscope.open_store(tmp_path)
    assert {"one", "next"} <= {run.name for run in opened.runs()} | {run.id for run in opened.runs()}
    (noted,) = opened.set_aside()
    assert noted.path == "store.sqlite-wal.damaged"
    assert "lost" in noted.reason
    assert main(["runs", "--store", str(tmp_path)]) == 0
    assert "store.sqlite-wal.damaged" in capsys.readouterr().err


CUTTING = """
import os, sys
path = sys.argv[1]
with open(path, "rb") as file:
    data = file.read()
while True:
    os.truncate(path, 0)
    with open(path, "r+b") as file:
        file.write(data)
    print(flush=True)
"""


@pytest.mark.slow
def test_a_reader_survives_that_its_writer_cuts_the_log_off_meanwhile(tmp_path: Path) -> None:
    database = tmp_path / "store.sqlite"
    connection = sqlite3.connect(database, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (zeroblob(8000000))")
    writer = subprocess.Popen(
        [sys.executable, "-c", CUTTING, f"{database}-wal"], stdout=subprocess.PIPE, text=True
    )
    reading = f"""
from pathlib import Path
from stepscope.store.sqlite.log_check import _looks_damaged
while True:
    _looks_damaged(Path({str(database)!r}))
"""
    reader = subprocess.Popen([sys.executable, "-c", reading])
    try:
        for _ in range(200):
            writer.stdout.readline()
        assert reader.poll() is None
    finally:
        for process in (writer, reader):
            process.kill()
            process.communicate()
        connection.close()


LOCKING = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # held by whoever uses the index
"""


def test_a_reader_in_the_process_of_the_writer_leaves_the_locks_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore(path)
    fill(store)
    readers = [SqliteReader(path) for _ in range(3)]
    for reader in readers:
        reader.close()
    command = [sys.executable, "-c", LOCKING, f"{path}-shm"]
    tried = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "BlockingIOError" in tried.stderr
    store.close()


def test_indexes_of_logs_that_were_deleted_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    opened = []
    for _ in range(5):
        store = SqliteStore(path)
        fill(store)
        SqliteReader(path).close()
        store.close()
        path.unlink()
        opened.append(len(os.listdir("/proc/self/fd")))
    assert len(set(opened)) == 1
