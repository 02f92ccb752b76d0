"""Forges frames with valid checksums and wrong contents: they cost themselves and nothing else."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.journal import layout
from stepscope.journal.layout import ARRAY, END, EVENT, KEYS, OPEN, PAD, ROW, VOID
from tests.attack.asking import ask, rows_of
from tests.attack.checking import (
    agent_faults,
    process_faults,
    reading_faults,
    untouched_faults,
    value_faults,
    whole_run_faults,
)
from tests.attack.conftest import STORED, StoredRun
from tests.attack.frames import Frame, forged_json, frames_of, opening_of, with_frame
from tests.attack.outcomes import LOST, OTHER, WRONG, Case, Fault, Sweep
from tests.attack.test_journals import ROWS, Journals, journals
from tests.attack.training import trainings

__all__ = ["journals"]

QUICK = {"agent": {"interval_s": 0.02, "linger_s": 0.2}}
DEEP = b"[" * 50_000
ANY_JSON: dict[str, object] = {
    "no JSON": b"\xff\xfe not json",
    "nothing": b"",
    "a number": 5,
    "a text": "x",
    "null": None,
    "true": True,
    "an empty list": [],
    "a list of numbers": [1, 2],
    "an empty object": {},
    "deep nesting": DEEP,
    "NaN": b"NaN",
    "a lone surrogate": b'"\\ud800"',
}
"""What may stand in the place of any JSON payload."""

WRONG_TIMES: dict[str, object] = {
    "a text": "now",
    "null": None,
    "a list": [1],
    "a fraction": 1.5,
    "infinite": float("inf"),
    "huge": 10**30,
    "negative": -(10**30),
}


def forgeries(opening: dict) -> Iterator[tuple[str, bytes]]:
    """Names and frames; `opening` is what the process of the file has said of itself."""
    for kind, name in ((KEYS, "KEYS"), (EVENT, "EVENT"), (OPEN, "OPEN"), (END, "END"), (ARRAY, "ARRAY")):
        for what, value in ANY_JSON.items():
            yield f"{name} with {what}", _frame(kind, value)
    yield from _forged_times(opening)
    yield from _forged_openings(opening)
    yield from _forged_ends(opening["time"])
    yield from _forged_events(opening["time"])
    yield from _forged_arrays(opening["time"])
    yield from _forged_rows(opening["time"])
    for kind in (0, *range(9, 16)):
        yield f"kind {kind}, which does not exist", layout.frame(kind, b"whatever", SEQUENCE)
    for kind, name in ((PAD, "PAD"), (VOID, "VOID")):
        yield f"{name} with contents", layout.frame(kind, b"contents" * 9, SEQUENCE)


SEQUENCE = 900_000
"""A number that no frame of the run has."""


def _frame(kind: int, value: object) -> bytes:
    if kind == ARRAY:
        described = value if isinstance(value, bytes) else json.dumps(value).encode()
        return layout.frame(ARRAY, struct.pack("<Q", len(described)) + described + bytes(16), SEQUENCE)
    if kind == KEYS:
        payload = value if isinstance(value, bytes) else json.dumps(value).encode()
        return layout.frame(KEYS, payload, set_id=7)
    return forged_json(kind, value, SEQUENCE)


def _forged_times(opening: dict) -> Iterator[tuple[str, bytes]]:
    bodies = {
        EVENT: {"kind": "note"},
        OPEN: opening,
        END: {"status": "finished", "reason": "", "dropped": 0},
        ARRAY: {"key": "w", "step": 1, "dtype": "<f8", "shape": [2], "bytes": 16},
    }
    names = {EVENT: "EVENT", OPEN: "OPEN", END: "END", ARRAY: "ARRAY"}
    for kind, body in bodies.items():
        for what, time in WRONG_TIMES.items():
            yield f"{names[kind]} whose time is {what}", _frame(kind, {**body, "time": time})


def _forged_openings(opening: dict) -> Iterator[tuple[str, bytes]]:
    changes: dict[str, object] = {
        "run": 5,
        "project": ["a"],
        "host": {"name": 1},
        "role": "conductor",
        "started_ns": "yesterday",
        "facts": [],
    }
    for field, value in changes.items():
        yield f"OPEN whose {field} is {value!r}", _frame(OPEN, {**opening, field: value})
        yield f"OPEN without {field}", _frame(OPEN, {k: v for k, v in opening.items() if k != field})
    for mark in (5, {}, {"pid": "x"}, {"pid": 1, "start_ticks": "x", "boot_id": 5, "namespace": None}):
        facts = {**opening["facts"], "mark": mark}
        yield f"OPEN whose mark is {mark!r}", _frame(OPEN, {**opening, "facts": facts})
    for field, value in {"samplers": 5, "alerts": [1], "alerts ": {"rules": "x"}, "command": 7}.items():
        facts = {**opening["facts"], field.strip(): value}
        yield f"OPEN whose {field.strip()} are {value!r}", _frame(OPEN, {**opening, "facts": facts})
    yield "OPEN whose started_ns is huge", _frame(OPEN, {**opening, "started_ns": 10**30})
    yield "OPEN whose run is null", _frame(OPEN, {**opening, "run": None})


def _forged_ends(time: int) -> Iterator[tuple[str, bytes]]:
    body = {"time": time, "status": "finished", "reason": "", "exit_code": 0, "dropped": 0}
    changes: list[tuple[str, object]] = [
        ("status", 7),
        ("status", "dancing"),
        ("status", None),
        ("reason", {"a": 1}),
        ("dropped", "many"),
        ("dropped", -5),
        ("dropped", 10**30),
        ("exit_code", "one"),
        ("exit_code", 10**30),
        ("exit_code", [0]),
    ]
    for field, value in changes:
        yield f"END whose {field} is {value!r}", _frame(END, {**body, field: value})
    for field in ("status", "reason", "dropped"):
        yield f"END without {field}", _frame(END, {k: v for k, v in body.items() if k != field})


def _forged_events(time: int) -> Iterator[tuple[str, bytes]]:
    bodies: dict[str, dict] = {
        "without a kind": {},
        "whose kind is a number": {"kind": 5},
        "whose kind is a list": {"kind": ["a"]},
        "whose kind is null": {"kind": None},
        "whose step is a text": {"kind": "note", "step": "three"},
        "whose step is huge": {"kind": "note", "step": 2**70},
        "whose step is true": {"kind": "note", "step": True},
        "gap without a count": {"kind": "gap"},
        "gap of a text": {"kind": "gap", "dropped": "many"},
        "gap of a huge number": {"kind": "gap", "dropped": 2**70},
        "device of wrong fields": {"kind": "device", "index": {}, "name": 5},
        "console of wrong fields": {"kind": "console", "text": [1]},
        "alert of wrong fields": {"kind": "alert", "rule": 5, "severity": [], "message": None},
    }
    for what, body in bodies.items():
        yield f"EVENT {what}", _frame(EVENT, {"time": time, **body})


def _forged_arrays(time: int) -> Iterator[tuple[str, bytes]]:
    body = {"time": time, "key": "w", "step": 1, "dtype": "<f8", "shape": [2], "bytes": 16}
    changes: list[tuple[str, object]] = [
        ("key", 5),
        ("key", None),
        ("step", "one"),
        ("step", 2**70),
        ("dtype", "O"),
        ("dtype", 5),
        ("shape", [-1]),
        ("shape", "two"),
        ("shape", [10**12]),
        ("bytes", 99_999),
        ("bytes", -4),
        ("bytes", "all"),
    ]
    for field, value in changes:
        yield f"ARRAY whose {field} is {value!r}", _frame(ARRAY, {**body, field: value})
    for field in ("key", "dtype", "shape", "bytes"):
        yield f"ARRAY without {field}", _frame(ARRAY, {k: v for k, v in body.items() if k != field})
    yield "ARRAY that is shorter than its length", layout.frame(ARRAY, b"\x05", SEQUENCE)
    yield "ARRAY with a length beyond its end", layout.frame(ARRAY, struct.pack("<Q", 2**60), SEQUENCE)


def _forged_rows(time: int) -> Iterator[tuple[str, bytes]]:
    def row(set_id: int, *words: int) -> bytes:
        return layout.frame(ROW, struct.pack(f"<{len(words)}Q", *words), SEQUENCE, set_id)

    declared = layout.frame(KEYS, b'["forged"]', set_id=77)
    number = struct.unpack("<Q", struct.pack("<d", 1.5))[0]
    yield "ROW without anything", row(77)
    yield "ROW without a value", declared + row(77, time, 3)
    yield "ROW with more values than names", declared + row(77, time, 3, number, number)
    yield "ROW of names that were never declared", row(78, time, 3, number)
    yield "ROWs of one set with different lengths", declared + row(77, time, 3, number) + row(77, time, 4)
    yield "ROW whose time is the largest number", declared + row(77, 2**63 - 1, 3, number)
    yield "ROW whose time is the least number", declared + row(77, 2**63, 3, number)
    yield "ROW whose step is the largest number", declared + row(77, time, 2**63 - 1, number)
    yield "KEYS that declare a known set anew with fewer names", layout.frame(KEYS, b'["only"]', set_id=1)
    yield (
        "KEYS that declare a known set anew with more names",
        (layout.frame(KEYS, b'["a","b","c","d","e"]', set_id=1)),
    )
    yield (
        "KEYS with a name twice",
        layout.frame(KEYS, b'["a","a"]', set_id=77) + row(77, time, 3, number, number),
    )
    yield (
        "KEYS whose names are numbers",
        layout.frame(KEYS, b"[1,2]", set_id=77) + row(77, time, 3, number, 0),
    )
    yield "KEYS with objects in them", layout.frame(KEYS, b'[{"a":1}]', set_id=77) + row(77, time, 3, number)
    yield "KEYS with no name", layout.frame(KEYS, b"[]", set_id=77) + row(77, time, 3)
    yield "KEYS that are a text", layout.frame(KEYS, b'"loss"', set_id=77) + row(77, time, 3, *[number] * 4)
    yield (
        "KEYS with a lone surrogate",
        layout.frame(KEYS, b'["\\ud800"]', set_id=77) + row(77, time, 3, number),
    )
    yield "KEYS with a NUL", layout.frame(KEYS, b'["a\\u0000b"]', set_id=77) + row(77, time, 3, number)


def _place(dice: random.Random, frames: list[Frame]) -> int:
    """Behind some row in the middle of the file."""
    rows = [frame for frame in frames if frame.kind == ROW]
    return rows[dice.randrange(len(rows) // 4, len(rows) // 2)].end


def victim_faults(answers: dict, forged: str) -> Iterator[Fault]:
    """Whether all that was in the file before is still read."""
    if "error" in answers:
        yield Fault(LOST, f"{answers['kind']}: {answers['error']}")
        return
    yield from value_faults("victim", answers, 0.5)
    missing = sorted(set(range(ROWS)) - set(answers["steps"]))
    if missing:
        yield Fault(LOST, f"{len(missing)} rows beside the forged frame are missing, first {missing[:3]}")
    if ["milestone", 10] not in answers["events"]:
        yield Fault(LOST, "the event beside the forged frame is missing")
    if answers["name"] != "victim":
        yield Fault(WRONG, f"the run is called {answers['name']!r}")
    if answers["status"] != "finished":
        yield Fault(WRONG, f"the run is called {answers['status']!r} after {forged}")


@pytest.mark.slow
def test_forgeries_cost_themselves_and_nothing_else(
    sweep: Sweep, stored_run: StoredRun, journals: Journals
) -> None:
    def case(name: str, forged: bytes, *, with_agent: bool) -> Case:
        def check(dice: random.Random, scratch: Path) -> Iterator[Fault]:
            store = stored_run.copy_to(scratch / "store")
            path = journals.copy_to(store)[1]
            data = path.read_bytes()
            path.write_bytes(with_frame(data, _place(dice, frames_of(data)), forged))
            if with_agent:
                with trainings() as start:
                    training = start(scratch, store, "trained", rows=100, settings=QUICK)
                    yield from process_faults(training, training.end(seconds=12))
                    yield from whole_run_faults(store, training, 100, ("finished",), kind=OTHER)
            asked = ask(rows_of, str(store), path.parent.name)
            yield from reading_faults("victim", asked)
            if asked.result is not None:
                yield from victim_faults(asked.result, name)
            yield from untouched_faults(store, "bystander", journals.answers["bystander"])
            yield from untouched_faults(store, STORED, stored_run.answer)
            yield from agent_faults(store)

        return Case(f"{name}, read by {'an agent' if with_agent else 'a reader'}", check)

    frames = list(forgeries(opening_of(journals.victim[1])))
    cases = [case(name, forged, with_agent=False) for name, forged in frames]
    cases += [case(name, forged, with_agent=True) for name, forged in frames[::3]]
    sweep.run(cases, workers=3)
