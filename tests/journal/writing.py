"""Writes journals for tests, with clocks that tests hold in their hand."""

from __future__ import annotations

import itertools
from pathlib import Path

from stepscope.journal.folder import JournalName, list_journals
from stepscope.journal.reader import Batch, JournalReader
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter

NAME = JournalName("a-run", "seg1", 0, 4242)
OPENING = {
    "run": "a run",
    "project": "default",
    "host": "testhost",
    "role": "rank",
    "started_ns": 1_700_000_000_000_000_000,
    "facts": {},
}


class Clock:
    """Counts nanoseconds by the thousand; can be set."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        self.now_ns += 1000
        return self.now_ns


def writer_for(folder: Path, name: JournalName = NAME, **options: object) -> JournalWriter:
    """A writer with small segments; `complaints` collects what it says."""
    warnings: list[str] = options.pop("complaints", [])
    clock = options.pop("clock", None) or Clock()
    max_keys = options.pop("max_keys", 50_000)
    opening = options.pop("opening", OPENING)
    supply = SegmentSupply(
        folder,
        name,
        **{"segment_bytes": 1 << 16, "unread_bytes": 1 << 30, "mapping": "always"} | options,
        clock=clock,
        wall_clock=lambda: 1_700_000_000_000_000_000,
    )
    return JournalWriter(supply, opening, max_keys=max_keys, clock=clock, warn=warnings.append)


def read_all(folder: Path) -> list[Batch]:
    """Everything in all files, as an agent reads it when the writer is gone."""
    batches = []
    for _, path in list_journals(folder):
        reader = JournalReader(path)
        while True:
            batch = reader.read(final=True)
            batches.append(batch)
            if batch.last:
                break
        reader.close()
    return batches


def steps_of(batches: list[Batch]) -> list[int]:
    """The steps of all rows, in order of reading."""
    return list(
        itertools.chain.from_iterable(rows.steps.tolist() for batch in batches for rows in batch.rows)
    )


def lost_in(batches: list[Batch]) -> int:
    """Records reported lost, files taken one by one."""
    last: dict[int, int] = {}
    total = 0
    for batch in batches:
        last[id(batch)] = batch.lost
        total += batch.lost if batch.last else 0
    return total
