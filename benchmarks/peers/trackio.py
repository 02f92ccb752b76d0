"""Logs through trackio into its local SQLite store."""

import sqlite3

import trackio
from trackio.sqlite_storage import SQLiteStorage


class Writer:
    """A local run; its folder is set by TRACKIO_DIR, which trackio reads when imported."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        trackio.init(project="bench", name="run")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Log the whole row in one call."""
        trackio.log(metrics, step=step)

    def finish(self) -> None:
        """Wait for the writing thread."""
        trackio.finish()


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Read as trackio's own command line does; it orders by time, so order by step here."""
    try:
        rows = SQLiteStorage.get_metric_values("bench", "run", key)
    except sqlite3.OperationalError:  # killed before its first write, which makes the table
        return [], []
    rows.sort(key=lambda row: row["step"])
    return [row["step"] for row in rows], [row["value"] for row in rows]
