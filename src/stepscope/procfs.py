"""Identifies processes through `/proc`, also after a process number is reused.

Standard library only, since the training process uses it. psutil takes 3.7 times as long to find out when a
process began (`python -m benchmarks.proc_reads`), and knows neither boot id nor namespace.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_MAX_LINE = 4096
"""Longer than the line of a process, which has some hundred bytes."""


@dataclass(frozen=True)
class ProcessMark:
    """What identifies a process on its host."""

    pid: int
    start_ticks: int | None
    boot_id: str | None
    namespace: str | None


def mark(pid: int, proc: Path = PROC) -> ProcessMark:
    """The mark of a live process."""
    return ProcessMark(pid, start_ticks(pid, proc), boot_id(proc), _namespace(proc))


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process began, in clock ticks since boot; None when there is no such process."""
    fields = _fields(pid, proc)
    # A zombie has ended; its parent has not waited for it yet.
    return None if fields is None or fields[0] in b"ZX" else int(fields[19])


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is stopped by SIGSTOP or a debugger."""
    fields = _fields(pid, proc)
    return fields is not None and fields[0] in b"Tt"


def _fields(pid: int, proc: Path) -> list[bytes] | None:
    """The fields of a process's stat file from its state on; None when there is no such process."""
    try:
        # A third of the cost of `Path.read_text`: an agent reads this of every process twice a second.
        file = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(file, _MAX_LINE)
    except OSError:  # it ended during the read
        return None
    finally:
        os.close(file)
    return line.rpartition(b")")[2].split()


def boot_id(proc: Path = PROC) -> str | None:
    """The boot id, which changes with every start of the machine."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def is_alive(mark: ProcessMark, proc: Path = PROC) -> bool | None:
    """Whether exactly this process still runs; None where that cannot be determined from here."""
    boot, namespace = _own_boot_and_namespace() if proc is PROC else (boot_id(proc), _namespace(proc))
    if mark.boot_id != boot:
        return False
    if mark.start_ticks is None or mark.namespace != namespace:
        return None
    return start_ticks(mark.pid, proc) == mark.start_ticks


def out_of_memory_kills(proc: Path = PROC) -> int | None:
    """How many processes the kernel has killed since boot because memory ran out."""
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = dict(line.split() for line in lines)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


@functools.cache
def _own_boot_and_namespace() -> tuple[str | None, str | None]:
    """Boot id and namespace of this process, which do not change."""
    return boot_id(PROC), _namespace(PROC)


def _namespace(proc: Path) -> str | None:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return None
