"""A journal gives back what was appended, whatever the shape of it."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from stepscope.errors import JournalError, TooManyKeys
from stepscope.journal import layout
from stepscope.journal.folder import bytes_on_disk, files_of, list_journals, parse
from stepscope.journal.reader import JournalReader
from tests.journal.writing import NAME, Clock, lost_in, read_all, steps_of, writer_for


def test_rows_come_back_bit_for_bit_with_their_steps_and_times(folder: Path) -> None:
    quiet_nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_BEEF))[0]
    awkward = [0.1, -0.0, math.inf, -math.inf, quiet_nan, 5e-324, 1e308]
    writer = writer_for(folder, clock=Clock(5000))
    for step, value in enumerate(awkward):
        writer.append_row({"loss": value, "other": step}, step * 3)
    writer.close({"status": "finished", "reason": ""})

    (rows,) = (rows for batch in read_all(folder) for rows in batch.rows)

    assert rows.keys == ("loss", "other")
    assert rows.values[:, 0].tobytes() == np.array(awkward).tobytes()
    assert rows.steps.tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert (np.diff(rows.times) > 0).all()
    assert abs(int(rows.times[0]) - 1_700_000_000_000_000_000) < 1_000_000


def test_a_full_file_is_followed_by_the_next_and_nothing_is_lost_in_between(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(5000):
        writer.append_row({"a": step, "b": 0.5}, step)
    writer.close({"status": "finished", "reason": ""})

    batches = read_all(folder)

    assert len(list(list_journals(folder))) > 3
    assert steps_of(batches) == list(range(5000))
    assert lost_in(batches) == 0


@pytest.mark.parametrize("mapping", ["always", "never"])
def test_many_rows_at_once_come_back_as_rows_one_by_one_do(folder: Path, mapping: str) -> None:
    writer = writer_for(folder, mapping=mapping)
    for first in range(0, 6000, 60):
        rows = [(first + at, first + at, float(first + at), 0.5) for at in range(60)]
        writer.append_rows(("a", "b"), b"".join(struct.pack("<qqdd", *row) for row in rows))
    writer.close({"status": "finished", "reason": ""})

    batches = read_all(folder)

    assert len(list(list_journals(folder))) > 3
    assert steps_of(batches) == list(range(6000))
    assert np.concatenate([rows.values[:, 0] for batch in batches for rows in batch.rows]).tolist() == list(
        range(6000)
    )
    assert lost_in(batches) == 0


def test_many_rows_at_once_from_several_threads_are_all_kept(folder: Path) -> None:
    writer = writer_for(folder)

    def write(first: int) -> None:
        for at in range(first, first + 3000, 30):
            rows = b"".join(struct.pack("<qqd", 0, at + place, 1.0) for place in range(30))
            writer.append_rows(("a",), rows)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 3000, 6000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close({"status": "finished", "reason": ""})
    batches = read_all(folder)
    assert sorted(steps_of(batches)) == list(range(9000))
    assert lost_in(batches) == 0


def test_a_live_journal_is_followed_without_waiting_for_its_end(folder: Path) -> None:
    writer = writer_for(folder)
    ((_, path),) = list_journals(folder)
    reader = JournalReader(path)
    steps: list[int] = []
    for step in range(100):
        writer.append_row({"loss": 1.0}, step)
        if step % 7 == 0:
            steps += steps_of([reader.read()])
            assert steps == list(range(step + 1))


def test_a_reader_continues_from_an_offset_and_still_knows_the_names(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(10):
        writer.append_row({"loss": 1.0}, step)
    ((_, path),) = list_journals(folder)
    offset = JournalReader(path).read().offset
    for step in range(10, 15):
        writer.append_row({"loss": 1.0}, step)

    batch = JournalReader(path, offset).read()

    assert steps_of([batch]) == [10, 11, 12, 13, 14]
    assert batch.rows[0].keys == ("loss",)
    assert batch.lost == 0


def test_interleaved_key_sets_keep_their_own_order(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(300):
        writer.append_row({"loss": step}, step)
        writer.append_row({"phase/data_seconds": -step, "x": 1}, step)
        if step % 50 == 0:
            writer.append_row({"rare": step}, step)
    writer.close(None)

    steps_by_keys: dict[tuple[str, ...], list[int]] = {}
    for batch in read_all(folder):
        for rows in batch.rows:
            steps_by_keys.setdefault(rows.keys, []).extend(rows.steps.tolist())

    assert steps_by_keys == {
        ("loss",): list(range(300)),
        ("phase/data_seconds", "x"): list(range(300)),
        ("rare",): [0, 50, 100, 150, 200, 250],
    }


def test_threads_and_signal_handlers_may_log_at_any_moment(folder: Path) -> None:
    writer = writer_for(folder)
    alarms = itertools.count()
    is_over = False

    def on_alarm(*_: object) -> None:
        writer.append_row({"from_signal": 1.0}, next(alarms))
        if not is_over:
            # One after another: on a slow machine, alarms that interrupt each other would never end.
            signal.setitimer(signal.ITIMER_REAL, 0.001)

    def log_many(name: str) -> None:
        for step in range(4000):
            writer.append_row({name: step, "common": 1.0}, step)

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    threads = [threading.Thread(target=log_many, args=(f"t{n}",)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        log_many("main")
        for thread in threads:
            thread.join()
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    writer.close(None)

    batches = read_all(folder)
    by_name: dict[str, list[int]] = {}
    for batch in batches:
        for rows in batch.rows:
            by_name.setdefault(rows.keys[0], []).extend(rows.steps.tolist())
    for name in ("t0", "t1", "t2", "t3", "main"):
        assert by_name[name] == list(range(4000))
    assert sorted(by_name["from_signal"]) == list(range(next(alarms)))
    assert lost_in(batches) == 0


def test_a_row_that_others_overtake_at_the_end_of_a_file_does_not_seem_lost(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_row({"slow": 0.0}, 0)
    segment = writer._segment
    count, step = segment.next_sequence, itertools.count()

    def overtaken() -> int:
        """Takes a number, and is held up until others have filled the file and gone on in the next."""
        number = count()
        segment.next_sequence = count
        while writer._segment is segment:
            writer.append_row({"quick": 1.0}, next(step))
        return number

    segment.next_sequence = overtaken
    writer.append_row({"slow": 1.0}, 1)
    writer.close(None)

    batches = read_all(folder)
    by_name: dict[str, list[int]] = {}
    for rows in itertools.chain.from_iterable(batch.rows for batch in batches):
        by_name.setdefault(rows.keys[0], []).extend(rows.steps.tolist())
    assert by_name == {"slow": [0, 1], "quick": list(range(next(step)))}
    assert lost_in(batches) == 0


def test_where_mapping_is_not_safe_write_takes_its_place_with_the_same_result(folder: Path) -> None:
    writer = writer_for(folder, mapping="never")
    for step in range(3000):
        writer.append_row({"loss": step * 0.1}, step)
    writer.append_json(layout.EVENT, {"kind": "note"})
    writer.close({"status": "finished", "reason": ""})

    batches = read_all(folder)

    assert steps_of(batches) == list(range(3000))
    assert lost_in(batches) == 0
    assert sum(path.stat().st_size for _, path in list_journals(folder)) < 3000 * 60


def test_events_and_arrays_come_back_with_their_fields(folder: Path) -> None:
    writer = writer_for(folder)
    writer.append_json(layout.EVENT, {"kind": "epoch", "step": 3, "text": "end of it \ud800 ☃"})
    raw = np.arange(12.0).tobytes()
    writer.append_array({"key": "weights", "step": 3, "dtype": "<f8", "shape": [3, 4]}, raw)
    writer.close(None)

    (batch,) = read_all(folder)

    assert batch.notes[1][1]["kind"] == "epoch"
    assert batch.notes[1][1]["fields"] == {"text": "end of it \\ud800 ☃"}
    ((fields, data),) = batch.arrays
    assert fields["key"] == "weights"
    assert data == raw


def test_every_file_begins_with_an_open_record(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(3000):
        writer.append_row({"loss": 1.0}, step)
    writer.close(None)

    for _, path in list_journals(folder):
        kinds = [kind for kind, _ in JournalReader(path).read(final=True).notes]
        assert kinds[0] == layout.OPEN


def test_a_file_created_in_advance_is_used_next_and_closed_if_unused(folder: Path) -> None:
    writer = writer_for(folder)
    step = 0
    while len(list(list_journals(folder))) == 1:
        writer.append_row({"loss": 1.0}, step)
        step += 1
        if step % 100 == 0:
            writer.prepare()
    made_ahead = list(list_journals(folder))[-1][1]
    writer.close(None)

    assert JournalReader(made_ahead).closed_by_writer()
    assert steps_of(read_all(folder)) == list(range(step))


def test_a_record_that_can_never_fit_is_refused_with_its_size(folder: Path) -> None:
    writer = writer_for(folder)

    with pytest.raises(JournalError, match=r"70\d\d\d bytes"):
        writer.append_json(layout.EVENT, {"kind": "x" * 70_000})
    with pytest.raises(JournalError, match="at most 524280 bytes"):
        writer.append_json(layout.EVENT, {"kind": "x" * 600_000})

    writer.append_row({"loss": 1.0}, 0)
    writer.close(None)
    assert steps_of(read_all(folder)) == [0]


def test_the_cap_on_unread_bytes_drops_the_newest_and_counts_them(folder: Path) -> None:
    clock, complaints = Clock(), []
    writer = writer_for(folder, clock=clock, unread_bytes=3 << 16, complaints=complaints)
    for step in range(20_000):
        writer.append_row({"loss": 1.0}, step)
    assert bytes_on_disk(folder, NAME) <= 4 << 16
    assert len(complaints) == 1
    assert "waiting for an agent" in complaints[0]

    for _, path in list(list_journals(folder))[:-1]:
        path.unlink()
    clock.now_ns += 2_000_000_000
    writer.append_row({"loss": 1.0}, 20_000)
    writer.close({"status": "finished", "reason": ""})

    (gap,) = (
        fields for batch in read_all(folder) for _, fields in batch.notes if fields.get("kind") == "gap"
    )
    assert gap["fields"]["dropped"] == writer.dropped > 0
    assert steps_of(read_all(folder))[-1] == 20_000
    assert lost_in(read_all(folder)) == 0


def test_the_file_the_agent_cannot_sync_is_left_for_a_new_one(folder: Path) -> None:
    complaints: list[str] = []
    writer = writer_for(folder, complaints=complaints)
    writer.append_row({"loss": 1.0}, 0)
    ((_, path),) = list_journals(folder)
    JournalReader(path).request_retirement()
    writer.recover()
    writer.append_row({"loss": 1.0}, 1)
    writer.close(None)

    assert len(list(list_journals(folder))) == 2
    assert steps_of(read_all(folder)) == [0, 1]
    assert "could not be synced" in complaints[0]


def test_keys_beyond_the_limit_are_refused_and_the_known_ones_still_taken(folder: Path) -> None:
    writer = writer_for(folder, max_keys=3)
    writer.append_row({"a": 1.0, "b": 2.0}, 0)
    with pytest.raises(TooManyKeys, match="3 different keys"):
        writer.append_row({"c": 1.0, "d": 2.0}, 1)
    writer.append_row({"b": 1.0, "a": 2.0}, 2)
    writer.close(None)

    assert steps_of(read_all(folder)) == [0, 2]


@pytest.mark.slow
def test_many_key_sets_do_not_fill_memory(folder: Path) -> None:
    writer = writer_for(folder, segment_bytes=8 << 20)
    for step in range(30_000):
        writer.append_row({f"k{step % 300}": 1.0, f"l{step // 300}": 1.0}, step)
    assert len(writer._segment.sets) <= 20_000
    writer.close(None)
    assert sorted(steps_of(read_all(folder))) == list(range(30_000))


def test_a_name_that_is_not_a_journals_is_passed_over() -> None:
    assert parse(Path("run/seg-r0-1.words")) is None
    assert parse(Path("run/../x")) is None
    assert parse(NAME.path(Path("j"))) == NAME


def test_a_leftover_file_of_a_process_with_the_same_number_is_not_touched(folder: Path) -> None:
    first = writer_for(folder)
    first.append_row({"loss": 1.0}, 1)
    second = writer_for(folder)
    second.append_row({"loss": 1.0}, 2)
    first.close(None)
    second.close(None)

    assert steps_of(read_all(folder)) == [1, 2]
    assert os.listdir(folder / "journal" / NAME.run_id).__len__() == 2


def test_a_folder_that_the_agent_has_just_removed_holds_no_files(folder: Path) -> None:
    assert files_of(folder, NAME) == []
    assert list(list_journals(folder)) == []


def taken_over(folder: Path, users: Path) -> list[int]:
    """Closes every descriptor of a file in a folder, and gives its number to a file of somebody else's."""
    taken = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            target = str(Path(f"/proc/self/fd/{number}").readlink())
        except OSError:  # that of the listing itself
            continue
        if target.startswith(f"{folder}/"):
            own = os.open(users / f"{number}.txt", os.O_RDWR | os.O_CREAT)
            os.dup2(own, number)
            os.close(own)
            taken.append(number)
    return taken


