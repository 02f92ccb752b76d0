"""Damaged bytes cost only the records they hit, and the loss is counted."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.journal import layout
from stepscope.journal.folder import list_journals
from stepscope.journal.reader import JournalReader
from tests.journal.writing import lost_in, read_all, steps_of, writer_for

ROWS = 400
RECORDS = ROWS + 2  # an opening and an end


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A journal in one file, with two key sets, every second row of each."""
    folder = tmp_path_factory.mktemp("journal")
    writer = writer_for(folder)
    for step in range(ROWS):
        writer.append_row({"loss": step + 0.25} if step % 2 else {"x": step, "y": -step}, step)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    return path.read_bytes()


@contextmanager
def journal_of(data: bytes) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    path = folder / "journal" / "a-run" / "seg1-r0-4242.0"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


damages = st.tuples(
    st.sampled_from(["flip", "truncate", "insert", "zero"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 64),
    st.integers(0, 2**32),
)


def damaged(data: bytes, used: int, kind: str, where: float, size: int, seed: int) -> tuple[bytes, int]:
    at = layout.HEADER_BYTES + int(where * (used - layout.HEADER_BYTES))
    noise = random.Random(seed).randbytes(size)
    if kind == "truncate":
        return data[:at], at
    if kind == "insert":
        return data[:at] + noise + data[at:], at
    broken = bytearray(data)
    broken[at : at + size] = (
        bytes(size)
        if kind == "zero"
        else bytes(a ^ (b | 1) for a, b in zip(data[at : at + size], noise, strict=False))
    )
    return bytes(broken), at


def check_damage(data: bytes, damage: tuple[str, float, int, int]) -> None:
    used = int.from_bytes(data[8:16], "little")
    broken, _ = damaged(data, used, *damage)
    with journal_of(broken) as folder:
        batches = read_all(folder)
        steps = steps_of(batches)
        notes = sum(len(batch.notes) for batch in batches)

        assert len(set(steps)) == len(steps), "a record was read twice"
        for batch in batches:
            for rows in batch.rows:
                for step, values in zip(rows.steps.tolist(), rows.values.tolist(), strict=True):
                    assert values == ([step + 0.25] if step % 2 else [step, -step])
        if damage[0] != "truncate":
            # 64 bytes touch at most three frames of this journal, and names are also elsewhere.
            assert len(steps) >= ROWS - 3
        assert lost_in(batches) == RECORDS - len(steps) - notes


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(damage=damages)
def test_any_damage_costs_only_what_it_hits_and_is_counted(
    original: bytes, damage: tuple[str, float, int, int]
) -> None:
    check_damage(original, damage)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(damage=damages)
def test_five_thousand_damages_cost_only_what_they_hit(
    original: bytes, damage: tuple[str, float, int, int]
) -> None:
    check_damage(original, damage)


@pytest.mark.parametrize("mapping", ["always", "never"])
def test_a_damage_that_hits_both_names_of_a_metric_costs_only_the_rows_it_hits(
    mapping: str, folder: Path
) -> None:
    writer = writer_for(folder, mapping=mapping)
    for step in range(ROWS):
        writer.append_row({"loss": step + 0.25}, step)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    data = bytearray(path.read_bytes())
    name = layout.to_json(["loss"])
    first = data.index(name)
    second = data.index(name, first + 1)
    data[first : second + len(name)] = bytes(second + len(name) - first)
    path.write_bytes(data)
    batches = read_all(folder)
    assert steps_of(batches) == list(range(1, ROWS))
    assert lost_in(batches) == 1


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=400), cut=st.integers(layout.HEADER_BYTES, 3000))
def test_no_bytes_make_a_reader_raise(original: bytes, junk: bytes, cut: int) -> None:
    with journal_of(original[:cut] + junk) as folder:
        for _, path in list_journals(folder):
            reader = JournalReader(path)
            read_so_far = reader.read().offset
            assert reader.read(final=True).offset >= read_so_far
            reader.close()


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=200))
def test_a_file_that_was_never_a_journal_yields_nothing(junk: bytes) -> None:
    with journal_of(junk) as folder:
        assert steps_of(read_all(folder)) == []


