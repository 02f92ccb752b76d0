"""The base class of importers, and what they read: runs, with the records of each in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from stepscope.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.run import Status


class Row(NamedTuple):
    """Values of a step."""

    step: int
    time_ns: int
    values: Mapping[str, float]


class Array(NamedTuple):
    """An array of a step, such as a histogram."""

    key: str
    step: int
    time_ns: int
    values: NDArray[np.float64]


class Params(NamedTuple):
    """Hyper-parameters; later ones are added to earlier ones."""

    values: Mapping[str, Any]


class Note(NamedTuple):
    """An event, such as a text or lines of the console."""

    kind: str
    time_ns: int
    step: int | None
    fields: Mapping[str, Any]


class End(NamedTuple):
    """How the run ended; without a time, at its last record. The last of several counts."""

    status: Status
    reason: str = ""
    time_ns: int | None = None
    exit_code: int | None = None


class Marks(NamedTuple):
    """What people said of the run in the other tool. The last of several counts."""

    tags: tuple[str, ...]
    note: str


class LeftOut(NamedTuple):
    """How many values of each name were left out, and what they are."""

    counts: Mapping[str, int]
    what: str


class Remark(NamedTuple):
    """What else a person should know about the import of a run."""

    text: str


NO_VALUES = "values that are neither numbers nor texts, or whose name another value of the row has"
MEDIA = "pictures, tables and other media"
"""What is left out."""

_Run = TypeVar("_Run")

Record: TypeAlias = Row | Array | Params | Note | End | Marks | LeftOut | Remark


@dataclass(frozen=True)
class SourceRun:
    """A run as its source describes it."""

    name: str
    identity: str
    """What distinguishes it from all other runs of its kind, where possible also in a copy."""
    place: str
    """The file or folder it is read from."""
    started_ns: int
    records: Callable[[], Iterator[Record]] = field(repr=False)
    """Reads all of it, in order; raises SourceError where it is damaged."""
    project: str = ""
    host: str = ""
    """The machine it ran on; empty where the source does not say."""
    earlier_identities: tuple[str, ...] = ()
    """Its identities while it was shorter, newest first, where the identity has its beginning."""
    written_ns: int | None = None
    """When it was last written to; None where the source does not say."""
    is_running: bool = False
    """Whether the source says that the training goes on."""


@dataclass(frozen=True)
class DamagedRun:
    """A run whose description cannot be read."""

    name: str
    place: str
    error: SourceError


def run_or_damage(name: str, place: object, read: Callable[[], _Run]) -> _Run | DamagedRun:
    """The run that `read` returns, or the damage that keeps it from doing so: then others can be read."""
    try:
        return read()
    except SourceError as error:
        return DamagedRun(name, str(place), error)


class Importer(ABC):
    """Reads the runs of another tool. A run is read piece by piece, so that memory stays bounded."""

    title: ClassVar[str]
    """The name of the tool or format, for messages."""

    @abstractmethod
    def recognises(self, place: str) -> bool:
        """Whether a path, or the address of a server, is a source of this kind; reads little of it."""

    @abstractmethod
    def runs(self, place: str) -> Iterator[SourceRun | DamagedRun]:
        """The runs of a source; raises SourceError for a source that cannot be read."""
