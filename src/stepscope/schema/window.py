"""A read-only stretch of a run: everything a detector may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.schema.series import Buckets

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Column:
    """The values of a key, one place for each step of the window."""

    values: Floats
    """NaN at steps for which it was not recorded, and where NaN was recorded."""
    present: Flags
    """Whether it was recorded at all."""
    finite: Flags
    """Whether it was recorded and is a finite number."""


@dataclass(frozen=True)
class RankWindow:
    """The newest steps of one rank, all keys aligned."""

    rank: int
    host: str
    steps: Ints
    """In order, each once."""
    times: Floats
    """When each was last told of, in seconds since the epoch."""
    columns: Mapping[str, Column]
    steady: Flags
    """Steps that were timed, after the warm-up, in which nothing was compiled."""
    warm_up: int = 0
    """How many steps at the beginning were left out as a warm-up."""
    compiled: int = 0
    """How many were left out because something was compiled in them."""
    is_whole: bool = True
    """Whether it reaches back to the first step of the segment."""
    course: Mapping[str, Buckets] = field(default_factory=dict)
    """How some keys went since the segment began, coarsely; empty where the window is the whole of it."""

    @property
    def examined(self) -> int:
        """How many steps it holds; what was logged after the last of them is no further step."""
        timed = self.columns.get(STEP_SECONDS)
        return len(self.steps) if timed is None else int(timed.present.sum())

    def has(self, *keys: str) -> bool:
        """Whether all of these were recorded in the window."""
        return all(key in self.columns for key in keys)

    def first_of(self, keys: Sequence[str]) -> str | None:
        """The first of some keys that was recorded."""
        return next((key for key in keys if key in self.columns), None)

    def where(self, *keys: str, steady: bool = True) -> Flags:
        """The steps at which all of these are finite numbers."""
        selected = self.steady.copy() if steady else self.steady | True
        for key in keys:
            selected &= self.columns[key].finite
        return selected

    def aligned(self, *keys: str, steady: bool = True) -> tuple[Floats, ...]:
        """Values of some keys, at those steps only for which all of them are there."""
        selected = self.where(*keys, steady=steady)
        return tuple(self.columns[key].values[selected] for key in keys)


@dataclass(frozen=True)
class MachineFigures:
    """What was read of the machine while the window's steps were made."""

    key: str
    rank: int | None
    """The rank whose process it is of; None for what belongs to the host."""
    host: str
    device: str
    times: Floats
    values: Floats


@dataclass(frozen=True)
class Window:
    """The newest steps of the newest segment of a run, rank by rank, and what is known beside them."""

    run_id: str
    segment: str
    ranks: tuple[RankWindow, ...]
    machine: tuple[MachineFigures, ...] = ()
    events: tuple[Event, ...] = ()
    """Those of the segment that some detector asked for, oldest first."""
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What each rank said of itself when it began."""

    def events_of(self, kind: str, rank: int | None = None) -> list[Event]:
        """Events of a kind, oldest first; of one rank where that is given."""
        return [event for event in self.events if event.kind == kind and (rank is None or event.rank == rank)]

    def figures(self, key: str, host: str, rank: int | None = None) -> list[MachineFigures]:
        """What was read under a key on a host, for a rank where that is given."""
        return [
            figures
            for figures in self.machine
            if figures.key == key and figures.host == host and (rank is None or figures.rank in (rank, None))
        ]
