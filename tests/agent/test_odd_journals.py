"""A journal that cannot be read or stored is set aside, named and tried again; all others go on."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.start import ensure_agent
from stepscope.config.sections import Settings
from stepscope.journal.folder import JournalName, list_journals
from stepscope.journal.reader import JournalReader, written_so_far
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import NAME, writer_for

ODD = JournalName("odd-run", "seg9", 0, 77)
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


class HandClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_version_99(path: Path) -> None:
    path.write_bytes(b"STEPJRNL" + bytes(16) + (99).to_bytes(4, "little") + bytes(100))


def make_socket(path: Path) -> None:
    # The path of a socket is short; one in the working directory can be moved.
    made = socket.socket(socket.AF_UNIX)
    made.bind("s")
    made.close()
    Path("s").rename(path)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": make_socket,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a newer version": make_version_99,
}


def odd_file(folder: Path, kind: str) -> Path:
    path = ODD.path(folder / "journal")
    path.parent.mkdir(parents=True)
    ODD_FILES[kind](path)
    return path


def settled(ingest: Ingest) -> None:
    while ingest.tick():
        pass


@pytest.mark.parametrize("kind", ODD_FILES)
def test_what_is_no_journal_is_set_aside_and_keeps_no_other_run_from_the_store(
    kind: str, folder: Path, store: SqliteStore
) -> None:
    path = odd_file(folder, kind)
    writer = writer_for(folder)
    for step in range(100):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})

    ingest = Ingest(folder, store, is_alive=lambda _: None)
    settled(ingest)

    assert len(store.points(Selection(NAME.run_id, "loss"))) == 100
    assert [run.id for run in store.runs()] == [NAME.run_id]
    (noted,) = store.set_aside()
    assert noted.path == str(path.relative_to(folder))
    assert noted.reason
    assert noted.advice or "pip install" in noted.reason
    assert os.path.lexists(path)
    assert not ingest.live, "an agent must not stay for it"
    ingest.close()


@pytest.mark.parametrize("kind", ODD_FILES)
def test_what_is_no_journal_is_looked_at_without_waiting(kind: str, folder: Path) -> None:
    path = odd_file(folder, kind)
    assert written_so_far(path).file_id == 0
    catch_up(folder)
    assert stepscope.open_store(folder).set_aside()[0].path == str(path.relative_to(folder))


def test_a_journal_set_aside_is_tried_after_growing_pauses_of_at_most_a_minute(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_file(folder, "a newer version")
    now, tries = HandClock(), []
    begin = JournalReader.__init__
    monkeypatch.setattr(JournalReader, "__init__", lambda *given: (tries.append(now.now), begin(*given))[1])
    ingest = Ingest(folder, store, now=now)
    for _ in range(4 * 600):
        assert not ingest.tick(), "the agent must not be kept busy"
        now.now += 0.25
    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:]) == {60}
    assert len(pauses) > 10
    ingest.close()


def test_a_journal_that_can_be_read_again_is_taken_in_and_no_longer_named(
    folder: Path, store: SqliteStore
) -> None:
    now = HandClock()
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    ((_, path),) = list_journals(folder)
    hidden = path.with_name("hidden")
    path.rename(hidden)
    path.mkdir()
    ingest = Ingest(folder, store, now=now, is_alive=lambda _: True)
    settled(ingest)
    assert len(store.set_aside()) == 1

    path.rmdir()
    hidden.rename(path)
    now.now += 1.0
    settled(ingest)
    assert store.set_aside() == []
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 1
    ingest.close()


def test_what_one_agent_has_set_aside_the_next_one_names_with_the_same_time(folder: Path) -> None:
    odd_file(folder, "a named pipe")
    first = stepscope.open_store(folder).set_aside()
    assert stepscope.open_store(folder).set_aside() == first
    shutil.rmtree(folder / "journal")
    (folder / "journal").mkdir()
    writer_for(folder).close({"status": "finished", "reason": ""})
    assert stepscope.open_store(folder).set_aside() == []


def test_one_bad_file_of_a_process_costs_none_of_its_other_files(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder)
    for step in range(8000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})
    paths = [path for _, path in list_journals(folder)]
    assert len(paths) >= 4
    healthy = paths[1].read_bytes()
    data = bytearray(healthy)
    data[24:28] = (99).to_bytes(4, "little")
    data[56:60] = bytes(4)  # with the checksum it would be a damaged header, not a newer version
    paths[1].write_bytes(data)

    now = HandClock()
    ingest = Ingest(folder, store, now=now, is_alive=lambda _: False)
    settled(ingest)
    kept = set(store.points(Selection(NAME.run_id, "loss")).steps.tolist())
    assert [path for path in paths if path.exists()] == [paths[1]]
    assert store.runs()[0].status == "finished"

    paths[1].write_bytes(healthy)
    now.now += 1.0
    settled(ingest)
    steps = store.points(Selection(NAME.run_id, "loss")).steps.tolist()
    assert sorted(steps) == list(range(8000))
    assert 0 < len(kept) < 8000
    assert not paths[1].exists()
    assert store.processes(NAME.run_id)[0].lost == 0
    ingest.close()


def test_a_file_is_kept_until_the_store_has_committed_it(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_for(folder)
    for step in range(5000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})
    before = [path for _, path in list_journals(folder)]
    now = HandClock()
    ingest = Ingest(folder, store, now=now, is_alive=lambda _: False)
    with monkeypatch.context() as broken:
        broken.setattr(store, "put_process", lambda _: (_ for _ in ()).throw(ValueError("refused")))
        settled(ingest)
        assert [path for _, path in list_journals(folder)] == before
        assert store.runs() == []
    now.now += 1.0
    settled(ingest)
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 5000
    assert store.set_aside() == []
    ingest.close()


def test_a_journal_the_store_refuses_does_not_affect_the_others(folder: Path, store: SqliteStore) -> None:
    # A folder whose name is no text cannot be a run's id.
    odd = JournalName(os.fsdecode(b"run-\xff"), "seg9", 0, 77)
    for name in (odd, NAME):
        writer = writer_for(folder, name)
        writer.append_row({"loss": 1.0}, 0)
        writer.close({"status": "finished", "reason": ""})
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    settled(ingest)
    assert [run.id for run in store.runs()] == [NAME.run_id]
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 1
    assert len(store.set_aside()) == 1
    assert odd.path(folder / "journal").exists()
    ingest.close()


def test_a_file_deleted_under_the_agent_is_read_to_its_end(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    settled(ingest)
    for step in range(1, 50):
        writer.append_row({"loss": 1.0}, step)
    ((_, path),) = list_journals(folder)
    path.unlink()
    writer.recover()
    writer.append_row({"loss": 1.0}, 50)
    writer.close({"status": "finished", "reason": ""})
    settled(ingest)
    assert store.points(Selection(NAME.run_id, "loss")).steps.tolist() == list(range(51))
    ingest.close()


@pytest.mark.parametrize("left", [0, 40, 700])
def test_a_file_that_shrinks_while_it_is_read_stops_nobody(
    left: int, folder: Path, store: SqliteStore
) -> None:
    writer = writer_for(folder, ODD, mapping="never")
    for step in range(100):
        writer.append_row({"loss": 1.0}, step)
    dead: list[int] = []
    ingest = Ingest(folder, store, is_alive=lambda mark: mark.pid not in dead)
    other = writer_for(folder)
    other.append_row({"loss": 1.0}, 0)
    ingest.tick()
    os.truncate(ODD.path(folder / "journal"), left)
    dead.append(ODD.pid)
    other.append_row({"loss": 1.0}, 1)
    settled(ingest)
    assert len(store.points(Selection(NAME.run_id, "loss"))) == 2
    assert len(store.points(Selection(ODD.run_id, "loss"))) == 100
    ingest.close()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A store folder that every user may write to."""
    place = Path(tempfile.mkdtemp(prefix="stepscope-shared-"))
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


