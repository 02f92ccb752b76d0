"""With many live runs the agent does work for what has changed, and shares what it costs among them."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope import procfs
from stepscope.agent import agent as agent_module
from stepscope.agent.agent import Agent
from stepscope.agent.cpu_share import CpuShare
from stepscope.agent.ingest.feeds import Feeds
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.live_diagnosis import LiveDiagnosis
from stepscope.agent.machine_monitor import MachineMonitor
from stepscope.agent.sampling import Cost, SamplerReadings
from stepscope.analysis.diagnose import Diagnosis, Diagnostician
from stepscope.analysis.verdict import verdict_of
from stepscope.config.sections import Agent as AgentSettings
from stepscope.config.sections import Settings
from stepscope.exporters.base import Table
from stepscope.journal import reader
from stepscope.journal.folder import JournalName, journals_of
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.schema.run import Process
from stepscope.schema.sample import Sample, Watched
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

RUNS = 50


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def transactions(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with every transaction."""
    begun: list[None] = []
    transaction = store.transaction

    def counted():
        begun.append(None)
        return transaction()

    monkeypatch.setattr(store, "transaction", counted)
    return begun


class Calls:
    """What the interpreter was asked to open or list while `is_on`; an audit hook cannot be taken away."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event in ("open", "os.scandir", "os.listdir", "sqlite3.connect"):
            self.seen.append(f"{event} {arguments[0]}")


calls = Calls()


def writer_for(folder: Path, run: str) -> JournalWriter:
    name = JournalName(run, "0", 0, os.getpid())
    supply = SegmentSupply(folder, name, segment_bytes=1 << 16, unread_bytes=1 << 20, mapping="auto")
    marks = {"mark": {**vars(procfs.mark(os.getpid()))}}
    opening = {"run": run, "project": "p", "host": "h", "role": "rank", "started_ns": 1, "facts": marks}
    return JournalWriter(supply, opening)


def settle_folders(folder: Path) -> None:
    """Has the folders of journals look as if nothing had come for a minute."""
    before = time.time() - 60
    for path in [journals_of(folder), *journals_of(folder).iterdir()]:
        os.utime(path, (before, before))


def test_a_round_in_which_no_run_has_anything_new_opens_no_file_and_writes_nothing(
    folder: Path, store: SqliteStore, transactions: list[None]
) -> None:
    writers = [writer_for(folder, f"run{number}") for number in range(5)]
    ingest = Ingest(folder, store)
    for writer in writers:
        writer.append_row({"loss": 1.0}, 1)
    settle_folders(folder)
    while ingest.tick():
        pass
    ingest.tick()
    transactions.clear()
    calls.seen.clear()
    calls.is_on = True
    try:
        ingest.tick()
    finally:
        calls.is_on = False
    assert [call for call in calls.seen if not call.startswith("open /proc/")] == []
    assert transactions == []
    ingest.close()


def test_a_journal_is_found_in_the_next_round_whatever_the_folders_looked_like_before(
    folder: Path, store: SqliteStore
) -> None:
    first = writer_for(folder, "first")
    ingest = Ingest(folder, store)
    settle_folders(folder)
    for _ in range(3):
        ingest.tick()
    writer_for(folder, "second").append_row({"loss": 2.0}, 1)
    first.append_row({"loss": 1.0}, 1)
    ingest.tick()
    assert [run.name for run in store.runs()] == ["first", "second"]
    assert [store.keys(run.id)[0].points for run in store.runs()] == [1, 1]
    ingest.close()


def test_a_journal_is_synced_once_and_then_rarely_while_the_store_has_all_of_it(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    busy, idle = writer_for(folder, "busy"), writer_for(folder, "idle")
    ingest = Ingest(folder, store)
    idle.append_row({"loss": 1.0}, 1)
    busy.append_row({"loss": 1.0}, 0)
    ingest.tick()
    ingest.sync()
    assert len(synced) == 2
    for step in range(30):
        busy.append_row({"loss": 1.0}, step)
        ingest.tick()
        ingest.sync()
    assert len(synced) == 2 + 3
    ingest.close()


def test_a_journal_of_which_more_waits_than_is_read_at_once_is_synced_every_time(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(reader, "READ_BYTES", 1024)
    writer = writer_for(folder, "behind")
    ingest = Ingest(folder, store)
    for step in range(200):
        writer.append_row({"loss": 1.0}, step)
    for _ in range(5):
        assert ingest.tick()
        ingest.sync()
    assert len(synced) == 5
    ingest.close()


class ScriptedSampling:
    """Stands in for the samplers: at each look one figure of the host and one of each watched process."""

    names = ("machine",)

    def __init__(self) -> None:
        self.watched: tuple[Watched, ...] = ()
        self.looks = 0

    def usual_interval(self, *_: object) -> float:
        return 1.0

    def configure(self, _: object, watched: tuple[Watched, ...]) -> None:
        self.watched = watched

    def collect(self) -> list[SamplerReadings]:
        self.looks += 1
        own = [Sample({"resident_bytes": float(process.pid)}, owner=process) for process in self.watched]
        return [
            SamplerReadings("machine", self.looks * 10**9, [Sample({"temperature": float(self.looks)}), *own])
        ]

    def costs(self) -> dict[str, Cost]:
        return {}

    def close(self) -> None: ...


class Listening:
    """Notes the rows that are passed on."""

    def __init__(self, keys: set[str]) -> None:
        self._keys = keys
        self.tables: list[Table] = []

    def uses_any(self, keys: tuple[str, ...]) -> bool:
        return not self._keys.isdisjoint(keys)

    def on_rows(self, table: Table) -> None:
        self.tables.append(table)

    def on_process(self, process: Process) -> None: ...

    def on_event(self, *_: object) -> None: ...

    def on_round_end(self) -> None: ...


class Machine:
    """A watch over some runs, with a clock that is set by hand."""

    def __init__(self, store: SqliteStore, runs: int, keys: set[str] = frozenset()) -> None:
        self.now = 0.0
        self.listening = Listening(keys)
        self.processes = [
            Process(f"run{number}", f"run{number}", "p", "0", 0, "h", 100 + number, "rank", 1)
            for number in range(runs)
        ]
        with store.transaction():
            for process in self.processes:
                store.put_process(process)
        feeds = Feeds(listener=self.listening)
        self.monitor = MachineMonitor(store, ScriptedSampling(), feeds, lambda: self.now)
        self.monitor.update_processes(self.processes)

    def go_on(self, seconds: float, *, has_waiting_reader: bool = False) -> None:
        """Lets time pass, with a round every half second."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.monitor.flush(has_waiting_reader=has_waiting_reader)


