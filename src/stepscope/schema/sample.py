"""What a sampler reads: figures of a device or a process, facts about it, and what there is to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.run import Role


@dataclass(frozen=True)
class Metric:
    """A figure a sampler may read: its key, with the unit at the end, and what it means."""

    key: str
    sentence: str


@dataclass(frozen=True)
class Watched:
    """A recording process of this host: the root of a tree of processes that work for a run."""

    run_id: str
    segment: str
    rank: int
    pid: int
    role: Role


@dataclass(frozen=True)
class Sample:
    """Figures read at one moment. What could not be read is left out: never zero, never NaN."""

    values: Mapping[str, float]
    device: str = ""
    """Whose figures: the UUID of a GPU, the name of a disk, a loader worker; empty for the host itself."""
    owner: Watched | None = None
    """The process they belong to; None for those of the host, which every run on it shares."""


@dataclass(frozen=True)
class DeviceFacts:
    """What does not change about a device while it is watched: name, index, driver."""

    device: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Notice:
    """Something a person should know about what is, or is not, read; said once for each subject."""

    subject: str
    text: str


Reading = Sample | DeviceFacts | Notice
