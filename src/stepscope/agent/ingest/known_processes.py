"""What is known of a process: from the store, from its opening, or from the name of its journal alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope import procfs
from stepscope.schema.run import Process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.journal.folder import JournalName
    from stepscope.store.base import Store

MARK_FIELDS = ("pid", "start_ticks", "boot_id", "namespace")


def stored_process(store: Store, name: JournalName) -> Process | None:
    """The process of a journal as the store has it; None where it has never heard of it."""
    for process in store.processes(name.run_id):
        if (process.run_id, process.segment, process.rank, process.pid) == name.stem:
            return process
    return None


def placeholder_process(name: JournalName) -> Process:
    """Stands in until the opening has been read, or for good when it is damaged."""
    return Process(
        run_id=name.run_id,
        name=name.run_id,
        project="default",
        segment=name.segment,
        rank=name.rank,
        host="",
        pid=name.pid,
        role="rank",
        started_ns=0,
    )


def process_from_opening(name: JournalName, before: Process, opening: Mapping[str, Any]) -> Process:
    """The process as its opening describes it, with what was found out about it before."""
    return Process(
        run_id=name.run_id,
        name=opening["run"],
        project=opening["project"],
        segment=name.segment,
        rank=name.rank,
        # One that was taken for a stranger is already in the store under these two.
        host=before.host if before.started_ns else opening["host"],
        pid=name.pid,
        role=opening["role"],
        started_ns=before.started_ns or opening["started_ns"],
        status=before.status,
        reason=before.reason,
        last_ns=before.last_ns,
        dropped=before.dropped,
        lost=before.lost,
        facts=opening["facts"],
    )


def mark_of(process: Process) -> procfs.ProcessMark:
    """By what a process is told from another with the same number."""
    mark = process.facts.get("mark")
    if mark and all(field in mark for field in MARK_FIELDS):
        return procfs.ProcessMark(**{field: mark[field] for field in MARK_FIELDS})
    # Its opening was damaged or has not come yet: go by the number alone.
    return procfs.mark(process.pid)
