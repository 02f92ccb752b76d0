"""The agent takes everything in, judges on evidence, and goes when there is nothing left."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope import procfs
from stepscope.agent.agent import Agent
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process.attend import catch_up
from stepscope.agent.process.election import AgentLock, agent_pid
from stepscope.agent.process.start import ensure_agent
from stepscope.agent.process.wake import wake
from stepscope.config.sections import Agent as AgentSettings
from stepscope.config.sections import Settings, to_dict
from stepscope.errors import StoreError
from stepscope.journal import layout
from stepscope.journal.folder import JournalName, list_journals
from stepscope.journal.reader import JournalReader, written_so_far
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import NAME, OPENING, writer_for


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


class HandClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rows_events_and_arrays_reach_the_store_and_the_files_go(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder)
    for step in range(3000):
        writer.append_row({"loss": step * 0.5}, step)
    writer.append_json(layout.EVENT, {"kind": "epoch", "step": 7, "number": 1})
    writer.append_array({"key": "w", "step": 7, "dtype": "<f8", "shape": [2]}, bytes(16))
    writer.close({"status": "finished", "reason": ""})
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    while ingest.tick():
        pass

    assert store.points(Selection(NAME.run_id, "loss")).steps.tolist() == list(range(3000))
    assert store.events(NAME.run_id)[0].fields == {"number": 1}
    assert store.arrays(NAME.run_id, "w")[0][1].tolist() == [0.0, 0.0]
    assert store.runs()[0].status == "finished"
    assert not list(list_journals(folder))
    assert not ingest.live


def test_silence_becomes_a_stall_by_the_clock_and_a_record_ends_it(folder: Path, store: SqliteStore) -> None:
    now = HandClock()
    writer = writer_for(folder)
    ingest = Ingest(folder, store, stall_after_s=60, now=now, is_alive=lambda _: None)
    seen = []
    for seconds, logs in [(0, True), (30, False), (61, False), (500_000, False), (1, True), (59, False)]:
        now.now += seconds
        if logs:
            writer.append_row({"loss": 1.0}, 0)
        ingest.tick()
        seen.append(store.runs()[0].status)
    assert seen == ["running", "running", "stalled", "stalled", "running", "running"]


def test_a_slow_loop_is_given_three_times_its_usual_pause(folder: Path, store: SqliteStore) -> None:
    now = HandClock()
    writer = writer_for(folder)
    ingest = Ingest(folder, store, stall_after_s=60, now=now, is_alive=lambda _: True)
    for step in range(20):
        now.now += 30
        writer.append_row({"loss": 1.0}, step)
        ingest.tick()
    now.now += 85
    ingest.tick()
    assert store.runs()[0].status == "running"
    now.now += 10
    ingest.tick()
    assert store.runs()[0].status == "stalled"


def test_a_pause_like_one_it_has_made_before_is_no_stall(folder: Path, store: SqliteStore) -> None:
    now = HandClock()
    writer = writer_for(folder)
    ingest = Ingest(folder, store, stall_after_s=10, now=now, is_alive=lambda _: True)
    for step in range(100):
        now.now += 300 if step == 50 else 1  # an evaluation in between
        writer.append_row({"loss": 1.0}, step)
        ingest.tick()
    now.now += 400
    ingest.tick()
    assert store.runs()[0].status == "running"
    now.now += 100
    ingest.tick()
    assert store.runs()[0].status == "stalled"


def test_a_journal_of_a_newer_version_is_left_alone_and_the_others_go_on(
    folder: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    newer = writer_for(folder, JournalName("a-run", "seg2", 0, 1))
    newer.append_row({"loss": 1.0}, 0)
    newer.close(None)
    ((_, path),) = list_journals(folder)
    data = bytearray(path.read_bytes())
    data[24:28] = (99).to_bytes(4, "little")
    data[56:60] = bytes(4)  # with the checksum it would be a damaged header, not a newer version
    path.write_bytes(data)
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    for _ in range(3):
        ingest.tick()

    assert len(store.points(Selection("a-run", "loss"))) == 1
    assert path.exists()
    assert caplog.text.count("has version 99") == 1


def test_a_record_that_cannot_be_understood_is_counted_and_named_and_the_rest_is_kept(
    folder: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned = writer_for(folder, JournalName("b-run", "seg2", 0, 1))
    poisoned.append_json(layout.EVENT, {"no_kind": "at all"})
    poisoned.append_row({"loss": 1.0}, 0)
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    for _ in range(3):
        ingest.tick()

    assert len(store.points(Selection("a-run", "loss"))) == 1
    assert len(store.points(Selection("b-run", "loss"))) == 1
    (process,) = store.processes("b-run")
    assert process.lost == 1
    (named,) = store.events("b-run", "record_refused")
    assert named.fields == {"reason": "an event has no kind"}
    assert caplog.text.count("an event has no kind") == 1


def test_what_is_written_while_a_file_is_read_is_never_kept_after_what_came_later(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_for(folder, segment_bytes=65536)
    read, steps = JournalReader.read, iter(range(100_000))

    def log(rows: int) -> None:
        for step in itertools.islice(steps, rows):
            writer.append_row({"loss": 1.0}, step)
            writer.prepare()  # the next file is there before this one is full

    def read_and_go_on(reader: JournalReader, **options: bool) -> object:
        outcome = read(reader, **options)
        log(700)  # a file holds about 1,600 of them
        return outcome

    log(1000)
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    monkeypatch.setattr(JournalReader, "read", read_and_go_on)
    for _ in range(12):
        ingest.tick()
    monkeypatch.undo()
    writer.close({"status": "finished", "reason": ""})
    while ingest.tick() or ingest.live:
        pass
    kept = store.points(Selection(NAME.run_id, "loss")).steps.tolist()
    assert len(kept) > 8000
    assert kept == list(range(len(kept)))


def test_an_opening_lost_to_damage_costs_the_name_not_the_data(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 0)
    writer.append_row({"loss": 2.0}, 1)
    ((_, path),) = list_journals(folder)
    with path.open("r+b") as file:
        file.seek(layout.HEADER_BYTES + 20)
        file.write(b"\xff" * 8)
    ingest = Ingest(folder, store, is_alive=lambda _: False)
    ingest.tick()
    ingest.tick()

    run = store.runs()[0]
    assert (run.id, run.name, run.status) == ("a-run", "a-run", "crashed")
    assert run.segments[0].processes[0].lost == 1
    assert store.points(Selection("a-run", "loss")).values.tolist() == [1.0, 2.0]


def test_an_agent_lingers_and_then_goes(folder: Path, store: SqliteStore) -> None:
    now = HandClock()
    agent = Agent(folder, store, Settings(agent=AgentSettings(linger_s=3.0)), now)
    agent.tick()
    now.now += 2.9
    agent.tick()
    assert not agent.idle
    now.now += 0.2
    agent.tick()
    assert agent.idle
    agent.close()


def test_an_agent_that_was_stopped_for_a_while_looks_before_it_goes(folder: Path, store: SqliteStore) -> None:
    writer = writer_for(folder, JournalName("a-run", "seg", 0, os.getpid()))
    now = HandClock()
    agent = Agent(folder, store, Settings(agent=AgentSettings(linger_s=3.0)), now)
    agent.tick()
    now.now += 1000.0
    assert not agent.idle
    agent.tick()
    assert not agent.idle
    agent.close()
    writer.close(None)


def test_a_process_is_watched_once_the_store_knows_it(folder: Path, store: SqliteStore) -> None:
    name = JournalName("a-run", "seg", 0, os.getpid())
    path = name.path(folder / "journal")
    path.parent.mkdir(parents=True)
    path.touch()
    ingest = Ingest(folder, store)
    ingest.tick()
    assert ingest.processes_here() == []
    path.unlink()
    writer_for(folder, name).append_row({"loss": 1.0}, 0)
    ingest.tick()
    assert [process.pid for process in ingest.processes_here()] == [os.getpid()]


def test_readings_that_cannot_be_stored_at_the_end_are_reported_and_everything_is_closed(
    folder: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_for(folder, JournalName("a-run", "seg", 0, os.getpid()))
    agent = Agent(folder, store, Settings())
    agent.tick()

    def refuse() -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "transaction", refuse)
    agent.close()
    assert "The last machine readings are lost: the disk is full" in caplog.text
    writer.close(None)


def test_an_agent_applies_retention_when_it_begins(folder: Path, store: SqliteStore) -> None:
    for number in range(3):
        opening = {**OPENING, "facts": {"retention": {"max_runs": 1}}}
        name = JournalName(f"run{number}", f"s{number}", 0, number)
        writer = writer_for(folder, name, opening=opening)
        writer.close({"status": "finished", "reason": ""})
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    ingest.tick()
    assert len(store.runs()) == 3
    agent = Agent(folder, store, Settings())
    agent.tick()
    agent.close()
    assert len(store.runs()) == 1


@pytest.mark.slow
def test_an_agent_started_by_hand_ends_when_idle_and_frees_the_store(folder: Path) -> None:
    writer_for(folder).close({"status": "finished", "reason": ""})
    settings = Settings(agent=AgentSettings(linger_s=0))
    result = subprocess.run(
        [sys.executable, "-c", "from stepscope.agent.process.attend import main; main()"],
        input=json.dumps({"folder": str(folder), "settings": to_dict(settings)}),
        text=True,
        timeout=120,
        check=True,
    )
    assert result.returncode == 0
    assert agent_pid(folder) is None
    assert not list(list_journals(folder))
    AgentLock(folder).release()


def test_an_agent_is_started_while_a_reader_takes_in_the_journals_and_follows_it(folder: Path, until) -> None:
    writer_for(folder).close({"status": "finished", "reason": ""})
    with AgentLock(folder, as_agent=False):
        ensure_agent(folder, Settings(agent=AgentSettings(linger_s=0)))
    until(lambda: not list(list_journals(folder)))
    until(lambda: agent_pid(folder) is None)
    reader = SqliteStore(folder / "store.sqlite")
    assert [run.status for run in reader.runs()] == ["finished"]
    reader.close()


def test_waking_nobody_is_no_error(folder: Path) -> None:
    wake(folder)
    folder.mkdir()
    (folder / "agent.wake").write_text("not a pipe")
    wake(folder)
    assert (folder / "agent.wake").exists()


def test_catching_up_in_a_folder_that_may_not_be_written_changes_nothing(folder: Path) -> None:
    SqliteStore(folder / "store.sqlite").close()
    writer_for(folder).append_row({"loss": 1.0}, 0)
    shutil.rmtree(folder / "journal" / "none", ignore_errors=True)
    (folder / "agent.lock").mkdir()  # a lock that cannot be opened, even by root
    catch_up(folder)
    assert list(list_journals(folder))


def test_a_process_elsewhere_is_never_called_dead(folder: Path, store: SqliteStore) -> None:
    mark = procfs.mark(os.getpid())
    stranger = dataclasses.replace(mark, namespace="pid:[1]", pid=2**22 + 1)
    assert procfs.is_alive(stranger) is None


def test_a_reader_never_waits_for_what_holds_no_record(folder: Path, store: SqliteStore) -> None:
    """Names and padding after the last row, and a file made ahead of need, are waited for by nobody."""
    writer = writer_for(folder)
    ingest = Ingest(folder, store, is_alive=lambda _: True)
    ((_, path),) = list_journals(folder)
    ingest.tick()
    row_only = written_so_far(path).end
    writer.append_row({"loss": 1.0}, 0)
    ingest.tick()
    names_too = written_so_far(path)
    assert names_too.end > row_only
    assert store.progress(names_too.file_id)[0] == names_too.end


def test_alerts_that_fail_keep_no_record_from_the_store(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    for part in ("follow", "take", "hear", "settle", "tick", "take_findings"):
        monkeypatch.setattr(f"stepscope.alerts.engine.Engine.{part}", broken)
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 1)
    writer.append_json(layout.EVENT, {"kind": "epoch", "step": 1})
    writer.close({"status": "finished", "reason": ""})
    agent = Agent(folder, store, Settings())
    for _ in range(3):
        agent.tick()
    agent.close()

    assert store.points(Selection(NAME.run_id, "loss")).values.tolist() == [1.0]
    assert store.runs()[0].status == "finished"
    assert not list(list_journals(folder))
    tasks = [record.getMessage().split(" failed")[0] for record in caplog.records]
    assert sorted(tasks) == [
        "Alerting on events",
        "Alerting on findings",
        "Alerting on processes",
        "Alerting on rows",
        "Evaluating alert rules",
    ]


def test_a_lock_whose_descriptor_is_somebody_elses_file_by_now_empties_and_closes_nothing(
    folder: Path, tmp_path: Path
) -> None:
    lock = AgentLock(folder)
    (number,) = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}") == str(folder / "agent.lock")
    ]
    (tmp_path / "notes.txt").write_text("notes")
    with (tmp_path / "notes.txt").open("r+b") as notes:
        os.dup2(notes.fileno(), number)
    assert not lock.is_in_place()
    lock.release()
    assert os.read(number, 9) == b"notes"
    os.close(number)
