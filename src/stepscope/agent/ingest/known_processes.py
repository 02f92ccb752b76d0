"""Makes process descriptions from the store, from an opening record, or from a journal's name alone."""

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
    """The process of a journal as the store has it; None where it is not in the store."""
    for process in store.processes(name.run_id):
        if (process.run_id, process.segment, process.rank, process.pid) == name.stem:
            return process
    return None


def placeholder_process(name: JournalName) -> Process:
    """Makes a process from its journal's name, until the opening is read, or for good if that is damaged."""
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
    """Makes a process from its opening record, with what was known about it before.

    One that had ended records again if an exec of another program failed, or that program records too. But
    a file that was written again, because its folder was deleted, may be read after a later one.
    """
    is_later = before.ended_ns is not None and opening["time"] > before.ended_ns
    return Process(
        run_id=name.run_id,
        name=opening["run"],
        project=opening["project"],
        segment=name.segment,
        rank=name.rank,
        # A process that was unknown before its opening came is already in the store under these two.
        host=before.host if before.started_ns else opening["host"],
        pid=name.pid,
        role=opening["role"],
        started_ns=before.started_ns or opening["started_ns"],
        status="running" if is_later else before.status,
        reason="" if is_later else before.reason,
        exit_code=None if is_later else before.exit_code,
        ended_ns=None if is_later else before.ended_ns,
        last_ns=before.last_ns,
        dropped=before.dropped,
        lost=before.lost,
        facts=opening["facts"],
    )


def mark_of(process: Process) -> procfs.ProcessMark:
    """What distinguishes a process from a later one with the same number."""
    mark = process.facts.get("mark")
    if mark and all(field in mark for field in MARK_FIELDS):
        return procfs.ProcessMark(**{field: mark[field] for field in MARK_FIELDS})
    # Its opening was damaged or has not come yet: use the number alone.
    return procfs.mark(process.pid)
