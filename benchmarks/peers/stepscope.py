"""Logs through stepscope with its default settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import stepscope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


def import_reader() -> None:
    """Load what reading needs and a training process does without; names load when first used."""
    import numpy  # noqa: F401

    _ = stepscope.open_store


def read_series(folder: str, key: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Read the whole series by the public interface."""
    series = stepscope.open_store(folder).run("run").series(key)
    return series.steps, series.values
