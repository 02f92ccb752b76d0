"""The questions the product asks of a store, and what the agent tells it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.alert import Notice, Severity
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process, RunInfo
    from stepscope.schema.series import Axis, Buckets, Points, Selection, SeriesInfo, Source


@dataclass(frozen=True)
class SeriesSummary:
    """One series in a few numbers; those that are not finite are counted and left out of the rest."""

    key: str
    source: Source
    points: int
    nonfinite: int
    minimum: float | None
    """The least finite value; None where none is finite."""
    maximum: float | None
    total: float
    """The sum of the finite ones."""
    last: float | None
    """The newest value; None when it is not a number."""
    last_step: int | None
    last_ns: int

    @property
    def finite(self) -> int:
        """How many are finite."""
        return self.points - self.nonfinite

    @property
    def mean(self) -> float | None:
        """The mean of the finite ones; None where none is."""
        return self.total / self.finite if self.finite > 0 else None


@dataclass(frozen=True)
class SetAside:
    """A journal that cannot be read or stored for now, and is tried again."""

    path: str
    """Where it is in the store folder."""
    reason: str
    advice: str
    """What a person can do."""
    since_ns: int


class Reader(ABC):
    """Answers questions; opens nothing for writing."""

    @abstractmethod
    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""

    @abstractmethod
    def processes(self, run_id: str) -> list[Process]:
        """Every process that recorded a run, in the order they were met."""

    @abstractmethod
    def keys(
        self, run_id: str, axis: Axis = "step", *, limit: int | None = None, after: str | None = None
    ) -> list[SeriesInfo]:
        """The keys of a run on an axis in alphabetical order, a page of them where a limit is given."""

    @abstractmethod
    def axis(self, run_id: str, key: str) -> Axis | None:
        """What a key is counted in, what was logged before what was read; None when there is no such key."""

    @abstractmethod
    def sources(self, run_id: str) -> dict[Source, list[str]]:
        """Where the series of a run come from, and the keys of each, in the order they were first met."""

    @abstractmethod
    def summaries(self, run_id: str, keys: Collection[str] | None = None) -> list[SeriesSummary]:
        """Every series of a run, or those of some keys, summed up; costs little however long they are."""

    @abstractmethod
    def points(self, selection: Selection) -> Points:
        """Every point of a series, in the order it was logged."""

    @abstractmethod
    def points_since(self, selection: Selection, after: int) -> Points:
        """The points after the first so many of those `points` gives; older chunks are not unpacked."""

    @abstractmethod
    def newest(
        self, run_id: str, segment: str, keys: Sequence[str], rows: int
    ) -> dict[Source, dict[str, Points]]:
        """The newest points of some keys of a segment, at most so many of each, by where they come from."""

    @abstractmethod
    def buckets(
        self, selection: Selection, most: int, low: int | None = None, high: int | None = None
    ) -> Buckets:
        """A series in at most so many buckets, between two steps (or seconds) where given."""

    @abstractmethod
    def events(self, run_id: str, kind: str | Collection[str] | None = None) -> list[Event]:
        """What happened in a run, of one kind, of several or of all, oldest first."""

    @abstractmethod
    def arrays(self, run_id: str, key: str) -> list[tuple[int | None, NDArray[np.generic]]]:
        """Steps and arrays logged under a key, oldest first."""

    @abstractmethod
    def alerts(self, run_id: str) -> list[dict[str, Any]]:
        """The alerts of a run, oldest first."""

    @abstractmethod
    def notices(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """What people were told of a run, or of all, and by which channels; oldest first."""

    @abstractmethod
    def findings(self, run_id: str) -> list[dict[str, Any]]:
        """The findings of a run, oldest first, as they were put; `open` says how each stands."""

    @abstractmethod
    def set_aside(self) -> list[SetAside]:
        """The journals that cannot be read or stored for now, by their paths."""

    @abstractmethod
    def bytes_used(self) -> int:
        """What the store takes on disk."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of files and connections."""


@dataclass(frozen=True)
class OpenAlert:
    """An alert that fires."""

    run_id: str
    rule: str
    severity: Severity
    message: str
    fired_ns: int
    fields: dict[str, Any]
    """Whom it is about (`rank`, `host`, `device`), its numbers, and what was done about it."""
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
    """What the agent keeps of alerts and of notices on their way, within the store's transactions."""

    @abstractmethod
    def fire(self, alert: OpenAlert) -> int:
        """Notes that an alert fires; gives its number."""

    @abstractmethod
    def resolve(self, alert_id: int, at_ns: int) -> None:
        """Notes that an alert is over."""

    @abstractmethod
    def add_fields(self, alert_id: int, fields: dict[str, Any]) -> None:
        """Adds to what is known of an alert."""

    @abstractmethod
    def open_alerts(self) -> list[OpenAlert]:
        """Those that are not over."""

    @abstractmethod
    def notified_ns(self, run_id: str, rule: str) -> int | None:
        """When a person was last told of a rule in a run."""

    @abstractmethod
    def post(self, channel: str, notice: Notice) -> None:
        """Puts a notice into the outbox of a channel, once."""

    @abstractmethod
    def undelivered(self) -> list[Posted]:
        """What is in the outboxes, oldest first."""

    @abstractmethod
    def delivered(self, posted_id: int, at_ns: int) -> None:
        """Notes that a notice has arrived."""

    @abstractmethod
    def postpone(self, posted_id: int, due_ns: int, trouble: str) -> None:
        """Notes a failed attempt, and when to try again."""

    @abstractmethod
    def give_up(self, posted_id: int, at_ns: int, trouble: str) -> None:
        """Notes that a notice will never arrive."""


class Store(Reader):
    """Takes what the agent has read. There is one writer; its transactions are all or nothing."""

    @property
    @abstractmethod
    def alert_book(self) -> AlertBook:
        """Its alerts and notices."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """What is told within it is kept together or not at all, and once kept survives power loss."""

    @abstractmethod
    def attempt(self) -> AbstractContextManager[None]:
        """Within a transaction: what is told within it is taken back, and that alone, where it raises."""

    @abstractmethod
    def put_set_aside(self, journals: Collection[SetAside]) -> None:
        """Notes which journals cannot be read or stored for now, in place of those noted before."""

    @abstractmethod
    def put_process(self, process: Process) -> None:
        """Notes a process, or what has become of it."""

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
        """Packs what is still loose of a source that has ended, on either axis."""

    @abstractmethod
    def put_event(self, run_id: str, event: Event) -> None:
        """Notes an event."""

    @abstractmethod
    def put_array(self, run_id: str, segment: str, rank: int, fields: dict[str, Any], raw: bytes) -> None:
        """Keeps an array; `fields` has key, step, time, dtype and shape."""

    @abstractmethod
    def put_finding(self, run_id: str, finding: Mapping[str, Any], at_ns: int) -> None:
        """Notes a finding by its key, or how one that is known stands now."""

    @abstractmethod
    def clear_finding(self, run_id: str, key: str, at_ns: int) -> None:
        """Notes that what was found is no longer there."""

    @abstractmethod
    def progress(self, file_id: int) -> tuple[int, int]:
        """How far a journal file was ingested, and how many of its records were lost."""

    @abstractmethod
    def set_progress(self, file_id: int, offset: int, lost: int) -> None:
        """Notes how far a journal file is ingested, within the transaction that holds its rows."""

    @abstractmethod
    def forget_progress(self, file_ids: Sequence[int]) -> None:
        """Drops the notes on files that no longer exist."""

    @abstractmethod
    def delete_run(self, run_id: str) -> None:
        """Deletes a run and gives its space back."""
