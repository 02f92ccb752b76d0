"""The newest part of a run, read-only: the input of a detector."""

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
    """The values of a key, one for each step of the window."""

    values: Floats
    """NaN at steps for which it was not recorded, and where NaN was recorded."""
    present: Flags
    """Whether it was recorded."""
    finite: Flags
    """Whether it was recorded and is a finite number."""


@dataclass(frozen=True)
class RankWindow:
    """The newest steps of one rank, all keys aligned."""

    rank: int
    host: str
    steps: Ints
    """In order, without duplicates."""
    times: Floats
    """When each was last logged, in seconds since the epoch."""
    columns: Mapping[str, Column]
    steady: Flags
    """Timed steps after the warm-up, without compilation."""
    warm_up: int = 0
    """How many steps at the beginning were excluded as warm-up."""
    compiled: int = 0
    """How many steps were excluded because something was compiled in them."""
    is_whole: bool = True
    """Whether it includes the first step of the segment."""
    course: Mapping[str, Buckets] = field(default_factory=dict)
    """Coarse history of some keys since the segment began; empty where the window is the whole segment."""

    @property
    def examined(self) -> int:
        """How many steps it has; values logged after the last step are not counted."""
        timed = self.columns.get(STEP_SECONDS)
        return len(self.steps) if timed is None else int(timed.present.sum())

    def has(self, *keys: str) -> bool:
        """Whether all of these keys were recorded in the window."""
        return all(key in self.columns for key in keys)

    def first_of(self, keys: Sequence[str]) -> str | None:
        """The first of these keys that was recorded."""
        return next((key for key in keys if key in self.columns), None)

    def below(self, prefix: str) -> dict[str, Column]:
        """The columns whose keys begin with this and a slash, by the rest of the key, in recorded order."""
        return {
            key.removeprefix(f"{prefix}/"): column
            for key, column in self.columns.items()
            if key.startswith(f"{prefix}/")
        }

    def where(self, *keys: str, steady: bool = True) -> Flags:
        """The steps at which all of these keys have finite values."""
        selected = self.steady.copy() if steady else self.steady | True
        for key in keys:
            selected &= self.columns[key].finite
        return selected

    def aligned(self, *keys: str, steady: bool = True) -> tuple[Floats, ...]:
        """Values of several keys, only at the steps where all of them are finite."""
        selected = self.where(*keys, steady=steady)
        return tuple(self.columns[key].values[selected] for key in keys)


@dataclass(frozen=True)
class MachineFigures:
    """Values of a machine metric during the window's steps; of a course, the newest readings."""

    key: str
    rank: int | None
    """The rank of the process; None for the host."""
    host: str
    device: str
    times: Floats
    values: Floats


@dataclass(frozen=True)
class Window:
    """The newest steps of the newest segment of a run by rank, with machine metrics, events and facts."""

    run_id: str
    segment: str
    ranks: tuple[RankWindow, ...]
    machine: tuple[MachineFigures, ...] = ()
    events: tuple[Event, ...] = ()
    """Events of the segment that a detector uses, oldest first."""
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What each rank recorded about itself when it began."""
    remaining_s: float | None = None
    """How long the run will still take; 0 for one that has ended, None if it is not known."""
    stalled: Mapping[int, float] = field(default_factory=dict)
    """Ranks whose process lives and is stalled, and when each recorded last, in seconds since the epoch."""

    def events_of(self, kind: str, rank: int | None = None) -> list[Event]:
        """Events of a kind, oldest first; of one rank if given."""
        return [event for event in self.events if event.kind == kind and (rank is None or event.rank == rank)]

    def libraries(self, rank: int) -> set[str]:
        """The libraries that a rank had loaded when it began."""
        loaded = self.facts.get(rank, {}).get("libraries", {})
        return {"lightning" if name == "pytorch_lightning" else name for name in loaded}

    def figures(self, key: str, host: str, rank: int | None = None) -> list[MachineFigures]:
        """Machine metrics of a key on a host; those of a rank, and of the host itself, if a rank is given."""
        return [
            figures
            for figures in self.machine
            if figures.key == key and figures.host == host and (rank is None or figures.rank in (rank, None))
        ]
