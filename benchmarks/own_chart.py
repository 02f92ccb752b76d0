"""Time of one chart over a very long series."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import own_entry
from stepscope.schema.run import Process
from stepscope.schema.series import Selection, Source
from stepscope.store.place import database
from stepscope.store.sqlite import SqliteReader, SqliteStore

POINTS = 100_000_000
QUICK_POINTS = 4_000_000
ROWS_PER_APPEND = 1 << 18
MAX_BUCKETS = 2_000
KEY = "loss"
RUN = "bench"
FRESH_READERS = 5
WARM_READS = 10


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Build the series through the store, then chart it in fresh processes."""
    points = QUICK_POINTS if quick else POINTS
    began = time.perf_counter()
    _build(folder, points)
    build_s = time.perf_counter() - began
    readers = [_read_in_fresh_process(folder) for _ in range(FRESH_READERS)]
    return {
        "chart_points": points,
        "chart_build_s": build_s,
        "chart_store_bytes": database(folder).stat().st_size,
        **{name: statistics.median(reader[name] for reader in readers) for name in readers[0]},
    }


def _build(folder: Path, points: int) -> None:
    store = SqliteStore(database(folder))
    source = Source(RUN, "0", 0, "host")
    started_ns = time.time_ns()
    noise = np.random.default_rng(7)
    with store.transaction():
        store.put_process(Process(RUN, "run", "bench", "0", 0, "host", 1, "rank", started_ns=started_ns))
    for first in range(0, points, ROWS_PER_APPEND):
        steps = np.arange(first, min(first + ROWS_PER_APPEND, points), dtype=np.int64)
        times_ns = started_ns + steps * 1_000_000 + noise.integers(0, 100_000, len(steps))
        values = noise.normal(2.0, 0.5, len(steps)).astype(np.float32).astype(np.float64)
        with store.transaction():
            store.append(source, [KEY], steps, times_ns, values[:, None])
    with store.transaction():
        store.seal(Source(RUN, "0", 0, "host"))
    store.close()


def _read_in_fresh_process(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.own_chart", str(folder)]
    figures: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return figures


def _read(folder: Path) -> dict[str, float]:
    """Open the store and draw one chart; then draw it again."""
    began = time.perf_counter()
    reader = SqliteReader(database(folder))
    buckets = reader.buckets(Selection(RUN, KEY), MAX_BUCKETS)
    fresh_s = time.perf_counter() - began
    warm_s = []
    for _ in range(WARM_READS):
        began = time.perf_counter()
        reader.buckets(Selection(RUN, KEY), MAX_BUCKETS)
        warm_s.append(time.perf_counter() - began)
    return {
        "chart_fresh_ms": fresh_s * 1000,
        "chart_warm_ms": statistics.median(warm_s) * 1000,
        "chart_buckets": len(buckets),
    }


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(_read(Path(sys.argv[1]))))
    else:
        own_entry.run(measure)
