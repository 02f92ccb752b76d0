"""Logs through stepscope with its default settings."""

import os
from collections.abc import Sequence

import stepscope


class Writer:
    """A monitor whose store is the folder."""

    def __init__(self, folder: str) -> None:
        os.environ["STEPSCOPE_DIR"] = folder
        self._monitor = stepscope.TrainingMonitor(run="run", project="bench")
        self._monitor.start_monitoring()

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Log the whole row in one call."""
        self._monitor.log(metrics, step=step)

    def finish(self) -> None:
        """Wait until every point is in the store."""
        self._monitor.stop_monitoring()


def read_series(folder: str, key: str) -> tuple[Sequence[int], Sequence[float]]:
    """Read the whole series by the public interface."""
    series = stepscope.open_store(folder).run("run").series(key)
    return series.steps, series.values
