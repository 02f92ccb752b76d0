"""Puts odd things into the journal folder and the store folder: nothing hangs, and no run is touched."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack.asking import ask, rows_of, run_command
from tests.attack.checking import (
    agent_faults,
    process_faults,
    reading_faults,
    stderr_lines,
    text_faults,
    untouched_faults,
    whole_run_faults,
)
from tests.attack.conftest import STORED, StoredRun
from tests.attack.outcomes import HANG, LOST, OTHER, UNCLEAR, Case, Fault, Sweep
from tests.attack.training import trainings

QUICK = {"agent": {"interval_s": 0.02, "linger_s": 0.2}}
ROWS = 300
JOURNAL = "abc123-r0-999999.0"
NOBODY = 65534
FILES = 3000
SOON_S = 25.0
"""A training of this size takes a second; it may wait 15 s for an agent, and no longer."""

Put = Callable[[Path], None]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def unix_socket(path: Path) -> None:
    # The address of a socket may have 107 bytes: it is made elsewhere and moved here.
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s")
        shutil.move(f"{short}/s", path)


def dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nothing") / "at" / "all")


def link_loop(path: Path) -> None:
    path.symlink_to(path.name)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_parent(path: Path) -> None:
    path.symlink_to("..")


def empty_file(path: Path) -> None:
    path.touch()


def one_byte(path: Path) -> None:
    path.write_bytes(b"S")


def sparse_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def text_file(path: Path) -> None:
    path.write_text("these are not the bytes of a journal\n" * 500)


def unreadable(path: Path) -> None:
    path.write_bytes(b"secret" * 100)
    path.chmod(0)


KINDS: dict[str, Put] = {
    "FIFO": fifo,
    "directory": directory,
    "socket": unix_socket,
    "dangling link": dangling_link,
    "link to itself": link_loop,
    "link to /dev/zero": link_to_zeros,
    "link to its folder": link_to_parent,
    "empty file": empty_file,
    "file of 1 byte": one_byte,
    "sparse file of 5 GB": sparse_file,
    "text file": text_file,
    "unreadable file": unreadable,
}


def with_journal_name(put: Put) -> Put:
    def put_into(store: Path) -> None:
        folder = store / "journal" / "odd-12345678"
        folder.mkdir(parents=True)
        put(folder / JOURNAL)

    return put_into


def into(folder: str, put: Put, name: str = "odd") -> Put:
    def put_into(store: Path) -> None:
        (store / folder).mkdir(parents=True, exist_ok=True)
        put(store / folder / name)

    return put_into


def odd_name(name: bytes) -> Put:
    def put_into(store: Path) -> None:
        folder = store / "journal" / os.fsdecode(name)
        folder.mkdir(parents=True)
        for file in (b"abc123-r0-999999.0", name + b".0", b"abc123-r0-999999.0\n"):
            (folder / os.fsdecode(file)).write_bytes(b"STEPJRNL" + bytes(100))

    return put_into


def many_files(store: Path) -> None:
    folder = store / "journal" / "many-12345678"
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"abc{number}-r0-{900_000 + number}.0").touch()


def long_name(store: Path) -> None:
    folder = store / "journal" / ("x" * 250)
    folder.mkdir(parents=True)
    (folder / ("a" * 200 + "-r0-1.0")).write_bytes(b"STEPJRNL" + bytes(100))


def huge_numbers(store: Path) -> None:
    folder = store / "journal" / "odd-12345678"
    folder.mkdir(parents=True)
    (folder / f"abc-r{'9' * 60}-{'9' * 60}.{'9' * 60}").write_bytes(b"STEPJRNL" + bytes(100))


OWN_NAMES = (
    "agent.log",
    "agent.wake",
    "agent.lock",
    "journal",
    ".gitignore",
    "store.sqlite-wal",
    "store.sqlite",
)


def entries() -> Iterator[tuple[str, Put]]:
    """Names of the cases, and what puts the entry into a store folder."""
    for kind, put in KINDS.items():
        yield f"{kind} with the name of a journal", with_journal_name(put)
        yield f"{kind} in the journal folder", into("journal", put)
        yield f"{kind} in the store folder", into(".", put)
    yield "name with a newline", odd_name(b"odd\nname")
    yield "name that is not UTF-8", odd_name(b"odd-\xff\xfe")
    yield "name with an escape sequence", odd_name(b"odd-\x1b[31m")
    yield f"{FILES} empty journals", many_files
    yield "name of 250 letters", long_name
    yield "name with numbers of 60 digits", huge_numbers


def own_entries() -> Iterator[tuple[str, Put]]:
    """Something odd in the place of a file of the store folder's own."""
    for name in OWN_NAMES:
        for kind in ("FIFO", "directory", "dangling link", "link to itself", "link to /dev/zero"):
            if kind == "directory" and name == "journal":
                continue
            yield f"{kind} in the place of {name}", into(".", KINDS[kind], name)


