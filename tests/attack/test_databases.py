"""Damages database files: every answer is the right one or an error that names the file."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepscope.agent.process.election import agent_pid
from tests.attack.asking import ask, everything
from tests.attack.checking import named_faults, reading_faults, text_faults
from tests.attack.outcomes import LOST, TRACEBACK, UNCLEAR, WRONG, Case, Fault, Sweep
from tests.attack.training import kill_agent, trainings, wait_for

SETTINGS = {
    "agent": {"interval_s": 0.02, "linger_s": 5},
    "alerts": {"thresholds": {"loss": 100.0}},
}
PAGE_BYTES = 4096
LOG_HEAD_BYTES, FRAME_HEAD_BYTES = 32, 24


@dataclass(frozen=True)
class Original:
    """A store, the runs and keys it has, and every answer it gives."""

    folder: Path
    known: dict[str, list[str]]
    answers: dict[str, dict]

    def copy_to(self, folder: Path) -> Path:
        """Makes a copy to be damaged."""
        shutil.copytree(self.folder, folder)
        return folder


def record_runs(scratch: Path, store: Path) -> None:
    """Records three runs: one with sealed rows and an alert, one with many keys, one that was killed."""
    with trainings() as start:
        one = start(scratch, store, "long", rows=9000, settings=SETTINGS)
        # Without it the other two start agents of their own, which take over from the one that is killed.
        wait_for(lambda: agent_pid(store))
        two = start(scratch, store, "wide", rows=500, keys=40, settings=SETTINGS, salt=0.25)
        three = start(scratch, store, "killed", settings=SETTINGS, salt=0.75)
        three.log_until(1000)
        three.kill()
        assert [one.end(), two.end()] == [0, 0]
        wait_for(lambda: not list(store.glob("journal/*/*")))
        kill_agent(store)


def original(store: Path) -> Original:
    """Asks everything twice: what differs by itself cannot be compared."""
    known = {name: ["loss", "metric00"] for name in ("long", "wide", "killed")}
    folder = store.with_name("asked")
    asked = []
    for _ in range(2):
        shutil.copytree(store, folder)
        asked.append(ask(everything, str(folder), known, list(known)).result)
        shutil.rmtree(folder)
    first, second = asked
    assert {name for name in first if first[name] != second[name]} == set()
    assert not [name for name, answer in first.items() if "error" in answer or answer.get("code", 0)]
    return Original(store, known, first)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Original]:
    """A store as a killed agent leaves it, and the same with its log taken in."""
    scratch = tmp_path_factory.mktemp("database")
    record_runs(scratch, scratch / "store")
    assert (scratch / "store" / "store.sqlite-wal").stat().st_size > 10 * PAGE_BYTES
    store, closed = scratch / "open", scratch / "closed"
    for folder in (store, closed):
        folder.mkdir()
        for name in ("store.sqlite", "store.sqlite-wal", "store.sqlite-commits"):
            shutil.copy(scratch / "store" / name, folder)
    connection = sqlite3.connect(closed / "store.sqlite")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {"closed": original(closed), "open": original(store)}


Damage = Callable[[random.Random, bytes], bytes]


def flip(low: int, high: int | None, count: int = 1) -> Damage:
    def damage(dice: random.Random, data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(count):
            damaged[dice.randrange(low, min(high or len(data), len(data)))] ^= 1 << dice.randrange(8)
        return bytes(damaged)

    return damage


def zero(size: int) -> Damage:
    def damage(dice: random.Random, data: bytes) -> bytes:
        at = dice.randrange(0, len(data) - size, 1 if size < PAGE_BYTES else PAGE_BYTES)
        return data[:at] + bytes(size) + data[at + size :]

    return damage


def scramble(size: int) -> Damage:
    def damage(dice: random.Random, data: bytes) -> bytes:
        at = dice.randrange(100, len(data) - size)
        return data[:at] + dice.randbytes(size) + data[at + size :]

    return damage


def truncate(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(1, len(data))]


def truncate_to_pages(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(1, len(data) // PAGE_BYTES) * PAGE_BYTES]


def truncate_to_commit(dice: random.Random, data: bytes) -> bytes:
    """Cuts a log off behind a frame that ends a transaction, which SQLite takes for a log that is whole."""
    frame = FRAME_HEAD_BYTES + PAGE_BYTES
    frames = range(LOG_HEAD_BYTES, len(data) - frame, frame)
    return data[: dice.choice([at + frame for at in frames if any(data[at + 4 : at + 8])])]


def swap_pages(dice: random.Random, data: bytes) -> bytes:
    first, second = sorted(dice.sample(range(1, len(data) // PAGE_BYTES), 2))
    pages = [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]
    pages[first], pages[second] = pages[second], pages[first]
    return b"".join(pages)


def in_column(table: str, column: str) -> Damage:
    """Flips a bit of some value of a column, found by its bytes in the file."""

    def damage(dice: random.Random, data: bytes) -> bytes:
        at, size = dice.choice(places_of(data, table, column))
        damaged = bytearray(data)
        damaged[at + dice.randrange(size)] ^= 1 << dice.randrange(8)
        return bytes(damaged)

    return damage


def places_of(data: bytes, table: str, column: str) -> list[tuple[int, int]]:
    """Where the values of a column are in a file, and how long; none where the table is empty."""
    memory = sqlite3.connect(":memory:")
    memory.deserialize(_without_log(data))
    values = [row[0] for row in memory.execute(f'SELECT "{column}" FROM "{table}"')]
    memory.close()
    texts = [value.encode() if isinstance(value, str) else value for value in values]
    # What is long lies on several pages; its first bytes are on one.
    places = [(data.find(text[:40]), len(text[:40])) for text in texts if isinstance(text, bytes) and text]
    return [place for place in places if place[0] >= 0]


def _without_log(data: bytes) -> bytes:
    """A database in memory has no log: bytes 18 and 19 say whether one is used."""
    return data[:18] + b"\x01\x01" + data[20:]


COLUMNS = (
    ("chunk", "data"),
    ("block", "steps"),
    ("block", "times"),
    ("rollup", "data"),
    ("node", "starts"),
    ("tail", "data"),
    ("event", "fields"),
    ("event", "kind"),
    ("alert", "message"),
    ("alert", "fields"),
    ("process", "facts"),
    ("process", "status"),
    ("process", "host"),
    ("run", "name"),
    ("run", "id"),
    ("series", "key"),
    ("key_set", "keys"),
    ("key_set", "last"),
    ("finding", "fields"),
    ("notice", "told"),
)


def damages(closed: bytes) -> Iterator[tuple[str, str, str, Damage]]:
    """Name, which store, which file, damage; `closed` is the file of the store that was closed."""
    file = "store.sqlite"
    for turn in range(40):
        yield f"1 bit flipped, {turn}", "closed", file, flip(0, None)
    for turn in range(15):
        yield f"30 bits flipped, {turn}", "closed", file, flip(100, None, 30)
        yield f"1 bit of the first page flipped, {turn}", "closed", file, flip(0, PAGE_BYTES)
        yield f"1 bit of the first 100 bytes flipped, {turn}", "closed", file, flip(0, 100)
    for turn in range(8):
        yield f"64 bytes zeroed, {turn}", "closed", file, zero(64)
        yield f"a page zeroed, {turn}", "closed", file, zero(PAGE_BYTES)
        yield f"200 bytes scrambled, {turn}", "closed", file, scramble(200)
        yield f"cut off, {turn}", "closed", file, truncate
        yield f"cut off after a page, {turn}", "closed", file, truncate_to_pages
        yield f"two pages swapped, {turn}", "closed", file, swap_pages
    for table, column in COLUMNS:
        for turn in range(3) if places_of(closed, table, column) else ():
            yield f"1 bit of {table}.{column} flipped, {turn}", "closed", file, in_column(table, column)
    log = "store.sqlite-wal"
    yield "log emptied", "open", log, lambda _dice, _data: b""
    for turn in range(15):
        yield f"1 bit of the log flipped, {turn}", "open", log, flip(0, None)
    for turn in range(5):
        yield f"1 bit of the log's first 32 bytes flipped, {turn}", "open", log, flip(0, 32)
        yield f"100 bytes of the log zeroed, {turn}", "open", log, zero(100)
        yield f"log cut off, {turn}", "open", log, truncate
        yield f"log cut off where a transaction ends, {turn}", "open", log, truncate_to_commit
        yield f"1 bit of a store with a log flipped, {turn}", "open", file, flip(0, None)


def answer_faults(name: str, before: dict, now: dict, database: Path) -> Iterator[Fault]:
    """Whether an answer is what it was, or an error that names the file."""
    if "err" in before:
        yield from _command_faults(name, before, now, database)
        return
    if now.get("traceback"):
        yield Fault(TRACEBACK, f"{name}: {now['error'][-300:]}")
    elif "error" in now:
        if now["missing"] and "not a store" not in now["error"] and "no store at" not in now["error"]:
            yield Fault(LOST, f"{name}: {now['error']}")
        yield from named_faults(name, now["error"], database)
    elif now["digest"] != before["digest"]:
        yield Fault(LOST if now["size"] < before["size"] else WRONG, f"{name} differs")


def _command_faults(name: str, before: dict, now: dict, database: Path) -> Iterator[Fault]:
    yield from text_faults(name, now["err"])
    if "Traceback" in now["err"]:
        return
    if now["code"] == 0:
        is_incomplete = "Not compared with an earlier run" in now["err"]
        if is_incomplete:  # a diagnosis, which says so and why
            yield from named_faults(name, now["err"], database)
        elif now["digest"] != before["digest"]:
            yield Fault(LOST if now["size"] < before["size"] else WRONG, f"{name} differs, exit code 0")
    elif "There is no run" in now["err"] or "has no run yet" in now["err"]:
        yield Fault(LOST, f"{name}: {now['err']}")
    else:
        yield from named_faults(name, now["err"], database)
        if now["err"].count("\n") > 3:
            yield Fault(UNCLEAR, f"{name} prints {now['err'].count(chr(10))} lines: {now['err'][:200]}")


@pytest.mark.slow
def test_databases_that_are_damaged_give_right_answers_or_errors_that_name_the_file(
    sweep: Sweep, stores: dict[str, Original]
) -> None:
    def case(name: str, which: str, file: str, damage: Damage) -> Case:
        def check(dice: random.Random, scratch: Path) -> Iterator[Fault]:
            store = stores[which].copy_to(scratch / "store")
            path = store / file
            path.write_bytes(damage(dice, path.read_bytes()))
            known = stores[which].known
            asked = ask(everything, str(store), known, [dice.choice(list(known))])
            yield from reading_faults("the store", asked)
            for question, before in stores[which].answers.items():
                now = (asked.result or {}).get(question)
                if now is not None:
                    yield from answer_faults(question, before, now, store / "store.sqlite")

        return Case(name, check)

    closed = (stores["closed"].folder / "store.sqlite").read_bytes()
    sweep.run([case(*damage) for damage in damages(closed)])
