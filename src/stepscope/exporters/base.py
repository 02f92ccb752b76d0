"""Base classes of exporters: of live runs, and of stored runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.sample import DeviceFacts
    from stepscope.schema.series import Source


@dataclass(frozen=True)
class Table:
    """Rows of one source and one set of keys, as they are stored."""

    source: Source
    keys: Sequence[str]
    steps: NDArray[np.int64]
    """All zero for machine metrics."""
    times_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    """A row for each step, a column for each key."""


@dataclass(frozen=True)
class Rows:
    """Rows of a run, in the order logged."""

    labels: Mapping[str, NDArray[Any]]
    """Labels and times, a column each: text (object), int64, float64 or datetime64[ns] in UTC.

    Ranks are masked for machine metrics, which belong to all ranks.
    """
    keys: tuple[str, ...]
    """Names of the columns of `values`; none is the name of a label."""
    values: NDArray[np.float64]
    """A row for each row, a column for each key."""
    present: NDArray[np.bool_]
    """Where False, the key was not logged in that row and the value means nothing."""

    def __len__(self) -> int:
        return len(self.values)


class Feed(ABC):
    """Exports the rows of live runs as they are stored. The agent calls it, and it must not block.

    The file is named after the exporter's name under `exporters` in the settings. The arguments of the
    constructor are its options there; runs with the same options share one instance. A parameter
    `_directory` gets the working directory of the run, where relative paths start. An exception is logged
    once, and the exporter is called again a minute later.
    """

    @abstractmethod
    def take(self, table: Table) -> None:
        """Passes rows on."""

    def describe(self, facts: DeviceFacts) -> None:  # noqa: B027 - many need no more than its name
        """Takes the description of a device, before its metrics."""

    def finish(self, run_id: str, segment: str, rank: int) -> None:  # noqa: B027 - many write all at once
        """Called when a rank has ended and all its rows were taken, before anybody who waits for its end."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is left."""


class Exporter(ABC):
    """Exports the rows of one stored run; all rows for one exporter have the same labels and keys."""

    @abstractmethod
    def publish(self, rows: Rows) -> None:
        """Passes rows on."""

    @abstractmethod
    def close(self) -> None:
        """Completes the output; does not close a file that the caller opened."""
