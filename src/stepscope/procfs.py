"""Tells one process from another that later has the same number, by what Linux says of them."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_MAX_LINE = 4096
"""A process is told of in one line of some hundred bytes."""


@dataclass(frozen=True)
class ProcessMark:
    """What makes a process unmistakable on its host."""

    pid: int
    start_ticks: int | None
    boot_id: str | None
    namespace: str | None


def mark(pid: int, proc: Path = PROC) -> ProcessMark:
    """The marks of a living process."""
    return ProcessMark(pid, start_ticks(pid, proc), boot_id(proc), _namespace(proc))


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process began, in clock ticks since boot; None when there is none of that number."""
    fields = _fields(pid, proc)
    # A zombie has ended; only its parent has not looked yet.
    return None if fields is None or fields[0] in b"ZX" else int(fields[19])


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is held by SIGSTOP or a debugger."""
    fields = _fields(pid, proc)
    return fields is not None and fields[0] in b"Tt"


def _fields(pid: int, proc: Path) -> list[bytes] | None:
    """What the kernel says of a process, from its state on; None when there is none of that number."""
    try:
        # A third of what `Path.read_text` costs: an agent asks this of every process twice a second.
        file = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(file, _MAX_LINE)
    except OSError:  # ended in the middle of it
        return None
    finally:
        os.close(file)
    return line.rpartition(b")")[2].split()


def boot_id(proc: Path = PROC) -> str | None:
    """Another one after every start of the machine."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def is_alive(mark: ProcessMark, proc: Path = PROC) -> bool | None:
    """Whether that very process still runs; None where it cannot be told from here."""
    boot, namespace = _own_boot_and_namespace() if proc is PROC else (boot_id(proc), _namespace(proc))
    if mark.boot_id != boot:
        return False
    if mark.start_ticks is None or mark.namespace != namespace:
        return None
    return start_ticks(mark.pid, proc) == mark.start_ticks


def out_of_memory_kills(proc: Path = PROC) -> int | None:
    """How many processes the kernel has killed for want of memory since boot."""
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = dict(line.split() for line in lines)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


@functools.cache
def _own_boot_and_namespace() -> tuple[str | None, str | None]:
    """Boot and namespace, which do not change under a process that asks again and again."""
    return boot_id(PROC), _namespace(PROC)


def _namespace(proc: Path) -> str | None:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return None
