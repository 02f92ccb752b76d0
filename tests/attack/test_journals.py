"""Damages journal files: every intact row is kept, every lost one is counted, and no other run is touched."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.asking import ask, rows_of
from tests.attack.checking import reading_faults, untouched_faults, value_faults
from tests.attack.conftest import STORED, StoredRun
from tests.attack.frames import frames_of, used_bytes
from tests.attack.outcomes import LOST, WRONG, Case, Fault, Sweep
from tests.attack.training import trainings

ROWS = 3000
SETTINGS = {"agent": {"mode": "none"}, "recorder": {"segment_bytes": 65536}}
CLOCK_S = 2.0
"""Times that were recovered from the opening of a run may be off by the time it took to write it."""


@dataclass(frozen=True)
class Journals:
    """The unread journals of two finished trainings, and what a reader makes of them when undamaged."""

    folder: Path
    victim: list[Path]
    answers: dict[str, dict]

    def copy_to(self, store: Path) -> list[Path]:
        """Adds the journals to a store; the files of the run to be damaged."""
        shutil.copytree(self.folder / "journal", store / "journal")
        return [store / path.relative_to(self.folder) for path in self.victim]


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Journals:
    """Records two runs that no agent reads."""
    scratch = tmp_path_factory.mktemp("journals")
    folder = scratch / "store"
    with trainings() as start:
        runs = [
            start(scratch, folder, "victim", rows=ROWS, settings=SETTINGS, salt=0.5, keys=2),
            start(scratch, folder, "bystander", rows=900, settings=SETTINGS),
        ]
        assert [training.end() for training in runs] == [0, 0]
    victim = sorted(folder.glob("journal/victim-*/*.[0-9]"), key=lambda path: path.suffix)
    assert len(victim) >= 3
    read = scratch / "read"
    shutil.copytree(folder, read)
    answers = {name: ask(rows_of, str(read), name).result for name in ("victim", "bystander")}
    assert answers["victim"]["steps"] == list(range(ROWS))
    assert answers["victim"]["lost"] == 0
    return Journals(folder, victim, answers)


@dataclass
class Expected:
    """What a damage may cost."""

    hit: set[int]
    """Steps of rows whose frames the damage has touched."""
    counted: str = "each"
    """"each" row that is missing is counted; "some" where the number went with the file; "status" where the
    file may never have been written, and a run that is not called finished says enough."""
    newer: Path | None = None
    """A file that claims to be of a newer version: it may be refused, if it is named and kept."""


Damage = Callable[[random.Random, list[Path]], Expected]


def steps_touched(data: bytes, start: int, end: int) -> set[int]:
    return {frame.step for frame in frames_of(data) if frame.step is not None and frame.touches(start, end)}


def flip(number: int, count: int) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = bytearray(files[number].read_bytes())
        sound, hit = bytes(data), set()
        for _ in range(count):
            at = dice.randrange(64, used_bytes(sound))
            data[at] ^= dice.randrange(1, 256)
            hit |= steps_touched(sound, at, at + 1)
        files[number].write_bytes(data)
        return Expected(hit)

    return damage


def overwrite(number: int, size: int, *, zero: bool) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = bytearray(files[number].read_bytes())
        at = dice.randrange(64, used_bytes(data))
        hit = steps_touched(bytes(data), at, at + size)
        end = min(at + size, len(data))
        data[at:end] = bytes(end - at) if zero else dice.randbytes(end - at)
        files[number].write_bytes(data)
        return Expected(hit)

    return damage


def truncate(number: int, kept: Callable[[random.Random, int], int]) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = files[number].read_bytes()
        size = kept(dice, used_bytes(data))
        files[number].write_bytes(data[:size])
        # A process that was killed while it made its last file leaves it without a header.
        without_header = "status" if number == len(files) - 1 else "some"
        return Expected(steps_touched(data, size, len(data)), "each" if size >= 64 else without_header)

    return damage


def insert(number: int) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = files[number].read_bytes()
        at = dice.randrange(64, used_bytes(data))
        files[number].write_bytes(data[:at] + dice.randbytes(dice.randrange(1, 200)) + data[at:])
        return Expected({frame.step for frame in frames_of(data) if frame.start < at < frame.end} - {None})

    return damage


def cut_out(number: int) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = files[number].read_bytes()
        at, size = dice.randrange(64, used_bytes(data)), dice.randrange(1, 3000)
        files[number].write_bytes(data[:at] + data[at + size :])
        return Expected(steps_touched(data, at, at + size))

    return damage


def append(number: int, garbage: Callable[[random.Random, bytes], bytes], *, at_used: bool) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = files[number].read_bytes()
        end = used_bytes(data) if at_used else len(data)
        files[number].write_bytes(data[:end] + garbage(dice, data))
        return Expected(set())

    return damage


def header(number: int, at: int, change: Callable[[random.Random, int], int]) -> Damage:
    def damage(dice: random.Random, files: list[Path]) -> Expected:
        data = bytearray(files[number].read_bytes())
        data[at] = change(dice, data[at])
        files[number].write_bytes(data)
        return Expected(set(), newer=files[number] if 24 <= at < 28 else None)

    return damage


def remove(number: int) -> Damage:
    def damage(_: random.Random, files: list[Path]) -> Expected:
        data = files[number].read_bytes()
        files[number].unlink()
        return Expected(steps_touched(data, 0, len(data)), "status" if number == -1 else "some")

    return damage


def duplicate(number: int, name: Callable[[Path], str]) -> Damage:
    def damage(_: random.Random, files: list[Path]) -> Expected:
        shutil.copy(files[number], files[number].with_name(name(files[number])))
        return Expected(set())

    return damage


def swap(first: int, second: int) -> Damage:
    def damage(_: random.Random, files: list[Path]) -> Expected:
        one, other = files[first].read_bytes(), files[second].read_bytes()
        files[first].write_bytes(other)
        files[second].write_bytes(one)
        return Expected(set())

    return damage


def renumber(number: int, suffix: str) -> Damage:
    def damage(_: random.Random, files: list[Path]) -> Expected:
        files[number].rename(files[number].with_suffix(suffix))
        return Expected(set())

    return damage


def damages(files: int) -> Iterator[tuple[str, Damage]]:
    """All damages with their names."""
    for at in range(64):
        for number in (0, 1):
            yield (
                f"header byte {at} of .{number} flipped",
                header(number, at, lambda dice, old: old ^ dice.randrange(1, 256)),
            )
    for number in range(files):
        for value in (0, 2, 255):
            yield f"header byte 24 of .{number} set to {value}", header(number, 24, lambda _, __, v=value: v)
        for value in (0, 1):
            yield f"header byte 28 of .{number} set to {value}", header(number, 28, lambda _, __, v=value: v)
    for turn in range(8):
        for number in range(3):
            yield f"1 byte of .{number} flipped, {turn}", flip(number, 1)
    for turn in range(4):
        for number in range(3):
            yield f"12 bytes of .{number} flipped, {turn}", flip(number, 12)
            yield f"400 bytes of .{number} zeroed, {turn}", overwrite(number, 400, zero=True)
            yield f"5000 bytes of .{number} overwritten, {turn}", overwrite(number, 5000, zero=False)
            yield (
                f".{number} cut off in the middle, {turn}",
                truncate(number, lambda dice, n: dice.randrange(64, n)),
            )
    for turn in range(2):
        for number in range(3):
            yield f"bytes put into .{number}, {turn}", insert(number)
            yield f"bytes cut out of .{number}, {turn}", cut_out(number)
    for number in range(3):
        for kept in (0, 1, 7, 63, 64, 72):
            yield f".{number} cut off at {kept}", truncate(number, lambda _, __, kept=kept: kept)
        yield (
            f"garbage at the end of .{number}",
            append(number, lambda dice, _: dice.randbytes(5000), at_used=False),
        )
        yield (
            f"garbage after the last frame of .{number}",
            append(number, lambda dice, _: dice.randbytes(5000), at_used=True),
        )
        yield (
            f"markers at the end of .{number}",
            append(number, lambda _, __: b"\x5c\xa5" * 3000, at_used=True),
        )
        yield (
            f"frames of .{number} again at its end",
            append(number, lambda _, data: data[64 : used_bytes(data)], at_used=True),
        )
        yield f".{number} again under a later number", duplicate(number, lambda path: f"{path.stem}.9")
        yield (
            f".{number} again under another process",
            duplicate(number, _of_other_process),
        )
    yield "first file removed", remove(0)
    yield "middle file removed", remove(1)
    yield "last file removed", remove(-1)
    yield "first two files swapped", swap(0, 1)
    yield "first and last file swapped", swap(0, -1)
    yield "last file numbered 700", renumber(-1, ".700")
    yield "first file numbered 800", renumber(0, ".800")


def _of_other_process(path: Path) -> str:
    segment_and_rank, _, _ = path.name.rpartition("-")
    return f"{segment_and_rank}-999999{path.suffix}"


def faults_of(answers: dict, whole: dict, expected: Expected) -> Iterator[Fault]:
    """What is wrong with the damaged run."""
    if "error" in answers:
        yield Fault(LOST, f"{answers['kind']}: {answers['error']}")
        return
    yield from value_faults("victim", answers, 0.5)
    missing = set(range(ROWS)) - set(answers["steps"])
    if missing - expected.hit:
        yield Fault(
            LOST,
            f"{len(missing - expected.hit)} rows of intact frames are missing, first "
            f"{sorted(missing - expected.hit)[:3]}; lost is {answers['lost']}, status {answers['status']}",
        )
    least = {"each": len(missing), "some": 1, "status": answers["status"] == "finished", "refused": 0}
    needed = least[expected.counted]
    if missing and answers["lost"] < needed:
        yield Fault(
            LOST,
            f"{len(missing)} rows are missing, {answers['lost']} are counted as lost, "
            f"status {answers['status']}",
        )
    times = dict(zip(whole["steps"], whole["times"], strict=True))
    late = [
        (step, moment - times[step])
        for step, moment in zip(answers["steps"], answers["times"], strict=True)
        if step in times and abs(moment - times[step]) > CLOCK_S
    ]
    if late:
        yield Fault(WRONG, f"{len(late)} rows have wrong times, first (step, seconds off) {late[0]}")


@pytest.mark.slow
def test_journals_that_are_damaged_keep_every_intact_row_and_count_the_lost(
    sweep: Sweep, stored_run: StoredRun, journals: Journals
) -> None:
    def case(name: str, damage: Damage) -> Case:
        def check(dice: random.Random, scratch: Path) -> Iterator[Fault]:
            store = stored_run.copy_to(scratch / "store")
            expected = damage(dice, journals.copy_to(store))
            asked = ask(rows_of, str(store), "victim")
            yield from reading_faults("victim", asked)
            if expected.newer and expected.newer.name in asked.stderr and expected.newer.exists():
                data = expected.newer.read_bytes()
                expected = Expected(steps_touched(data, 0, len(data)), "refused")
            if asked.result is not None:
                yield from faults_of(asked.result, journals.answers["victim"], expected)
            yield from untouched_faults(store, "bystander", journals.answers["bystander"])
            yield from untouched_faults(store, STORED, stored_run.answer)

        return Case(name, check)

    sweep.run([case(name, damage) for name, damage in damages(len(journals.victim))])