def as_nobody(act: Callable[[], object]) -> object:
    """What a function gives when another user calls it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return json.loads(said)


def test_a_file_of_random_bytes_does_not_keep_the_agent_alive(folder: Path, store: SqliteStore) -> None:
    path = folder / "journal" / "odd" / f"6afb-r0-{os.getpid()}.0"
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(5000))
    clock = HandClock()
    ingest = Ingest(folder, store, now=clock)
    ingest.tick()
    assert ingest.live
    clock.now += 60
    ingest.tick()
    assert not ingest.live
    assert path.exists()
    ingest.close()


@needs_root
@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_journal_of_another_user_that_cannot_be_read_stops_nobody(what: str, shared: Path) -> None:
    writer_for(shared, ODD).append_row({"loss": 1.0}, 0)
    path = ODD.path(shared / "journal")
    (path.parent if what == "folder" else path).chmod(0o700 if what == "folder" else 0o600)
    (shared / "journal").chmod(0o777)

    def record_and_read() -> dict[str, object]:
        writer = writer_for(shared)
        writer.append_row({"loss": 1.0}, 0)
        writer.close({"status": "finished", "reason": ""})
        opened = stepscope.open_store(shared)
        outcome = {
            "runs": [run.id for run in opened.runs()],
            "set aside": [(journal.path, journal.reason, journal.advice) for journal in opened.set_aside()],
        }
        opened.close()
        return outcome

    outcome = as_nobody(record_and_read)
    assert outcome["runs"] == [NAME.run_id]
    ((place, reason, advice),) = outcome["set aside"]
    assert place == str((path.parent if what == "folder" else path).relative_to(shared))
    assert "no permission" in reason
    assert "uid 0" in reason
    assert "chmod" in advice
    assert path.exists()


@needs_root
def test_a_journal_that_is_stored_and_cannot_be_deleted_is_stored_once(shared: Path) -> None:
    writer = writer_for(shared, ODD)
    writer.append_row({"loss": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    (shared / "journal").chmod(0o777)
    for folder in (shared / "journal").iterdir():
        folder.chmod(0o755)

    def read_three_times() -> list[list[int]]:
        readings = []
        for _ in range(3):
            opened = stepscope.open_store(shared)
            points = len(opened.run("a run").series("loss"))
            readings.append([points, len(opened.set_aside())])
            opened.close()
        return readings

    assert as_nobody(read_three_times) == [[1, 1]] * 3
    assert ODD.path(shared / "journal").exists()


def test_a_real_agent_goes_on_beside_every_odd_file_at_once(folder: Path, until) -> None:
    for number, (kind, make) in enumerate(ODD_FILES.items()):
        path = JournalName(f"odd-{number}", "seg9", 0, 77).path(folder / "journal")
        path.parent.mkdir(parents=True)
        make(path)
        assert kind
    ensure_agent(folder, Settings())
    with stepscope.TrainingMonitor(run="fine", directory=folder) as monitor:
        for step in range(50):
            monitor.log({"loss": 1.0}, step=step)
    opened = stepscope.open_store(folder)
    run = opened.run("fine")
    assert (run.status, len(run.series("loss"))) == ("finished", 50)
    until(lambda: len(stepscope.open_store(folder).set_aside()) == len(ODD_FILES))
    assert "Traceback" not in (folder / "agent.log").read_text()


@pytest.mark.parametrize("removed", [0, 1])
def test_a_file_that_was_deleted_before_it_was_stored_counts_as_lost(
    folder: Path, store: SqliteStore, removed: int
) -> None:
    writer = writer_for(folder)
    for step in range(8000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})
    [path for _, path in list_journals(folder)][removed].unlink()
    ingest = Ingest(folder, store, is_alive=lambda _: False)
    settled(ingest)
    ((process,),) = [run.processes for run in store.runs()[0].segments]
    assert process.lost >= 1
    assert len(store.points(Selection(NAME.run_id, "loss"))) < 8000
    ingest.close()


def test_a_copy_of_a_file_is_stored_once(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder)
    for step in range(2000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})
    ((_, first), *_) = list_journals(folder)
    shutil.copyfile(first, first.with_name(first.name.rpartition(".")[0] + ".77"))
    ingest = Ingest(folder, store, is_alive=lambda _: False)
    settled(ingest)
    assert store.points(Selection(NAME.run_id, "loss")).steps.tolist() == list(range(2000))
    assert ["is a copy of" in journal.reason for journal in store.set_aside()] == [True]
    ingest.close()
