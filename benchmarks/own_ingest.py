"""Rate at which the agent moves points from a journal to the store."""

import time
from pathlib import Path

from benchmarks import own_entry, workload
from stepscope.agent.ingest.ingest import Ingest
from stepscope.journal.folder import JournalName
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteStore

ROWS = 500_000
QUICK_ROWS = 50_000
SEGMENT_BYTES = 4 << 20
PID_OF_NOBODY = 2**22 + 1
"""Above the kernel's largest pid: the agent takes the writer for gone, as after a crash."""


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Write a journal, then ingest it in this process and count CPU seconds."""
    rows = QUICK_ROWS if quick else ROWS
    _write_journal(folder, rows)
    store = SqliteStore(database(folder))
    ingest = Ingest(folder, store)
    began_wall, began_cpu = time.perf_counter(), time.process_time()
    while ingest.tick() or ingest.live:
        pass
    cpu_s = time.process_time() - began_cpu
    wall_s = time.perf_counter() - began_wall
    points = sum(series.points for run in store.runs() for series in store.keys(run.id))
    store.close()
    if points != rows * workload.KEYS_PER_ROW:
        raise RuntimeError(f"{rows * workload.KEYS_PER_ROW} points written, {points} in the store")
    return {"ingest_points_per_s": points / cpu_s, "ingest_points_per_wall_s": points / wall_s}


def _write_journal(folder: Path, rows: int) -> None:
    name = JournalName("bench", "0", 0, PID_OF_NOBODY)
    supply = SegmentSupply(folder, name, segment_bytes=SEGMENT_BYTES, unread_bytes=1 << 40, mapping="auto")
    opening = {"run": "run", "project": "bench", "host": "host", "role": "rank"}
    writer = JournalWriter(supply, {**opening, "started_ns": time.time_ns(), "facts": {}})
    pool = workload.float32_pool()
    for step in range(rows):
        writer.append_row(workload.row(pool, step), step)
    writer.close({"status": "finished", "reason": ""})


if __name__ == "__main__":
    own_entry.run(measure)
