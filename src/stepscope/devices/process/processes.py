"""Reads what Linux tells of one process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PAGE_BYTES, PROC, named_numbers, read_text
from stepscope.devices.host.processor_facts import usable_threads
from stepscope.devices.process.process_files import ProcessFiles

if TYPE_CHECKING:
    from pathlib import Path

    Files = ProcessFiles | Path | str
    """Where to read: files that are kept open, or the folder they are in."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_INPUT_OUTPUT = {
    "rchar": "read_bytes",
    "wchar": "write_bytes",
    "syscr": "reads",
    "syscw": "writes",
    "read_bytes": "disk_read_bytes",
    "write_bytes": "disk_write_bytes",
}
_SWITCHES = {
    "voluntary_ctxt_switches": "voluntary_switches",
    "nonvoluntary_ctxt_switches": "involuntary_switches",
}


class ProcessKey(NamedTuple):
    """What tells a process from another that has its number later."""

    pid: int
    start_ticks: int


class ProcessState(NamedTuple):
    """A process at this moment, all its threads together."""

    key: ProcessKey
    name: str
    """The name of its first thread, cut to 15 characters."""
    parent: int
    user_seconds: float
    system_seconds: float
    major_faults: int
    inherited_faults: int
    """Minor faults of children that have ended: it grows whenever one of them is taken notice of."""
    threads: int
    rss_bytes: int


class MemoryShares(NamedTuple):
    """How the memory of a process is made up."""

    uss_bytes: int
    """What it alone holds, and would be free if it ended."""
    pss_bytes: int
    """That, and its part of what it shares with others."""


def process_state(pid: int, files: Files = PROC) -> ProcessState | None:
    """A process as it is now; None when it has ended, even if nobody has taken notice yet."""
    text = _text(pid, "stat", files)
    if text is None:
        return None
    before, _, after = text.rpartition(")")  # a name may hold blanks and brackets
    fields = after.split()
    if len(fields) < 22 or fields[0] in "ZX":
        return None
    return ProcessState(
        key=ProcessKey(pid, int(fields[19])),
        name=before.partition("(")[2],
        parent=int(fields[1]),
        user_seconds=int(fields[11]) / _TICKS_PER_SECOND,
        system_seconds=int(fields[12]) / _TICKS_PER_SECOND,
        major_faults=int(fields[9]),
        inherited_faults=int(fields[8]),
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def _text(pid: int, name: str, files: Files) -> str | None:
    return files.read(pid, name) if isinstance(files, ProcessFiles) else read_text(f"{files}/{pid}/{name}")


def command_line(pid: int, proc: str | Path = PROC) -> str:
    """The command a process was started with, its words parted by blanks; empty when it does not tell."""
    return (read_text(f"{proc}/{pid}/cmdline") or "").replace("\0", " ").strip()


def input_output_counts(pid: int, files: Files = PROC) -> dict[str, float]:
    """What a process has read and written; nothing where this may not be known of it.

    `read_bytes` are all that its calls gave it, wherever they came from; `disk_read_bytes` those that had to
    come from a disk, also where it reads a file as if it were memory. What a child has read and written is
    added to its parent's when it has ended.
    """
    counts = named_numbers(_text(pid, "io", files))
    return {ours: float(counts[theirs]) for theirs, ours in _INPUT_OUTPUT.items() if theirs in counts}


def queued_seconds(pid: int, files: Files = PROC) -> float | None:
    """How long the first thread of a process has waited for a processor while it could have run."""
    words = (_text(pid, "schedstat", files) or "").split()
    return int(words[1]) / 1e9 if len(words) >= 2 else None


def main_thread_counts(pid: int, files: Files = PROC) -> tuple[dict[str, float], int | None]:
    """How often the first thread let go of its processor, or was made to, and how many it may use."""
    text = _text(pid, "status", files) or ""
    counts = named_numbers(text[text.find("voluntary_ctxt_switches") :])
    switches = {ours: float(counts[theirs]) for theirs, ours in _SWITCHES.items() if theirs in counts}
    return switches, usable_threads(text)


def open_files(pid: int, proc: str | Path = PROC) -> int | None:
    """How many files, sockets and pipes a process has open; None where this may not be known of it."""
    try:
        return len(os.listdir(f"{proc}/{pid}/fd"))  # noqa: PTH208 - only their number is wanted
    except OSError:
        return None


def memory_shares(pid: int, proc: str | Path = PROC) -> MemoryShares | None:
    """How the memory of a process is made up; None where this may not be known of it.

    Takes milliseconds for a gigabyte, during which the process may have to wait for memory it asks for.
    """
    sizes = named_numbers(read_text(f"{proc}/{pid}/smaps_rollup"))
    if "Pss" not in sizes:
        return None
    alone = sum(sizes.get(name, 0) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"))
    return MemoryShares(uss_bytes=alone * 1024, pss_bytes=sizes["Pss"] * 1024)
