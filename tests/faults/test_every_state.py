"""Bad states are enumerated instead of waiting for them to happen by chance."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import stepscope
from stepscope.agent.ingest.ingest import Ingest
from stepscope.journal import layout
from stepscope.journal.folder import JournalName, list_journals
from stepscope.journal.writer import JournalWriter
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import OPENING, Clock, lost_in, read_all, steps_of, writer_for

pytestmark = pytest.mark.slow

STRACE = shutil.which("strace")


class StoreAndJournals(RuleBasedStateMachine):
    """Processes log, die, roll and lose disk space; agents come, go and fail. The model is a list."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = SqliteStore(self.folder / "store.sqlite")
        self.ingest = self.new_ingest()
        self.writers: dict[int, JournalWriter] = {}
        self.clocks: dict[int, Clock] = {}
        self.logged: dict[int, list[int]] = {}
        self.next_pid = 100
        for mapping in ("always", "never"):
            self.start_process(mapping)

    def new_ingest(self) -> Ingest:
        return Ingest(self.folder, self.store, is_alive=lambda mark: mark.pid in self.writers)

    @rule(mapping=st.sampled_from(["always", "never"]))
    def start_process(self, mapping: str) -> None:
        pid = self.next_pid
        self.next_pid += 1
        mark = {"pid": pid, "start_ticks": 1, "boot_id": "b", "namespace": "n"}
        name = JournalName("a-run", f"seg{pid}", 0, pid)
        opening = {**OPENING, "facts": {"mark": mark}, "started_ns": pid}
        self.clocks[pid] = Clock()
        self.writers[pid] = writer_for(
            self.folder,
            name,
            opening=opening,
            mapping=mapping,
            clock=self.clocks[pid],
        )
        self.logged[pid] = []

    @precondition(lambda self: self.writers)
    @rule(count=st.sampled_from([1, 1000]), ingested_meanwhile=st.booleans())
    def log(self, count: int, ingested_meanwhile: bool) -> None:
        for pid, writer in self.writers.items():
            for _ in range(count):
                step = len(self.logged[pid])
                row = {"loss": step * 0.5} if step % 3 else {"loss": step * 0.5, "x": 1}
                writer.append_row(row, step)
                self.logged[pid].append(step)
            writer.prepare()
        if ingested_meanwhile:
            self.ingest.tick()

    @rule()
    def keepers_look_after_their_journals(self) -> None:
        for writer in self.writers.values():
            writer.prepare()
            writer.recover()

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        del self.writers[data.draw(st.sampled_from(sorted(self.writers)))]

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        pid = data.draw(st.sampled_from(sorted(self.writers)))
        self.writers.pop(pid).close({"status": "finished", "reason": ""})

    @rule()
    def tick(self) -> None:
        self.ingest.tick()

    @rule()
    def agent_dies_between_reading_and_committing(self) -> None:
        class Dies(Exception):
            pass

        def die(*_: object) -> None:
            raise Dies

        ingest = self.new_ingest()
        ingest._store = _DyingStore(self.store, die)
        with contextlib.suppress(Dies):  # with nothing to tell there is no transaction to die in
            ingest.tick()
        ingest.close()

    @rule()
    def agent_restarts(self) -> None:
        self.ingest.close()
        self.store.close()
        self.store = SqliteStore(self.folder / "store.sqlite")
        self.ingest = self.new_ingest()

    @rule()
    def agent_cannot_sync(self) -> None:
        for _, path in list_journals(self.folder):
            with path.open("r+b") as file:
                file.seek(layout.RETIRE_AT)
                file.write(b"\1")

    @invariant()
    def store_holds_a_prefix_of_what_each_process_logged(self) -> None:
        if not hasattr(self, "store"):
            return
        for pid, logged in self.logged.items():
            kept = self.kept(pid)
            assert kept == logged[: len(kept)]

    def kept(self, pid: int) -> list[int]:
        return self.store.points(Selection("a-run", "loss", segment=f"seg{pid}")).steps.tolist()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.writers.clear()
        for _ in range(3):
            while self.ingest.tick():
                pass
        for pid, logged in self.logged.items():
            assert self.kept(pid) == logged
        assert not list(list_journals(self.folder))
        statuses = {process.status for process in self.store.processes("a-run")}
        assert statuses <= {"finished", "crashed"}
        self.ingest.close()
        self.store.close()
        shutil.rmtree(self.folder)


class _DyingStore:
    """A store whose writer is killed before a transaction is through."""

    def __init__(self, store: SqliteStore, die: object) -> None:
        self._store, self._die = store, die

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def transaction(self) -> object:
        @contextlib.contextmanager
        def dying() -> object:
            with self._store.transaction():
                yield
                self._die()

        return dying()


