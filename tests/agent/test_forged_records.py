"""A record with a right checksum and wrong contents is counted and named; what is around it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from stepscope.agent.agent import Agent
from stepscope.agent.ingest.ingest import Ingest
from stepscope.cli.main import main
from stepscope.config.sections import Settings
from stepscope.journal import layout
from stepscope.journal.folder import JournalName
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import NAME, OPENING, writer_for

OTHER = JournalName("b-run", "seg2", 0, 4243)
DEEP = b"[" * 100_000 + b"]" * 100_000
EVENT = {"time": 1, "kind": "epoch", "step": 1, "fields": {}}
END = {"time": 1, "status": "finished", "reason": "", "dropped": 0}
ARRAY = {"time": 1, "key": "w", "step": 1, "dtype": "<f8", "shape": [2], "bytes": 16}


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


def pack(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def array(fields: object, raw: bytes = bytes(16), size: int | None = None) -> bytes:
    text = pack(fields)
    return layout.JSON_LENGTH.pack(len(text) if size is None else size) + text + raw


def row(set_id: int, words: list[int]) -> bytes:
    return b"".join((word % 2**64).to_bytes(8, "little") for word in words)


USER = layout.OF_USER
OURS = layout.OF_STEPSCOPE

# Kind of frame, its payload, whose it is.
FORGED: dict[str, tuple[int, bytes, int]] = {
    "event: a list": (layout.EVENT, pack([1, 2]), USER),
    "event: a number": (layout.EVENT, pack(5), USER),
    "event: null": (layout.EVENT, pack(None), USER),
    "event: nothing": (layout.EVENT, b"", USER),
    "event: cut off": (layout.EVENT, pack(EVENT)[:-3], USER),
    "event: no time": (layout.EVENT, pack({"kind": "a", "fields": {}}), USER),
    "event: time is text": (layout.EVENT, pack({**EVENT, "time": "00:01:23"}), USER),
    "event: time is null": (layout.EVENT, pack({**EVENT, "time": None}), USER),
    "event: time is huge": (layout.EVENT, pack({**EVENT, "time": 10**30}), USER),
    "event: time is NaN": (layout.EVENT, b'{"time": NaN, "kind": "a", "fields": {}}', USER),
    "event: time is true": (layout.EVENT, pack({**EVENT, "time": True}), USER),
    "event: no kind": (layout.EVENT, pack({"time": 1, "fields": {}}), USER),
    "event: no fields": (layout.EVENT, pack({"time": 1, "kind": "a"}), USER),
    "event: fields are a list": (layout.EVENT, pack({**EVENT, "fields": [1]}), USER),
    "event: step is text": (layout.EVENT, pack({**EVENT, "step": "ten"}), USER),
    "event: step is huge": (layout.EVENT, pack({**EVENT, "step": 2**63}), USER),
    "event: nested deep": (layout.EVENT, DEEP, USER),
    "event: nested in a field": (layout.EVENT, b'{"time":1,"kind":"a","fields":{"x":' + DEEP + b"}}", USER),
    "event: no utf-8": (layout.EVENT, b'{"time":1,"kind":"\xff\xfe"}', USER),
    "event: a number of 5,000 digits": (layout.EVENT, b'{"time":1,"x":' + b"9" * 5000 + b"}", USER),
    "event: our gap counts with words": (layout.EVENT, pack({**EVENT, "kind": "gap", "dropped": "x"}), OURS),
    "event: our gap counts backwards": (layout.EVENT, pack({**EVENT, "kind": "gap", "dropped": -5}), OURS),
    "old event: time is text": (layout.EVENT, pack({"time": "00:01:23", "kind": "a"}), 0),
    "end: a list": (layout.END, pack([]), 0),
    "end: unknown status": (layout.END, pack({**END, "status": "happy"}), 0),
    "end: a live status": (layout.END, pack({**END, "status": "running"}), 0),
    "end: status is a list": (layout.END, pack({**END, "status": ["finished"]}), 0),
    "end: reason is a number": (layout.END, pack({**END, "reason": 5}), 0),
    "end: dropped is text": (layout.END, pack({**END, "dropped": "many"}), 0),
    "end: dropped is negative": (layout.END, pack({**END, "dropped": -1}), 0),
    "end: exit code is text": (layout.END, pack({**END, "exit_code": "one"}), 0),
    "end: nothing": (layout.END, pack({"time": 1}), 0),
    "open: run is a number": (layout.OPEN, pack({**OPENING, "time": 1, "run": 5}), 0),
    "open: project is a list": (layout.OPEN, pack({**OPENING, "time": 1, "project": []}), 0),
    "open: host is null": (layout.OPEN, pack({**OPENING, "time": 1, "host": None}), 0),
    "open: unknown role": (layout.OPEN, pack({**OPENING, "time": 1, "role": "king"}), 0),
    "open: role is an object": (layout.OPEN, pack({**OPENING, "time": 1, "role": {}}), 0),
    "open: started in words": (layout.OPEN, pack({**OPENING, "time": 1, "started_ns": "now"}), 0),
    "open: started never": (layout.OPEN, pack({**OPENING, "time": 1, "started_ns": 2**70}), 0),
    "open: facts are text": (layout.OPEN, pack({**OPENING, "time": 1, "facts": "none"}), 0),
    "open: nothing": (layout.OPEN, pack({"time": 1}), 0),
    "array: description too long": (layout.ARRAY, array(ARRAY, size=2**62), 0),
    "array: a list": (layout.ARRAY, array([1]), 0),
    "array: nothing": (layout.ARRAY, b"", 0),
    "array: no dtype": (layout.ARRAY, array({**ARRAY, "dtype": None}), 0),
    "array: unknown dtype": (layout.ARRAY, array({**ARRAY, "dtype": "<q9"}), 0),
    "array: objects": (layout.ARRAY, array({**ARRAY, "dtype": "O"}), 0),
    "array: a structure": (layout.ARRAY, array({**ARRAY, "dtype": "f4,f4"}), 0),
    "array: wrong shape": (layout.ARRAY, array({**ARRAY, "shape": [3]}), 0),
    "array: negative shape": (layout.ARRAY, array({**ARRAY, "shape": [-1, -2]}), 0),
    "array: shape is text": (layout.ARRAY, array({**ARRAY, "shape": "2"}), 0),
    "array: forty dimensions": (layout.ARRAY, array({**ARRAY, "shape": [1] * 40 + [2]}), 0),
    "array: negative length": (layout.ARRAY, array({**ARRAY, "bytes": -16}), 0),
    "array: more bytes than there are": (layout.ARRAY, array({**ARRAY, "bytes": 2**40}), 0),
    "array: key is a number": (layout.ARRAY, array({**ARRAY, "key": 7}), 0),
    "array: step is text": (layout.ARRAY, array({**ARRAY, "step": "x"}), 0),
    "row: too short": (layout.ROW, b"", 1),
    "row: one word": (layout.ROW, bytes(8), 1),
    "row: too wide": (layout.ROW, bytes(16 + 24), 1),
    "row: too narrow": (layout.ROW, bytes(16), 1),
    "row: no such key set": (layout.ROW, bytes(24), 999),
}


def put(folder: Path, frames: list[tuple[int, bytes, int]], rows: int = 20) -> None:
    """A journal with rows before and after these frames, numbered as a writer would."""
    writer = writer_for(folder, segment_bytes=1 << 20)
    for step in range(rows):
        writer.append_row({"loss": 1.0}, step)
    for kind, payload, set_id in frames:
        segment = writer._segment
        sequence = segment.next_sequence() if kind in layout.CARRY_DATA else layout.NO_SEQUENCE
        segment.write(layout.frame(kind, payload, sequence, set_id))
        segment.committed[0] = segment.tell()
    for step in range(rows, 2 * rows):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": "as it should"})


def take_in(folder: Path, store: SqliteStore) -> Ingest:
    other = writer_for(folder, OTHER)
    other.append_row({"loss": 2.0}, 0)
    other.close({"status": "finished", "reason": ""})
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    while ingest.tick():
        pass
    return ingest


@pytest.mark.slow
@pytest.mark.parametrize("which", FORGED)
def test_a_forged_record_is_counted_and_named_and_all_others_are_stored(
    which: str, folder: Path, store: SqliteStore
) -> None:
    put(folder, [FORGED[which]])
    ingest = take_in(folder, store)
    assert store.points(Selection(NAME.run_id, "loss")).steps.tolist() == list(range(40))
    assert len(store.points(Selection(OTHER.run_id, "loss"))) == 1
    run = next(run for run in store.runs() if run.id == NAME.run_id)
    assert (run.status, run.reason, run.name) == ("finished", "as it should", "a run")
    (process,) = run.segments[0].processes
    assert process.lost == 1
    assert (process.dropped, store.set_aside(), store.arrays(NAME.run_id, "w")) == (0, [], [])
    named = store.events(NAME.run_id)
    assert [event.kind for event in named] == ([] if "key set" in which else ["record_refused"])
    assert not ingest.live
    ingest.close()


def test_a_thousand_forged_records_are_counted_and_some_are_named(folder: Path, store: SqliteStore) -> None:
    put(folder, [FORGED["event: time is text"]] * 1000)
    take_in(folder, store).close()
    assert store.processes(NAME.run_id)[0].lost == 1000
    assert 0 < len(store.events(NAME.run_id)) <= 10
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 40


NAMES = {
    "a number": pack(5),
    "numbers": pack([1, 2]),
    "an object": pack({"loss": 1}),
    "nested": pack([["loss"]]),
    "deep": DEEP,
    "no utf-8": b'["\xff"]',
    "nothing": b"",
    "other names for a set that has some": pack(["accuracy"]),
}


@pytest.mark.parametrize("which", NAMES)
def test_forged_names_rename_no_row(which: str, folder: Path, store: SqliteStore) -> None:
    put(folder, [(layout.KEYS, NAMES[which], 1)])
    take_in(folder, store).close()
    assert store.points(Selection(NAME.run_id, "loss")).steps.tolist() == list(range(40))
    assert [known.key for known in store.keys(NAME.run_id)] == ["loss"]
    assert store.processes(NAME.run_id)[0].lost == 0


@pytest.mark.parametrize("names", [["x", "x"], ["x", ""], ["", ""], ["\ud800", "\x00"]])
def test_names_that_come_twice_or_are_empty_are_kept(
    names: list[str], folder: Path, store: SqliteStore
) -> None:
    values = b"".join(layout.HEAD_WORD.pack(word) for word in (0, 5, 0, 0))
    put(folder, [(layout.KEYS, pack(names), 50), (layout.ROW, values, 50)])
    take_in(folder, store).close()
    points_by_key = {known.key: known.points for known in store.keys(NAME.run_id)}
    assert points_by_key.pop("loss") == 40
    assert sum(points_by_key.values()) == 2
    assert store.processes(NAME.run_id)[0].lost == 0


FACTS = [
    {"mark": 5},
    {"mark": {"pid": "x"}},
    {"mark": {"pid": 1, "start_ticks": [], "boot_id": 3, "namespace": {}}},
    {"samplers": 3},
    {"samplers": {"gpu": 5}},
    {"alerts": [1]},
    {"alerts": {"rules": 5, "enabled": "x", "disabled": 7, "thresholds": 3}},
    {"command": "train.py"},
    {"command": [1, None]},
    {"libraries": ["torch"]},
    {"environment": 5},
    {"cpus": "many"},
    {"log_directory": 5},
    {"config": 5, "total_steps": "x", "world_size": []},
]


@pytest.mark.slow
@pytest.mark.parametrize("facts", FACTS, ids=str)
def test_facts_of_a_wrong_shape_stop_neither_the_agent_nor_a_command(
    facts: dict[str, object], folder: Path, store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = writer_for(folder, opening={**OPENING, "facts": facts})
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    agent = Agent(folder, store, Settings())
    for _ in range(3):
        agent.tick()
    agent.close()
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 1
    assert main(["show", "a run", "--store", str(folder)]) == 0
    assert main(["show", "a run", "--json", "--store", str(folder)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_number_no_file_can_hold_is_not_taken_for_a_loss_of_all_before_it(
    folder: Path, store: SqliteStore
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    segment = writer._segment
    body = layout.frame(layout.EVENT, pack({"time": 1, "kind": "a"}))[: -layout.TRAILER.size]
    segment.write(body + layout.TRAILER.pack(crc32(body, 4_000_000_000), 4_000_000_000))
    segment.committed[0] = segment.tell()
    writer.close({"status": "finished", "reason": ""})
    take_in(folder, store).close()
    assert store.processes(NAME.run_id)[0].lost <= 1