def list_runs(store: str) -> dict:
    """What the command line lists."""
    return run_command("runs", "--json", "--store", store)


def rows_as(user: int, store: str, run: str) -> dict:
    """Reads as another user, for whom modes of files matter."""
    os.setuid(user)
    return rows_of(store, run)


def check_entry(stored_run: StoredRun, put: Put, *, during: bool) -> Callable[..., Iterator[Fault]]:
    """Trains and reads in a store with something odd in it: all must be as if it were not there."""

    def check(_: random.Random, scratch: Path) -> Iterator[Fault]:
        store = stored_run.copy_to(scratch / "store")
        if not during:
            put(store)
        with trainings() as start:
            training = start(scratch, store, "trained", rows=ROWS, settings=QUICK, hold_at="logging")
            training.reach("logging", SOON_S)
            if during:
                put(store)
            exit_code = training.end(SOON_S)
        yield from process_faults(training, exit_code)
        yield from untouched_faults(store, STORED, stored_run.answer, SOON_S)
        yield from whole_run_faults(store, training, training.acknowledged, ("finished",), OTHER, SOON_S)
        asked = ask(list_runs, str(store), seconds=SOON_S)
        yield from reading_faults("stepscope runs", asked)
        if asked.result:
            yield from text_faults("stepscope runs", asked.result["err"])
            if asked.result["code"] != 0:
                yield Fault(OTHER, f"stepscope runs: {asked.result['err'][:200]}")
        yield from agent_faults(store)

    return check


def check_own_entry(stored_run: StoredRun, put: Put) -> Callable[..., Iterator[Fault]]:
    """Trains where the folder itself is spoilt: the rows are kept, or the training says that they are not."""

    def check(_: random.Random, scratch: Path) -> Iterator[Fault]:
        store = scratch / "store"
        put(store)
        if not os.path.lexists(store / "store.sqlite"):
            shutil.copy(stored_run.database, store)
        with trainings() as start:
            training = start(scratch, store, "trained", rows=ROWS, settings=QUICK)
            exit_code = training.end(SOON_S)
        yield from process_faults(training, exit_code)
        lines = stderr_lines(training.stderr)
        if len(lines) > 3:
            yield Fault(UNCLEAR, f"the training prints {len(lines)} lines: {training.stderr[:300]}")
        asked = ask(rows_of, str(store), "trained", seconds=SOON_S)
        yield from reading_faults("trained", asked)
        kept = len((asked.result or {}).get("steps", ()))
        if kept < training.acknowledged and not lines and exit_code == 0:
            said = (asked.result or {}).get("error", "nothing")
            yield Fault(
                LOST, f"{kept} of {training.acknowledged} rows are kept and nothing is said; read: {said}"
            )
        yield from agent_faults(store)

    return check


def check_foreign_file(stored_run: StoredRun) -> Callable[..., Iterator[Fault]]:
    """Reads as a user who may not read one of the journals."""

    def check(_: random.Random, scratch: Path) -> Iterator[Fault]:
        with tempfile.TemporaryDirectory() as open_to_all:
            Path(open_to_all).chmod(0o755)
            store = stored_run.copy_to(Path(open_to_all) / "store")
            with_journal_name(unreadable)(store)
            for path in (
                store,
                store / "store.sqlite",
                store / "journal",
                store / "journal" / "odd-12345678",
            ):
                os.chown(path, NOBODY, NOBODY)
            asked = ask(rows_as, NOBODY, str(store), STORED, seconds=SOON_S)
            yield from reading_faults(STORED, asked)
            if asked.hung:
                yield Fault(HANG, "reading as another user")
            if asked.result is not None and asked.result != stored_run.answer:
                yield Fault(OTHER, f"{STORED}: {asked.result.get('error')}")

    return check


@pytest.mark.slow
def test_entries_that_are_odd_hang_nothing_and_touch_no_run(sweep: Sweep, stored_run: StoredRun) -> None:
    cases = []
    for name, put in entries():
        cases.append(Case(f"{name}, before the start", check_entry(stored_run, put, during=False)))
    for name, put in list(entries())[::2]:
        cases.append(Case(f"{name}, during the run", check_entry(stored_run, put, during=True)))
    cases += [Case(name, check_own_entry(stored_run, put)) for name, put in own_entries()]
    if os.getuid() == 0:
        cases.append(Case("unreadable journal of another user", check_foreign_file(stored_run)))
    sweep.run(cases, workers=4)
