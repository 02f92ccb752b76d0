"""Logs one JSON line per step to a buffered file."""

import json
import time
from pathlib import Path


class Writer:
    """A text file with Python's default buffer."""

    def __init__(self, folder: str) -> None:
        self._file = _path(folder).open("w")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Write the row, with step and time, as one line."""
        self._file.write(json.dumps({"step": step, "time": time.time(), **metrics}) + "\n")

    def finish(self) -> None:
        """Flush and close."""
        self._file.close()


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Parse every complete line."""
    steps: list[int] = []
    values: list[float] = []
    with _path(folder).open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                break
            row = json.loads(line)
            steps.append(row["step"])
            values.append(row[key])
    return steps, values


def _path(folder: str) -> Path:
    return Path(folder) / "metrics.jsonl"
