"""What a sampler returns: metrics of a device or a process, facts about it, and notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.run import Role


@dataclass(frozen=True)
class Metric:
    """A metric a sampler may return: its key, with the unit at the end, and what it means."""

    key: str
    sentence: str


@dataclass(frozen=True)
class Watched:
    """A recording process of this host: the root of the process tree of a run."""

    run_id: str
    segment: str
    rank: int
    pid: int
    role: Role


@dataclass(frozen=True)
class Sample:
    """Values read at one time. What could not be read is left out: it is never zero or NaN."""

    values: Mapping[str, float]
    device: str = ""
    """The device: the UUID of a GPU, the name of a disk, a loader worker; empty for the host itself."""
    owner: Watched | None = None
    """The process they belong to; None for values of the host, which every run on it shares."""


@dataclass(frozen=True)
class DeviceFacts:
    """Constant properties of a device: name, index, driver."""

    device: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Notice:
    """A message about what is, or is not, sampled; recorded once for each subject."""

    subject: str
    text: str


Reading = Sample | DeviceFacts | Notice
