"""Finds the process of a run that failed first, and those that failed only because another did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.schema.run import Process

# Of an exception, only the name of its type and the first line of its text are stored.
_CONSEQUENCE = re.compile(
    r"^(?:ConnectionResetError|ConnectionAbortedError|ConnectionRefusedError|BrokenPipeError"
    r"|DistBackendError|DistNetworkError|DistStoreError"
    r"|ChildFailedError|SignalException|ProcessRaisedException|ProcessExitedException)\b"
    r"|connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|socket (?:closed|timeout)"
    r"|remote process exited|communicator was aborted|watchdog caught collective|monitored ?barrier"
    r"|(?:gloo|nccl|ucc|processgroup|tcpstore)\b.*time(?:d )?-?out"
    r"|timed out waiting \d+ ?ms|wait timeout after"
    r"|application timeout caused pair closure"
    r"|^(?:terminated|killed) by SIGTERM",
    re.IGNORECASE,
)
"""A lost connection to another rank, a collective that a rank left, or the launcher's signal."""

_UNCLEAR = re.compile(
    r"^exit (?:code|with) |^killed by |^interrupted by SIGINT$|^Aborted in process"
    r"|^process \d+ (?:ended|was killed(?! while))"
)
"""Says that a process ended, but not why: it may have been stopped. NCCL's watchdog aborts."""


_VANISHED = re.compile(r"^process \d+ (?:was killed \(no error message\)|ended without)")
"""Killed without an error message; stores of earlier versions have the second wording."""


def is_consequence(reason: str) -> bool:
    """Whether a reason is a consequence of another process's failure."""
    return _CONSEQUENCE.search(reason) is not None


def cause_of(processes: Sequence[Process]) -> Process | None:
    """The process whose failure ended the others: the first that did not fail as a consequence.

    None where no process failed.
    """
    failed = [process for process in processes if process.status in ("failed", "crashed")]
    return min(failed, key=_order, default=None)


def reason_with_rank(cause: Process, processes: Sequence[Process]) -> str:
    """The reason of the process that failed, with its rank where there are several ranks."""
    ranks = [process for process in processes if process.role == "rank"]
    has_other_ranks = len({process.rank for process in ranks}) > 1
    is_shared = all((process.status, process.reason) == (cause.status, cause.reason) for process in ranks)
    if cause.role != "rank" or not cause.reason or not has_other_ranks or is_shared:
        return cause.reason
    return f"rank {cause.rank}: {cause.reason}"


def _order(process: Process) -> tuple[int, float, int]:
    ended_ns = float("inf") if process.ended_ns is None else float(process.ended_ns)
    return _distance(process), ended_ns, process.rank


def _distance(process: Process) -> int:
    """How far a process is from the cause, according to its reason.

    Time decides only between equals: the end of a killed process is the time of its last record.
    """
    is_launcher = process.role == "launcher"
    if not process.reason:
        return 7
    if is_consequence(process.reason):
        return 5 if is_launcher else 4
    if is_launcher:
        if process.reason.startswith("killed by "):
            return 1  # only the launcher knows the signal that killed its process
        # Its console output says less than a rank's own exception, more than a lost connection.
        return 6 if process.reason.startswith("exit code ") else 3
    if _VANISHED.search(process.reason):
        return 2
    return 1 if _UNCLEAR.search(process.reason) else 0