def test_figures_of_the_machine_are_written_less_often_with_many_runs_and_none_is_left_out(
    store: SqliteStore, transactions: list[None]
) -> None:
    machine = Machine(store, RUNS)
    machine.go_on(0.5)
    transactions.clear()
    machine.go_on(60)
    assert 3 <= len(transactions) <= 5
    machine.monitor.close()
    for run in ("run0", f"run{RUNS - 1}"):
        points = {key.key: key.points for key in store.keys(run, "seconds")}
        assert points["temperature"] == points["resident_bytes"] >= 60


def test_figures_of_one_run_are_written_every_second(store: SqliteStore, transactions: list[None]) -> None:
    machine = Machine(store, 1)
    machine.go_on(0.5)
    transactions.clear()
    machine.go_on(30)
    assert len(transactions) == 30
    machine.monitor.close()


def test_whoever_waits_for_the_store_finds_the_figures_of_the_last_second_with_many_runs(
    store: SqliteStore,
) -> None:
    machine = Machine(store, RUNS)
    machine.go_on(4)
    machine.go_on(0.5, has_waiting_reader=True)
    (key,) = [info for info in store.keys("run7", "seconds") if info.key == "temperature"]
    assert key.points >= 4
    machine.monitor.close()


def test_alert_rules_get_figures_every_second_with_many_runs_and_only_those_they_look_at(
    store: SqliteStore,
) -> None:
    machine = Machine(store, RUNS, {"temperature"})
    machine.go_on(10)
    tables = [table for table in machine.listening.tables if table.source.run_id == "run3"]
    assert len(tables) == 10
    assert {table.keys for table in machine.listening.tables} == {("temperature",)}
    machine.monitor.close()


