"""The interfaces of everything that takes what runs tell somewhere else, afterwards or at once."""

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
    """Rows of one source and one set of keys, as they are kept."""

    source: Source
    keys: Sequence[str]
    steps: NDArray[np.int64]
    """All zero for what was read from a machine."""
    times_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    """A row for each step, a column for each key."""


@dataclass(frozen=True)
class Rows:
    """Rows of a run, in the order logged."""

    labels: Mapping[str, NDArray[Any]]
    """Whose and when, a column each: text (object), int64, float64 or datetime64[ns] in UTC.

    A rank is masked where there is none: what was read from a machine belongs to all of them.
    """
    keys: tuple[str, ...]
    """What the columns of `values` are called; none has the name of a label."""
    values: NDArray[np.float64]
    """A row for each row, a column for each key."""
    present: NDArray[np.bool_]
    """Where False, the key was not logged in that row and the value means nothing."""

    def __len__(self) -> int:
        return len(self.values)


class Feed(ABC):
    """Takes what runs record, as it is kept. It is called by the agent, and must not wait.

    The name of its file is its name under `exporters` in the settings, its constructor's arguments are its
    options there; runs with the same options share one. A constructor that has `_directory` is given the
    working directory of the run, where relative paths begin. When it raises an exception, that is logged
    once, and it is tried again a minute later.
    """

    @abstractmethod
    def take(self, table: Table) -> None:
        """Passes rows on."""

    def describe(self, facts: DeviceFacts) -> None:  # noqa: B027 - many need no more than its name
        """Learns what a device is; comes before its figures do."""

    def finish(self, run_id: str, segment: str, rank: int) -> None:  # noqa: B027 - many write all at once
        """Learns that a rank has ended and all its rows were taken; who waits for its end then reads on."""

    @abstractmethod
    def close(self) -> None:
        """Completes what was begun."""


class Exporter(ABC):
    """Takes the rows of one run; all that one exporter is given have the same labels and keys."""

    @abstractmethod
    def publish(self, rows: Rows) -> None:
        """Passes rows on."""

    @abstractmethod
    def close(self) -> None:
        """Completes what was begun; what was opened elsewhere is left open."""