@pytest.mark.parametrize("offset", [0, 3, 8, 15, 16, 25, 28, 29, 32, 40, 60])
def test_a_damaged_header_costs_no_record(original: bytes, offset: int) -> None:
    broken = bytearray(original)
    broken[offset] ^= 0x41
    with journal_of(bytes(broken)) as folder:
        if offset == 25:
            return  # reads as a later version, which is refused: see the golden files
        assert steps_of(read_all(folder)) != []
        assert sorted(steps_of(read_all(folder))) == list(range(ROWS))


def test_damage_in_the_middle_of_a_live_journal_does_not_stop_what_follows(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(50):
        writer.append_row({"loss": float(step)}, step)
    ((_, path),) = list_journals(folder)
    with path.open("r+b") as file:
        file.seek(1500)
        file.write(b"\xff" * 20)
    reader = JournalReader(path)
    steps = steps_of([reader.read()])
    for step in range(50, 80):
        writer.append_row({"loss": float(step)}, step)
    batch = reader.read()
    steps += steps_of([batch])

    missing = sorted(set(range(80)) - set(steps))
    assert 1 <= len(missing) <= 2
    assert batch.lost == len(missing)
    assert steps == sorted(steps)


def test_a_length_that_arrives_before_its_bytes_is_read_again_before_it_counts_as_damage(
    folder: Path,
) -> None:
    writer = writer_for(folder)
    writer.append_row({"loss": 0.0}, 0)
    ((_, path),) = list_journals(folder)
    whole = path.read_bytes()
    used = int.from_bytes(whole[8:16], "little")
    with path.open("r+b") as file:
        file.seek(used - 16)
        file.write(bytes(16))
    reader = JournalReader(path)
    first = reader.read()
    with path.open("r+b") as file:
        file.seek(used - 16)
        file.write(whole[used - 16 : used])
    second = reader.read()

    assert steps_of([first, second]) == [0]
    assert second.lost == 0


def test_a_damaged_header_costs_neither_rows_nor_their_times(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(50):
        writer.append_row({"a": float(step)}, step)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    healthy = path.read_bytes()
    times = [rows.times.tolist() for batch in read_all(folder) for rows in batch.rows]
    for at in [*range(8), *range(24, 28), *range(32, 48)]:
        data = bytearray(healthy)
        data[at] ^= 0xFF
        path.write_bytes(data)
        batches = read_all(folder)
        assert steps_of(batches) == list(range(50)), at
        assert [rows.times.tolist() for batch in batches for rows in batch.rows] == times, at
        assert 0 <= JournalReader(path).file_id < 2**63, at


def test_frames_that_come_again_are_taken_once(folder: Path) -> None:
    writer = writer_for(folder)
    for step in range(50):
        writer.append_row({"a": float(step)}, step)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    data = path.read_bytes()
    frames = data[layout.HEADER_BYTES :].rstrip(b"\0")
    frames += bytes(-len(frames) % 8)
    path.write_bytes(data[: layout.HEADER_BYTES] + frames + frames)
    batches = read_all(folder)
    assert steps_of(batches) == list(range(50))
    assert lost_in(batches) == 0


@pytest.mark.parametrize("size", [0, 1, 7, 63])
def test_a_file_cut_off_within_its_header_counts_as_a_loss(folder: Path, size: int) -> None:
    writer = writer_for(folder)
    writer.append_row({"a": 1.0}, 0)
    writer.close({"status": "finished", "reason": ""})
    ((_, path),) = list_journals(folder)
    path.write_bytes(path.read_bytes()[:size])
    batch = JournalReader(path).read(final=True)
    assert batch.lost >= 1
    assert "cut off" in batch.refused[0]