def test_a_run_that_begins_gets_no_figures_from_before(store: SqliteStore) -> None:
    machine = Machine(store, RUNS)
    later = machine.processes.pop()
    machine.monitor.update_processes(machine.processes)
    machine.go_on(4)
    machine.monitor.update_processes([*machine.processes, later])
    machine.go_on(2)
    machine.monitor.close()
    before, after = (store.keys(run, "seconds")[-1].points for run in ("run0", later.run_id))
    assert before - after >= 4


def test_looking_for_problems_in_many_runs_keeps_to_one_budget_and_comes_round_to_all(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, spent = 0.0, 0.0
    looks: list[str] = []

    def diagnose(_: object, __: object, run_id: str) -> Diagnosis:
        nonlocal spent
        spent += 0.01
        looks.append(run_id)
        return Diagnosis(verdict_of([], None), (), ())

    monkeypatch.setattr(Diagnostician, "diagnose", diagnose)
    diagnosis = LiveDiagnosis(store, lambda _: {}, lambda: now, clock=lambda: spent)
    runs = [Process(f"run{n}", "r", "p", "0", 0, "h", n, "rank", 1) for n in range(RUNS)]
    for process in runs:
        diagnosis.on_process(process)
    for _ in range(1200):
        now += 0.5
        for process in runs:
            diagnosis.on_rows(Table(Source(process.run_id, "0", 0, "h"), (), (), (), ()))
        before = len(looks)
        diagnosis.tick()
        assert len(looks) - before <= 1
    assert spent <= 0.002 * now + 0.05 + 0.01
    assert {looks.count(process.run_id) for process in runs} <= {2, 3, 4}


def pauses_of(
    folder: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, cpu_s: float, **settings: float
) -> list[float]:
    """How long an agent waits between rounds in which reading the journals takes so much processor time."""
    spent = 0.0
    pauses: list[float] = []
    tick = Ingest.tick

    def costly(self: Ingest) -> bool:
        nonlocal spent
        spent += cpu_s
        return tick(self)

    def select(_: object, __: object, ___: object, pause_s: float):
        pauses.append(pause_s)
        return [], [], []

    monkeypatch.setattr(Ingest, "tick", costly)
    monkeypatch.setattr(agent_module, "CpuShare", functools.partial(CpuShare, cpu_s=lambda: spent))
    monkeypatch.setattr(agent_module.select, "select", select)
    agent = Agent(folder, store, Settings(agent=AgentSettings(**settings)))
    try:
        agent.run(lambda: len(pauses) >= 40)
    finally:
        agent.close()
    return pauses


@pytest.mark.parametrize(
    ("cpu_s", "settings", "pause_s"),
    [
        (0.001, {}, 0.5),
        (0.015, {}, 0.75),
        (0.2, {}, 1.0),
        (0.2, {"sync_interval_s": 0.2}, 0.5),
        (0.2, {"interval_s": 5.0}, 5.0),
    ],
)
def test_expensive_rounds_come_less_often_but_no_later_than_the_next_sync(
    folder: Path,
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    cpu_s: float,
    settings: dict[str, float],
    pause_s: float,
) -> None:
    pauses = pauses_of(folder, store, monkeypatch, cpu_s, linger_s=3600, **settings)
    assert pauses[-1] == pytest.approx(pause_s, rel=0.02)
