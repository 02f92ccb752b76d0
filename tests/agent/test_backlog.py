"""Much that was recorded at once is stored piece by piece, and whoever waits for it sees that it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import stepscope
from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process import attend
from stepscope.agent.process import start as agent_start
from stepscope.journal import layout
from stepscope.journal.folder import ALL, list_journals, stored_so_far
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import NAME, writer_for

ROWS = 10_000
KEYS = tuple(f"key{number}" for number in range(60))
MANY_TIMES = 100
PATIENCE_S = 15.0


class HandClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journal(folder: Path) -> Path:
    """A journal of five megabytes whose process has ended."""
    writer = writer_for(folder, segment_bytes=8 << 20)
    for step in range(ROWS):
        writer.append_row(dict.fromkeys(KEYS, float(step)), step)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    return path


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


def test_a_long_journal_is_stored_piece_by_piece_and_says_how_far(
    folder: Path, journal: Path, store: SqliteStore
) -> None:
    ingest = Ingest(folder, store)
    marks = []
    while ingest.tick():
        marks.append(stored_so_far(journal))
        assert set(store.progress_of_all().values()) == {marks[-1]}
    assert len(marks) >= 4
    assert marks == sorted(set(marks))
    assert not journal.exists()
    assert stepscope.open_store(folder).run(NAME.run_id).series("key59").values.tolist() == list(range(ROWS))


def test_a_file_is_marked_as_stored_before_its_run_is_diagnosed(
    folder: Path, journal: Path, store: SqliteStore
) -> None:
    marks: list[int] = []
    listener = Mock()
    listener.on_round_end.side_effect = lambda: marks.append(stored_so_far(journal))
    ingest = Ingest(folder, store, feeds=Feeds(listener=listener))
    while ingest.tick():
        pass
    assert marks[-1] == ALL


def test_the_end_of_a_training_waits_as_long_as_something_is_stored(journal: Path, monkeypatch) -> None:
    clock = HandClock()
    monkeypatch.setattr(agent_start, "time", SimpleNamespace(monotonic=clock))
    waited = []

    def store_a_little() -> None:
        clock.now += PATIENCE_S - 1
        waited.append(clock.now)
        if len(waited) < MANY_TIMES:
            _mark(journal, layout.STORED_SO_FAR.start, len(waited).to_bytes(4, "little"))
        else:
            journal.unlink()

    monkeypatch.setattr(agent_start.select, "select", lambda *_: None)
    assert agent_start.wait_until_read(
        lambda: [journal] if journal.exists() else [], PATIENCE_S, store_a_little, lambda _: ""
    )
    assert len(waited) == MANY_TIMES


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_agent_that_stores_nothing_is_waited_for_once_and_no_trouble_if_all_is_stored(
    is_stored, journal: Path, monkeypatch
) -> None:
    clock = HandClock()
    monkeypatch.setattr(agent_start, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(agent_start.select, "select", lambda *_: None)
    if is_stored:
        _mark(journal, layout.STORED_AT, b"\x01")

    def pass_a_second() -> None:
        clock.now += 1

    began = clock.now
    was_read = agent_start.wait_until_read(lambda: [journal], PATIENCE_S, pass_a_second, lambda _: "")
    assert was_read is is_stored
    assert PATIENCE_S <= clock.now - began <= PATIENCE_S + 2


@pytest.mark.usefixtures("journal")
def test_a_reader_brings_all_of_it_into_the_store_however_long_that_takes(folder: Path, monkeypatch) -> None:
    clock = HandClock()
    monkeypatch.setattr(attend, "time", SimpleNamespace(monotonic=clock, sleep=lambda _: None))
    tick = Ingest.tick

    def slow_tick(ingest: Ingest) -> bool:
        clock.now += attend.MAX_WAIT_S - 1
        return tick(ingest)

    monkeypatch.setattr(Ingest, "tick", slow_tick)
    attend.catch_up(folder)
    assert not list(list_journals(folder))
    assert len(stepscope.open_store(folder).run(NAME.run_id).series("key0")) == ROWS


def _mark(path: Path, at: int, mark: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(mark)
