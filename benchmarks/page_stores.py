"""Stores for the benchmark of the page: one run with many long series, and a thousand short runs."""

import time
from pathlib import Path

import numpy as np

from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

NS = 10**9
LONG = "long-run"
BLOCK = 50_000
"""Points that are written at once."""


def long_run(folder: Path, keys: int, points: int) -> None:
    """Writes a run that is live, with so many series of so many points."""
    folder.mkdir(parents=True)
    store = SqliteStore(folder / "store.sqlite")
    rng = np.random.default_rng(0)
    names = [f"group{number // 10}/metric{number:02d}" for number in range(keys)]
    now_ns = time.time_ns()
    begun_ns = now_ns - points * NS // 100
    _process(store, LONG, begun_ns, now_ns, "running")
    source = Source(LONG, "s1", 0, "here")
    for first in range(0, points, BLOCK):
        steps = np.arange(first, min(first + BLOCK, points))
        decay = np.exp(-steps / (points / 4))[:, None]
        values = decay + 0.05 * rng.standard_normal((len(steps), keys))
        with store.transaction():
            store.append(source, names, steps, begun_ns + steps * (NS // 100), values)
    store.close()


def many_runs(folder: Path, count: int, points: int = 500) -> None:
    """Writes so many runs that have ended."""
    folder.mkdir(parents=True)
    store = SqliteStore(folder / "store.sqlite")
    rng = np.random.default_rng(0)
    steps = np.arange(points)
    for number in range(count):
        begun_ns = time.time_ns() - (count - number) * 600 * NS
        ended_ns = begun_ns + points * NS // 10
        name = f"sweep-{number:04d}"
        _process(store, name, begun_ns, ended_ns, "finished")
        loss = np.exp(-steps / 100) + 0.1 * rng.standard_normal(points)
        values = np.column_stack([loss, np.full(points, 0.1), np.full(points, 0.01)])
        with store.transaction():
            store.append(
                Source(name, "s1", 0, "here"),
                ["loss", "step_seconds", "phase/data_seconds"],
                steps,
                begun_ns + steps * (NS // 10),
                values,
            )
            store.seal(Source(name, "s1", 0, "here"))
    store.close()


def _process(store: SqliteStore, name: str, begun_ns: int, last_ns: int, status: str) -> None:
    process = Process(name, name, "bench", "s1", 0, "here", 1, "rank", started_ns=begun_ns)
    process.status, process.last_ns = status, last_ns  # type: ignore[assignment]  # one of those there are
    process.ended_ns = None if status == "running" else last_ns
    with store.transaction():
        store.put_process(process)
