"""A journal written with write(), as on network file systems, keeps the promises of a mapped one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.agent.ingest.ingest import Ingest
from stepscope.journal.folder import list_journals
from stepscope.journal.reader import JournalReader
from stepscope.schema.series import Selection
from stepscope.store.sqlite import SqliteStore
from tests.journal.writing import NAME, lost_in, read_all, steps_of, writer_for


def test_stopping_waits_no_longer_than_the_agent_needs(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with stepscope.TrainingMonitor(
        {"recorder": {"mapping": "never"}}, run="net", directory=folder
    ) as monitor:
        for step in range(100):
            monitor.log({"loss": 1.0}, step=step)
        began = time.monotonic()
    assert time.monotonic() - began < 12  # it was 15 s and a warning, whatever the machine
    assert capfd.readouterr().err == ""
    assert not list(list_journals(folder))
    run = stepscope.open_store(folder).run("net")
    assert (run.status, len(run.series("loss"))) == ("finished", 100)


def test_closing_a_file_marks_it_as_closed(folder: Path) -> None:
    writer = writer_for(folder, mapping="never")
    for step in range(10):
        writer.append_row({"loss": 1.0}, step)
    ((_, path),) = list_journals(folder)
    reader = JournalReader(path)
    assert not reader.closed_by_writer()
    writer.close({"status": "finished", "reason": ""})
    assert reader.closed_by_writer()
    assert reader.read(final=True).lost == 0
    reader.close()

    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 200)
    assert lost_in(read_all(folder)) > 0, "what is missing at the end is counted"


def test_a_row_overtaken_at_the_end_of_a_file_is_not_counted_as_lost(folder: Path) -> None:
    writer = writer_for(folder, mapping="never")
    while (segment := writer._segment)._used < segment.size - 100:
        writer.append_row({"loss": 1.0}, 0)
    overtaken = segment.next_sequence()
    while segment is writer._segment:
        writer.append_row({"loss": 1.0}, 1)
    writer._void(segment, overtaken)
    writer.append_row({"loss": 1.0}, 2)
    writer.close(None)
    assert lost_in(read_all(folder)) == 0


def test_threads_lose_no_row_when_a_file_is_sealed_under_them(folder: Path) -> None:
    store = SqliteStore(folder / "store.sqlite")
    writer = writer_for(folder, mapping="never", clock=time.monotonic_ns)
    ingest = Ingest(folder, store, is_alive=lambda _: True)

    def log(thread: int) -> None:
        for step in range(3000):
            writer.append_row({"loss": 1.0, "a" * (thread + 1): 2.0}, thread * 10_000 + step)

    threads = [threading.Thread(target=log, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ingest.tick()
    writer.close({"status": "finished", "reason": ""})
    while ingest.tick() or ingest.live:
        pass
    steps = store.points(Selection(NAME.run_id, "loss")).steps.tolist()
    assert sorted(steps) == sorted(thread * 10_000 + step for thread in range(4) for step in range(3000))
    assert store.processes(NAME.run_id)[0].lost == 0
    ingest.close()
    store.close()


@pytest.mark.parametrize("mapping", ["always", "never"])
def test_rows_whose_names_come_later_outlive_a_change_of_the_reader(
    mapping: str, folder: Path, tamper: Callable[[Path, int], None]
) -> None:
    writer = writer_for(folder, mapping=mapping)
    writer.append_row({"loss": 1.0}, 5)
    writer.append_row({"loss": 1.0}, 6)
    ((_, path),) = list_journals(folder)
    first = path.read_bytes().index(b'["loss"]')
    tamper(path, first)

    end = path.read_bytes().rindex(b'["loss"]') - 8
    reader = JournalReader(path, end)  # an earlier one had come so far, and had no names for the rows
    batch = reader.read(final=True)
    assert steps_of([batch]) == [5, 6]
    assert batch.lost == 0
    reader.close()


@pytest.fixture
def tamper() -> Callable[[Path, int], None]:
    """Changes one byte of a file."""

    def change(path: Path, at: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\x00")

    return change