@pytest.mark.parametrize("mapping", ["always", "never"])
def test_a_file_that_got_the_number_of_a_closed_journal_is_neither_written_nor_closed(
    mapping: str, folder: Path, tmp_path: Path
) -> None:
    writer = writer_for(folder, mapping=mapping)
    while len(list(list_journals(folder))) < 3:
        writer.append_row({"loss": 1.0}, 0)
    taken = taken_over(folder, tmp_path)
    assert len(taken) >= 3
    assert writer.whereabouts() == "in place"
    for step in range(1, 3000):
        writer.append_row({"loss": 1.0}, step)
    writer.close({"status": "finished", "reason": ""})
    del writer
    for number in taken:
        os.write(number, b"mine")
        os.close(number)
        assert (tmp_path / f"{number}.txt").read_bytes() == b"mine"
    assert sorted(set(steps_of(read_all(folder)))) == list(range(3000))


def test_a_journal_whose_descriptor_was_closed_is_still_carried_into_a_new_folder(
    folder: Path, tmp_path: Path
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 1.0}, 7)
    taken = taken_over(folder, tmp_path)
    shutil.rmtree(folder)
    assert writer.whereabouts() == "deleted"
    assert writer.carry_over() == 2
    writer.close(None)
    assert steps_of(read_all(folder)) == [7]
    for number in taken:
        os.close(number)