def assert_over_sequences(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        StoreAndJournals,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_sequence_of_events_loses_or_repeats_a_record() -> None:
    assert_over_sequences(examples=40, steps=30)  # its invariants assert


def test_five_hundred_long_sequences_lose_and_repeat_nothing() -> None:
    assert_over_sequences(examples=500, steps=50)  # its invariants assert


SESSION = """
import stepscope, sys
monitor = stepscope.TrainingMonitor(
    {"agent": {"mode": "thread", "interval_s": 0.01, "linger_s": 0}, "recorder": {"segment_bytes": 65536}},
    run="swept", directory=sys.argv[1],
)
monitor.start_monitoring()
for step in range(200):
    monitor.log({"loss": step * 0.5, "x": 1.0}, step=step)
    if step % 50 == 0:
        monitor.event("note", text="x" * 3000)
print(step, flush=True)
monitor.stop_monitoring()
print("stopped", flush=True)
"""
SYSCALLS = "write,pwrite64,fsync,fdatasync,rename,renameat2,unlink,unlinkat,ftruncate,fallocate"


def die_at(call: int, folder: Path) -> tuple[bool, str]:
    """Kills the session, whose agent is a thread of it, before the k-th durable call of a thread of it."""
    result = subprocess.run(
        f"{STRACE} -f -o {os.devnull} -e trace={SYSCALLS}".split()
        + f"-e inject={SYSCALLS}:signal=KILL:when={call}".split()
        + [sys.executable, "-c", SESSION, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode == 0, result.stdout


def check_after_death(stdout: str, folder: Path) -> None:
    if not (folder / "journal").exists() and not (folder / "store.sqlite").exists():
        assert stdout == ""
        return
    try:
        run = stepscope.open_store(folder).run("swept")
    except stepscope.StepscopeError:
        assert stdout == "", "steps were acknowledged, but there is no run"
        return
    steps = run.series("loss").steps.tolist() if any(info.key == "loss" for info in run.keys()) else []
    assert steps == list(range(len(steps)))
    if "199" in stdout:
        assert len(steps) == 200
    assert run.status == ("finished" if "stopped" in stdout else run.status)
    assert run.status in {"finished", "crashed"}


@pytest.mark.skipif(STRACE is None, reason="needs strace; .ci/run installs it")
def test_a_kill_at_sampled_system_calls_is_recovered_from(tmp_path: Path) -> None:
    dice = random.Random(3)
    for call in [1, 2, 3, *dice.sample(range(4, 120), 7)]:
        folder = tmp_path / str(call)
        folder.mkdir()
        survived, stdout = die_at(call, folder)
        assert not survived
        check_after_death(stdout, folder)


@pytest.mark.skipif(STRACE is None, reason="needs strace; .ci/run installs it")
def test_a_kill_at_every_system_call_is_recovered_from(tmp_path: Path) -> None:
    call, survived = 1, False
    while not survived and call < 2000:
        folder = tmp_path / str(call)
        folder.mkdir()
        survived, stdout = die_at(call, folder)
        check_after_death(stdout, folder)
        call += 1
    assert survived
    assert call > 120


PAGE = 4096


def assert_of_crash_states(count: int, folder: Path) -> None:
    """Power fails: of the pages written since the last sync any may be old, and the file may be older."""
    dice = random.Random(5)
    clock = Clock()
    writer = writer_for(folder, clock=clock, segment_bytes=1 << 17)
    synced: dict[Path, bytes] = {}
    synced_steps = -1
    for step in range(900):
        writer.append_row({"loss": step * 0.5, "x": 1.0}, step)
        if step == 500:
            synced = {path: path.read_bytes() for _, path in list_journals(folder)}
            synced_steps = step
    now = {path: path.read_bytes() for _, path in list_journals(folder)}
    for _ in range(count):
        survivors = Path(tempfile.mkdtemp())
        for path, data in now.items():
            old = synced.get(path, bytes(len(data)))
            pages = [
                (data if dice.random() < dice.choice([0.1, 0.5, 0.9]) else old)[at : at + PAGE]
                for at in range(0, len(data), PAGE)
            ]
            target = survivors / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"".join(pages))
        batches = read_all(survivors)
        steps = steps_of(batches)
        assert steps[: synced_steps + 1] == list(range(synced_steps + 1))
        assert len(set(steps)) == len(steps)
        for batch in batches:
            for rows in batch.rows:
                assert (rows.values[:, 0] == rows.steps * 0.5).all()
        assert lost_in(batches) <= 900 - len(steps)
        shutil.rmtree(survivors)


def test_after_a_power_cut_everything_synced_is_there_and_nothing_is_wrong(folder: Path) -> None:
    assert_of_crash_states(300, folder)  # asserts on each state


def test_ten_thousand_states_of_a_power_cut(folder: Path) -> None:
    assert_of_crash_states(10_000, folder)  # asserts on each state
