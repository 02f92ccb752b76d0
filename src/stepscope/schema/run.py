"""Runs, their segments and processes, and how each of them ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from stepscope.schema.failure import cause_of, reason_with_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Status = Literal["running", "stalled", "finished", "failed", "crashed"]
Role = Literal["rank", "worker", "launcher", "machine"]
"""What a process does in a run; `machine` has one watched and trains nothing."""

LIVE: frozenset[Status] = frozenset({"running", "stalled"})

# The first of these that any process of a segment shows is the segment's: a dead rank matters most.
PRECEDENCE: tuple[Status, ...] = ("crashed", "failed", "running", "stalled", "finished")


@dataclass
class Process:
    """One process that wrote a journal."""

    run_id: str
    name: str
    project: str
    segment: str
    rank: int
    host: str
    pid: int
    role: Role
    started_ns: int
    status: Status = "running"
    reason: str = ""
    exit_code: int | None = None
    ended_ns: int | None = None
    last_ns: int = 0
    """When it last recorded something."""
    dropped: int = 0
    """Records the process could not keep: no room on disk, or too many keys."""
    lost: int = 0
    """Records that were damaged on disk."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the process said of itself when it began: command, versions, settings."""


@dataclass(frozen=True)
class SegmentInfo:
    """One start of a run: all its processes together."""

    id: str
    status: Status
    reason: str
    started_ns: int
    ended_ns: int | None
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class RunInfo:
    """A run as a list shows it; its status is that of its newest segment."""

    id: str
    name: str
    project: str
    created_ns: int
    segments: tuple[SegmentInfo, ...]

    @property
    def status(self) -> Status:
        """How the newest segment fares."""
        return self.segments[-1].status

    @property
    def reason(self) -> str:
        """Why the newest segment has its status; empty when there is nothing to add."""
        return self.segments[-1].reason

    @property
    def ended_ns(self) -> int | None:
        """When it ended; None while it is live."""
        return self.segments[-1].ended_ns

    @property
    def last_ns(self) -> int:
        """When anything was last recorded."""
        return max(process.last_ns for part in self.segments for process in part.processes)


def segments_of(processes: Iterable[Process]) -> tuple[SegmentInfo, ...]:
    """Groups processes into segments, oldest first."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        groups.setdefault(process.segment, []).append(process)
    found = [_segment(segment, members) for segment, members in groups.items()]
    return tuple(sorted(found, key=lambda part: part.started_ns))


def deciding_process(processes: Iterable[Process]) -> Process | None:
    """The process whose settings are those of the run: of its newest start, the lowest rank.

    A launcher or a machine that is watched decides only where no rank speaks for itself.
    """
    own = [one for one in processes if one.role != "worker" and one.started_ns]
    if not own:
        return None
    begun: dict[str, int] = {}
    for one in own:
        begun[one.segment] = min(begun.get(one.segment, one.started_ns), one.started_ns)
    newest = max(begun, key=lambda segment: (begun[segment], segment))
    # Of several that were one rank, as after a restart within a start, the latest.
    return min(
        (one for one in own if one.segment == newest),
        key=lambda one: (one.role != "rank", one.rank, -one.started_ns),
    )


def detector_options(processes: Iterable[Process]) -> dict[str, Any]:
    """The options of detectors that a run was recorded with, by detector."""
    process = deciding_process(processes)
    said = None if process is None else process.facts.get("detectors")
    if not isinstance(said, dict):
        return {}
    return {name: options for name, options in said.items() if isinstance(options, dict)}


def without_end_mark(reason: str) -> str:
    """A reason as part of a sentence: messages of exceptions end in `.` or `:`, or in nothing."""
    return reason.rstrip(" .:")


def _segment(segment: str, members: Sequence[Process]) -> SegmentInfo:
    # Loader workers come and go and are killed as a matter of course: they decide nothing.
    deciding = [one for one in members if one.role != "worker"] or list(members)
    status, reason = outcome_of(deciding)
    ends = [one.ended_ns for one in deciding]
    live = status in LIVE or any(one.status in LIVE for one in deciding)
    return SegmentInfo(
        id=segment,
        status=status,
        reason=reason,
        started_ns=min(one.started_ns for one in members),
        ended_ns=None if live else max(end or 0 for end in ends),
        processes=tuple(sorted(members, key=lambda one: (one.rank, one.started_ns))),
    )


def outcome_of(deciding: Sequence[Process]) -> tuple[Status, str]:
    """What became of several processes together, and why: the failure that the others followed from."""
    cause = cause_of(deciding)
    if cause is not None:
        return cause.status, reason_with_rank(cause, deciding)
    status = next(known for known in PRECEDENCE if any(one.status == known for one in deciding))
    return status, next((one.reason for one in deciding if one.status == status and one.reason), "")
