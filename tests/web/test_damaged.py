"""A store that is damaged, forged, replaced or missing gives clear errors, and never a 500."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3

import pytest

from stepscope.errors import StoreError
from stepscope.store.open import find_damage
from stepscope.store.sqlite import SqliteStore
from stepscope.store.sqlite.connecting import connect_to_read
from tests.web.asking import API, RUN, app_of, ask, error_of, get, process, rich_store

PAGES = (
    "/meta", "/home", "/runs", f"/runs/{RUN}", f"/runs/{RUN}/overview", f"/runs/{RUN}/keys",
    f"/runs/{RUN}/series?keys=loss,gpu/utilization_ratio", f"/runs/{RUN}/steps", f"/runs/{RUN}/heatmap",
    f"/runs/{RUN}/logs", f"/runs/{RUN}/config", f"/runs/{RUN}/findings", f"/compare?runs={RUN}",
    "/alerts", "/delta?wait=0",
    f"/delta?run={RUN}&keys=loss&wait=0",
)  # fmt: skip


def test_before_there_is_a_store_the_lists_are_empty_and_a_run_is_not_there(folder) -> None:
    app = app_of(folder)
    assert get(app, "/meta")["run_count"] == 0
    assert get(app, "/runs")["runs"] == []
    assert get(app, "/home")["running"] == []
    assert ask(app, f"{API}/runs/{RUN}").status_code == 404
    assert not folder.exists()


def test_a_new_or_replaced_store_is_detected_at_once(folder) -> None:
    app = app_of(folder)
    assert get(app, "/meta")["run_count"] == 0
    rich_store(folder).close()
    assert get(app, "/meta")["run_count"] == 1
    shutil.rmtree(folder)
    store = SqliteStore(folder / "store.sqlite")
    for number in range(3):
        with store.transaction():
            store.put_process(process(run_id=f"r-{number}"))
    assert get(app, "/meta")["run_count"] == 3
    store.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"SQLite format 3\0", b"not a database at all" * 500, os.urandom(8192)],
    ids=["empty", "cut", "text", "noise"],
)
def test_a_damaged_store_is_reported_on_every_page(folder, content: bytes) -> None:
    folder.mkdir()
    (folder / "store.sqlite").write_bytes(content)
    app = app_of(folder)
    for page in PAGES:
        response = ask(app, API + page)
        assert response.status_code in (200, 404, 409)
        if response.status_code == 409:
            assert "damaged" in error_of(response)
            assert str(folder) not in response.text


def test_a_damaged_page_is_found_before_anything_is_read(folder) -> None:
    rich_store(folder).close()
    path = folder / "store.sqlite"
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 200] = b"\xff" * 200
    path.write_bytes(content)
    assert find_damage(folder, 5.0) is not None
    response = ask(app_of(folder), f"{API}/runs")
    assert response.status_code == 409
    assert "Restore it from a copy" in error_of(response)


def test_flipped_bytes_anywhere_never_become_a_failure_of_ours(folder, tmp_path) -> None:
    rich_store(folder).close()
    sound = (folder / "store.sqlite").read_bytes()
    dice = random.Random(7)
    for number in range(6):
        damaged = bytearray(sound)
        for _ in range(dice.randint(1, 30)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        here = tmp_path / str(number)
        here.mkdir()
        (here / "store.sqlite").write_bytes(damaged)
        app = app_of(here)
        for page in PAGES:
            assert ask(app, API + page).status_code in (200, 400, 404, 409), page


def test_a_forged_schema_is_not_trusted(folder) -> None:
    rich_store(folder).close()
    with sqlite3.connect(folder / "store.sqlite") as forged:
        forged.executescript(
            "DROP TABLE event;"
            "CREATE VIEW event AS SELECT 1 AS id, 'mnist-0badcafe' AS run_id, '' AS segment, 0 AS rank,"
            " 'x' AS kind, 0 AS time_ns, 0 AS step, load_extension('/tmp/evil.so') AS fields;"
        )
    response = ask(app_of(folder), f"{API}/runs/{RUN}/overview")
    assert response.status_code == 409


def test_a_reader_writes_nothing_loads_nothing_and_reserves_little(folder) -> None:
    rich_store(folder).close()
    connection = connect_to_read(folder / "store.sqlite")
    for query in ("DELETE FROM run", "CREATE TABLE a (b)", "PRAGMA user_version = 9"):
        with pytest.raises(sqlite3.Error, match="readonly|read-only"):
            connection.execute(query)
    with pytest.raises(sqlite3.Error, match="not authorized"):
        connection.execute("SELECT load_extension('x')")
    with pytest.raises((sqlite3.Error, MemoryError)):
        connection.execute("SELECT zeroblob(1000000000)").fetchone()
    assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
    assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)
    connection.close()


def test_a_check_that_takes_too_long_is_given_up(folder) -> None:
    rich_store(folder).close()
    assert find_damage(folder, -1.0) is None


def test_a_store_of_a_newer_version_is_reported_as_unreadable(folder) -> None:
    rich_store(folder).close()
    with sqlite3.connect(folder / "store.sqlite") as newer:
        newer.execute("PRAGMA user_version = 99")
    assert ask(app_of(folder), f"{API}/runs").status_code == 409


def test_damaged_marks_do_not_hide_what_the_store_has_of_a_series(folder, store) -> None:
    (folder / "page.sqlite").write_bytes(b"no database" * 100)
    app = app_of(folder)
    assert ask(app, f"{API}/runs/{RUN}/series?keys=loss").status_code == 200
    assert ask(app, f"{API}/runs").status_code == 409


def test_more_requests_than_readers_wait_for_their_turn(state) -> None:
    held = [state.readers.open() for _ in range(3)]
    for slot in held:
        slot.__enter__()
    with state.readers.open() as opened:
        assert len(opened.runs.runs()) == 1
    for slot in held:
        slot.__exit__(None, None, None)
    assert len(state.readers._free) == 4


def test_a_reader_in_whose_hands_something_failed_is_not_used_again(state) -> None:
    with pytest.raises(OSError, match="gone"), state.readers.open():
        raise OSError("gone")
    assert state.readers._free == []
    with pytest.raises(StoreError), state.readers.open():
        raise StoreError("it is damaged")
    with state.readers.open() as opened:
        assert opened.run("mnist").id == RUN
