"""Runs, their segments and processes, and how each of them ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from stepscope.schema.failure import cause_of, reason_with_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Status = Literal["running", "stalled", "finished", "failed", "crashed"]
STATUSES: tuple[Status, ...] = get_args(Status)
Role = Literal["rank", "worker", "launcher", "machine"]
"""What a process does in a run; `machine` only records machine metrics and trains nothing."""

LIVE: frozenset[Status] = frozenset({"running", "stalled"})
FAILED: frozenset[Status] = frozenset({"failed", "crashed"})

# The status of a segment is the first of these that any of its processes has: a dead rank matters most.
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
    """Records the process could not write: no room on disk, or too many keys."""
    lost: int = 0
    """Records that were damaged on disk."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the process recorded about itself when it began: command, versions, settings."""


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
    """A run as in the run list; its status is that of its newest segment."""

    id: str
    name: str
    project: str
    created_ns: int
    segments: tuple[SegmentInfo, ...]

    @property
    def status(self) -> Status:
        """The status of the newest segment."""
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
        return max(process.last_ns for segment in self.segments for process in segment.processes)


def segments_of(processes: Iterable[Process]) -> tuple[SegmentInfo, ...]:
    """Groups processes into segments, oldest first."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        groups.setdefault(process.segment, []).append(process)
    segments = [_segment(segment, members) for segment, members in groups.items()]
    return tuple(sorted(segments, key=lambda segment_info: segment_info.started_ns))


def deciding_process(processes: Iterable[Process]) -> Process | None:
    """The process whose settings apply to the run: the lowest rank of its newest start.

    A launcher or a machine recorder decides only where there is no rank.
    """
    candidates = [process for process in processes if process.role != "worker" and process.started_ns]
    if not candidates:
        return None
    started: dict[str, int] = {}
    for process in candidates:
        started[process.segment] = min(started.get(process.segment, process.started_ns), process.started_ns)
    newest = max(started, key=lambda segment: (started[segment], segment))
    # If a rank has several processes, as after a restart within a segment, the latest decides.
    return min(
        (process for process in candidates if process.segment == newest),
        key=lambda process: (process.role != "rank", process.rank, -process.started_ns),
    )


def detector_options(processes: Iterable[Process]) -> dict[str, Any]:
    """The detector options that a run was recorded with, by detector."""
    process = deciding_process(processes)
    recorded = None if process is None else process.facts.get("detectors")
    if not isinstance(recorded, dict):
        return {}
    return {name: options for name, options in recorded.items() if isinstance(options, dict)}


def without_end_mark(reason: str) -> str:
    """A reason without a final `.` or `:`, for use within a sentence."""
    return reason.rstrip(" .:")


def _segment(segment: str, members: Sequence[Process]) -> SegmentInfo:
    # Loader workers are started and killed routinely: they do not count.
    deciding = [process for process in members if process.role != "worker"] or list(members)
    status, reason = outcome_of(deciding)
    ends = [process.ended_ns for process in deciding]
    is_live = status in LIVE or any(process.status in LIVE for process in deciding)
    return SegmentInfo(
        id=segment,
        status=status,
        reason=reason,
        started_ns=min(process.started_ns for process in members),
        ended_ns=None if is_live else max(end or 0 for end in ends),
        processes=tuple(sorted(members, key=lambda process: (process.rank, process.started_ns))),
    )


def outcome_of(deciding: Sequence[Process]) -> tuple[Status, str]:
    """Status and reason of several processes together: those of the failure that caused the others."""
    cause = cause_of(deciding)
    if cause is not None:
        return cause.status, reason_with_rank(cause, deciding)
    statuses = {process.status for process in deciding}
    status = next(status for status in PRECEDENCE if status in statuses)
    reasons = (process.reason for process in deciding if process.status == status and process.reason)
    return status, next(reasons, "")
