"""The interface of a store: what readers ask, and what the agent writes.

Everything outside this room uses these classes, and opens a store with `store.open`. A second kind of store
implements `Reader`, `Store` and `AlertBook`, and passes `tests/store/test_every_store.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stepscope.store.buckets import Limits, buckets_on
from stepscope.store.step_clock import StepClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.alert import Notice, Severity
    from stepscope.schema.record import Event, StoredArray
    from stepscope.schema.run import Process, RunInfo
    from stepscope.schema.series import Axis, Buckets, Points, Selection, SeriesInfo, Source


@dataclass(frozen=True)
class SeriesSummary:
    """One series in a few numbers; values that are not finite are counted and excluded from the rest."""

    key: str
    source: Source
    points: int
    nonfinite: int
    minimum: float | None
    """The smallest finite value; None where none is finite."""
    maximum: float | None
    total: float
    """The sum of the finite values."""
    last: float | None
    """The newest value; None when it is not a number."""
    last_step: int | None
    last_ns: int

    @property
    def finite(self) -> int:
        """How many values are finite."""
        return self.points - self.nonfinite

    @property
    def mean(self) -> float | None:
        """The mean of the finite values; None where none is."""
        return self.total / self.finite if self.finite > 0 else None


@dataclass(frozen=True)
class Counter:
    """How many points a series has, and which is the last."""

    series_id: int
    """Its number in the store, which never changes."""
    key: str
    source: Source
    points: int
    last_step: int | None
    last_ns: int


@dataclass(frozen=True)
class StoreHealth:
    """What a check of a store has found."""

    summary: str
    bytes_used: int | None = None
    problem: Literal["old_library", "damaged", "no_access"] | None = None


@dataclass(frozen=True)
class SetAside:
    """A journal that cannot be read or stored for now, and is retried."""

    path: str
    """Its path, relative to the store folder."""
    reason: str
    advice: str
    """What a person can do."""
    since_ns: int


class Reader(ABC):
    """Reads a store; opens nothing for writing. Every method raises StoreError where the store is damaged."""

    @abstractmethod
    def moment(self) -> AbstractContextManager[None]:
        """Answers all queries of the block from the same snapshot, whatever is written meanwhile."""

    @abstractmethod
    def version(self) -> int:
        """A number that changes when somebody else has written to the store; cheap to read."""

    @abstractmethod
    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""

    @abstractmethod
    def processes(self, run_id: str) -> list[Process]:
        """Every process that recorded a run, in the order of their first record."""

    @abstractmethod
    def keys(
        self, run_id: str, axis: Axis = "step", *, limit: int | None = None, after: str | None = None
    ) -> list[SeriesInfo]:
        """The keys of a run on an axis in alphabetical order, a page of them where a limit is given."""

    @abstractmethod
    def axis(self, run_id: str, key: str) -> Axis | None:
        """The axis of a key; of two, that of logged values comes first. None when there is no such key."""

    @abstractmethod
    def sources(self, run_id: str) -> dict[Source, list[str]]:
        """The sources of a run's series, and the keys of each, in the order they were first stored."""

    @abstractmethod
    def summaries(self, run_id: str, keys: Collection[str] | None = None) -> list[SeriesSummary]:
        """Summaries of all series of a run, or of some keys; the cost does not grow with their length."""

    @abstractmethod
    def points(self, selection: Selection) -> Points:
        """Every point of a series, in the order it was logged."""

    @abstractmethod
    def counters(self, run_id: str) -> list[Counter]:
        """How far each series of a run has come, in the order they were first stored.

        A reader that remembers the number of points of a series gets the newer ones from `points_since`.
        """

    @abstractmethod
    def count(self, selection: Selection) -> int:
        """How many points a series has."""

    @abstractmethod
    def points_since(self, selection: Selection, after: int) -> Points:
        """The points of `points` without the first `after`; the cost depends on what is new."""

    @abstractmethod
    def events_since(self, run_id: str, after: int) -> list[tuple[int, Event]]:
        """The events of a run that were stored after event number `after`, with their numbers."""

    @abstractmethod
    def newest_event(self, run_id: str) -> int:
        """The number of the event of a run that was stored last; 0 when it has none."""

    @abstractmethod
    def newest(
        self, run_id: str, segment: str, keys: Sequence[str], rows: int
    ) -> dict[Source, dict[str, Points]]:
        """The newest points of some keys of a segment, at most `rows` of each, by source."""

    @abstractmethod
    def buckets(
        self, selection: Selection, most: int, low: int | None = None, high: int | None = None
    ) -> Buckets:
        """A series on its own axis in at most `most` buckets, between two steps (or seconds) where given."""

    def buckets_on(self, selection: Selection, axis: Axis, limits: Limits, clock: StepClock) -> Buckets:
        """A series on the other axis: logged values by the second, or samples by the step in progress.

        Buckets by the second start at fractions of one (`Buckets.ticks`). Up to `buckets.MAX_POINTS` points
        are placed one by one; more are placed in buckets of their own axis, each where its last point is.
        """
        return buckets_on(self, clock, selection, axis, limits)

    def step_clock(self, run_id: str, counters: list[Counter] | None = None) -> StepClock:
        """Finds the step that a run was training at a time; keeps what it has read for the next call.

        `counters` are those of the run, where the caller has read them anyway.
        """
        return StepClock(self, run_id, counters)

    @abstractmethod
    def reach(self, selection: Selection) -> tuple[int, int] | None:
        """The first and the last step (or second) of a series; None when it has no point."""

    @abstractmethod
    def events(self, run_id: str, kind: str | Collection[str] | None = None) -> list[Event]:
        """The events of a run, of one kind, of several or of all, oldest first."""

    @abstractmethod
    def arrays(self, run_id: str, key: str) -> list[tuple[int | None, NDArray[np.generic]]]:
        """Steps and arrays logged under a key, oldest first."""

    @abstractmethod
    def stored_arrays(self, run_id: str) -> Iterator[StoredArray]:
        """All arrays of a run, in the order they were stored; one at a time, because they may be large."""

    @abstractmethod
    def alerts(self, run_id: str) -> list[dict[str, Any]]:
        """The alerts of a run, oldest first."""

    @abstractmethod
    def notices(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The notices of a run, or of all runs, and their channels; oldest first."""

    @abstractmethod
    def findings(self, run_id: str) -> list[dict[str, Any]]:
        """The findings of a run, oldest first; `open` says whether each is open."""

    @abstractmethod
    def set_aside(self) -> list[SetAside]:
        """The journals that cannot be read or stored for now, by their paths."""

    @abstractmethod
    def progress_of_all(self) -> dict[int, int]:
        """How far each journal file was ingested, by its id."""

    @abstractmethod
    def bytes_used(self) -> int:
        """The size of the store on disk."""

    @abstractmethod
    def verify(self) -> None:
        """Raises StoreError when anything in the store is damaged; reads all of it, which takes time."""

    @abstractmethod
    def close(self) -> None:
        """Closes files and connections."""


@dataclass(frozen=True)
class OpenAlert:
    """An alert that fires."""

    run_id: str
    rule: str
    severity: Severity
    message: str
    fired_ns: int
    fields: dict[str, Any]
    """Its subject (`rank`, `host`, `device`), its numbers, and whether a notice was made."""
    id: int = 0


@dataclass(frozen=True)
class Posted:
    """A notice in the outbox of a channel."""

    id: int
    channel: str
    notice: Notice
    due_ns: int
    attempts: int


class AlertBook(ABC):
    """The alerts and the outbox of notices, written within the store's transactions."""

    @abstractmethod
    def fire(self, alert: OpenAlert) -> int:
        """Stores an alert that fires; returns its number."""

    @abstractmethod
    def resolve(self, alert_id: int, at_ns: int) -> None:
        """Marks an alert as resolved."""

    @abstractmethod
    def add_fields(self, alert_id: int, fields: dict[str, Any]) -> None:
        """Adds fields to an alert."""

    @abstractmethod
    def open_alerts(self) -> list[OpenAlert]:
        """The alerts that are not resolved."""

    @abstractmethod
    def notified_ns(self, run_id: str, rule: str) -> int | None:
        """When a notice for a rule of a run was last made."""

    @abstractmethod
    def post(self, channel: str, notice: Notice) -> None:
        """Puts a notice into the outbox of a channel, once."""

    @abstractmethod
    def undelivered(self) -> list[Posted]:
        """The notices in all outboxes, oldest first."""

    @abstractmethod
    def delivered(self, posted_id: int, at_ns: int) -> None:
        """Marks a notice as delivered."""

    @abstractmethod
    def postpone(self, posted_id: int, due_ns: int, trouble: str) -> None:
        """Records a failed attempt, and when to try again."""

    @abstractmethod
    def give_up(self, posted_id: int, at_ns: int, trouble: str) -> None:
        """Marks a notice as abandoned."""


class Store(Reader):
    """A store that the agent writes. There is one writer; its transactions are all or nothing.

    Writes happen within a transaction. A write that fails raises StoreUnavailable where it may succeed later,
    as on a full disk, and another StoreError where it never will.
    """

    @property
    @abstractmethod
    def alert_book(self) -> AlertBook:
        """Its alerts and notices."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commits all writes of the block or none; committed writes survive a power loss."""

    @abstractmethod
    def attempt(self) -> AbstractContextManager[None]:
        """Within a transaction: rolls back the writes of the block, and only those, if it raises."""

    @abstractmethod
    def put_set_aside(self, journals: Collection[SetAside]) -> None:
        """Replaces the list of journals that cannot be read or stored for now."""

    @abstractmethod
    def put_process(self, process: Process) -> None:
        """Stores a process, or its new status."""

    @abstractmethod
    def append(
        self,
        source: Source,
        keys: Sequence[str],
        steps: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        """Adds rows of one key set; `values` has a row for each step and a column for each key."""

    @abstractmethod
    def seal(self, source: Source) -> None:
        """Packs the unsealed rows of a source that has ended, on both axes."""

    @abstractmethod
    def put_event(self, run_id: str, event: Event) -> None:
        """Stores an event."""

    @abstractmethod
    def put_array(self, run_id: str, segment: str, rank: int, fields: dict[str, Any], raw: bytes) -> None:
        """Stores an array; `fields` has key, step, time, dtype and shape."""

    @abstractmethod
    def put_finding(self, run_id: str, finding: Mapping[str, Any], at_ns: int) -> None:
        """Stores a finding under its key, or updates it."""

    @abstractmethod
    def clear_finding(self, run_id: str, key: str, at_ns: int) -> None:
        """Closes a finding."""

    @abstractmethod
    def progress(self, file_id: int) -> tuple[int, int]:
        """How far a journal file was ingested, and how many of its records were lost."""

    @abstractmethod
    def set_progress(self, file_id: int, offset: int, lost: int) -> None:
        """Stores how far a journal file is ingested, within the transaction that stores its rows."""

    @abstractmethod
    def forget_progress(self, file_ids: Sequence[int]) -> None:
        """Deletes the offsets of journal files that no longer exist."""

    @abstractmethod
    def is_in_place(self) -> bool:
        """Whether it is still the store that readers of its folder open, and was not deleted or replaced.

        Raises OSError where that is unknown.
        """

    @abstractmethod
    def leave_open(self) -> None:
        """Drops the store instead of closing it, and touches no file: others may be at its place by now."""

    @abstractmethod
    def damaged_copies(self) -> list[Path]:
        """Copies of damaged parts, made when the store was opened; records in them are lost."""

    @abstractmethod
    def delete_run(self, run_id: str) -> None:
        """Deletes a run and frees its space."""
