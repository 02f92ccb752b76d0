"""Base classes of exporters: of live runs, and of stored runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
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
class RecordedArray:
    """An array that a rank recorded, such as a histogram, as it is stored."""

    run_id: str
    segment: str
    rank: int
    key: str
    step: int | None
    time_ns: int
    values: NDArray[np.generic]


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


class Unreachable(StepscopeError):
    """The other program cannot be reached now: whatever is passed on fails, until it can be reached again."""


class Feed(ABC):
    """Exports the rows of live runs as they are stored.

    The file is named after the exporter's name under `exporters` in the settings. The arguments of the
    constructor are its options there; runs with the same options share one instance. A parameter
    `_directory` gets the working directory of the run, where relative paths start, and `_store` the store
    folder. An exporter that raises is logged once and paused, and its status says so; the others go on.
    """

    is_remote: ClassVar[bool] = False
    """Whether it waits for another program. Then a thread of its own calls it, which passes on what is in a
    bounded queue, and tries again what failed: five times, or after ConnectionError, TimeoutError and
    `Unreachable` until the queue is full. Otherwise the agent itself calls it, and it must not block."""

    is_closing: bool = False
    """Set before it is closed: runs that begin later get another one."""

    @property
    def held(self) -> int:
        """How many values it has taken and not yet passed on."""
        return 0

    @property
    def dropped(self) -> int:
        """How many values it has taken and then given up."""
        return 0

    @property
    def skipped(self) -> int:
        """How many values it has taken and does not pass on, such as those without a name elsewhere."""
        return 0

    @property
    def trouble(self) -> str:
        """Why something cannot be passed on at the moment although no call has failed; empty if all can."""
        return ""

    def begin(self, process: Process) -> None:  # noqa: B027 - many need only the rows
        """Takes a process of a run before its first rows, and again when it has changed."""

    @abstractmethod
    def take(self, table: Table) -> None:
        """Passes rows on."""

    def take_event(self, run_id: str, event: Event) -> None:  # noqa: B027 - many need only the rows
        """Passes an event on; hyper-parameters come as events of the kind `params`."""

    def take_array(self, array: RecordedArray) -> None:  # noqa: B027 - many need only the rows
        """Passes an array on, such as a histogram."""

    def describe(self, facts: DeviceFacts) -> None:  # noqa: B027 - many need no more than its name
        """Takes the description of a device, before its metrics."""

    def finish(self, run_id: str, segment: str, rank: int) -> None:  # noqa: B027 - many write all at once
        """Called when a rank has ended and all its rows were taken.

        An exporter that is not remote is called before anybody who waits for the end of the rank.
        """

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
