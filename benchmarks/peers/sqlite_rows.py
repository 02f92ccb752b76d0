"""Logs one SQLite row per point, committed every 100 steps."""

import sqlite3
import time
from pathlib import Path

STEPS_PER_COMMIT = 100


class Writer:
    """A write-ahead-logged database, clustered in the order a chart reads."""

    def __init__(self, folder: str) -> None:
        self._database = _open(folder)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute("CREATE TABLE series (id INTEGER PRIMARY KEY, key TEXT UNIQUE)")
        self._database.execute(
            "CREATE TABLE point (series INTEGER, step INTEGER, time REAL, value REAL,"
            " PRIMARY KEY (series, step)) WITHOUT ROWID"
        )
        self._series: dict[str, int] = {}
        self._pending: list[tuple[int, int, float, float]] = []
        self._steps_pending = 0

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Queue the row's points and write them when a hundred steps are waiting."""
        now = time.time()
        for key, value in metrics.items():
            series = self._series.get(key) or self._add_series(key)
            self._pending.append((series, step, now, value))
        self._steps_pending += 1
        if self._steps_pending >= STEPS_PER_COMMIT:
            self._write()

    def finish(self) -> None:
        """Write what is waiting and close."""
        self._write()
        self._database.close()

    def _add_series(self, key: str) -> int:
        self._series[key] = len(self._series) + 1
        self._database.execute("INSERT INTO series VALUES (?, ?)", (self._series[key], key))
        return self._series[key]

    def _write(self) -> None:
        with self._database:
            self._database.executemany("INSERT INTO point VALUES (?, ?, ?, ?)", self._pending)
        self._pending.clear()
        self._steps_pending = 0


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Select one series in the order of its steps."""
    rows = _open(folder).execute(
        "SELECT step, value FROM point JOIN series ON series.id = point.series WHERE key = ? ORDER BY step",
        (key,),
    )
    steps: list[int] = []
    values: list[float] = []
    for step, value in rows:
        steps.append(step)
        values.append(value)
    return steps, values


def _open(folder: str) -> sqlite3.Connection:
    return sqlite3.connect(Path(folder) / "metrics.db")
