"""A process that goes on logging costs one small statement, and what has changed of it is never left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.schema.run import Process
from stepscope.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def process() -> Process:
    facts = {"command": ["python", "train.py"], "libraries": {"torch": "2.8"}}
    return Process("r", "run", "p", "s", 0, "h", 7, "rank", 1, facts=facts)


def put(store: SqliteStore, process: Process) -> list[str]:
    """Puts a process; the statements that this takes."""
    statements: list[str] = []
    with store.transaction():
        store._connection.set_trace_callback(statements.append)
        store.put_process(process)
        store._connection.set_trace_callback(None)
    return statements


def put_in_vain(store: SqliteStore, process: Process) -> None:
    """Puts a process in a transaction that fails."""
    with contextlib.suppress(ZeroDivisionError), store.transaction():
        store.put_process(process)
        raise ZeroDivisionError


def test_a_process_of_which_only_the_last_record_is_new_is_one_small_update(
    store: SqliteStore, process: Process
) -> None:
    put(store, process)
    process.last_ns = 5
    (statement,) = put(store, process)
    assert statement.startswith("UPDATE process SET last_ns")
    assert store.processes("r") == [process]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "stalled", "reason": "no record since 2026-11-16 18:41:26 UTC"},
        {"lost": 3},
        {"dropped": 2},
        {"status": "finished", "ended_ns": 9, "exit_code": 0},
    ],
)
def test_every_other_change_of_a_process_is_kept(
    store: SqliteStore, process: Process, changes: dict[str, object]
) -> None:
    put(store, process)
    changed = replace(process, last_ns=8, **changes)
    put(store, changed)
    assert store.processes("r") == [changed]
    again = replace(changed, last_ns=9)
    put(store, again)
    assert store.processes("r") == [again]


def test_facts_that_are_changed_in_place_are_kept(store: SqliteStore, process: Process) -> None:
    put(store, process)
    process.facts["libraries"]["numpy"] = "2.0"
    put(store, process)
    (kept,) = store.processes("r")
    assert kept.facts["libraries"] == {"torch": "2.8", "numpy": "2.0"}


def test_a_process_whose_first_transaction_failed_is_written_whole(
    store: SqliteStore, process: Process
) -> None:
    put_in_vain(store, process)
    put(store, process)
    assert store.processes("r") == [process]


def test_a_process_whose_run_was_deleted_is_written_whole(store: SqliteStore, process: Process) -> None:
    put(store, process)
    store.delete_run("r")
    put(store, process)
    assert store.processes("r") == [process]


def test_a_change_that_was_rolled_back_is_written_when_it_comes_again(
    store: SqliteStore, process: Process
) -> None:
    put(store, process)
    stalled = replace(process, status="stalled", reason="no record since 2026-11-16 18:41:26 UTC")
    put_in_vain(store, stalled)
    put(store, stalled)
    assert store.processes("r") == [stalled]
