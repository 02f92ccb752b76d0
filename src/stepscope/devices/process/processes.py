"""Reads the state and counters of processes from `/proc`, and keeps files open that are read repeatedly.

`devices/host/kernel_files.py` says why not by psutil.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PAGE_BYTES, named_numbers, read_text
from stepscope.devices.host.processor import usable_threads
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_OPEN = 256
"""Further files are opened and closed at each reading: the limit of a process is often 1,024."""

_MAX_BYTES = 1 << 16


class ProcessFiles:
    """The files of some processes. Reading an open file takes a third of the time of opening it.

    An open file always belongs to its process: after that has ended it cannot be read, and never shows
    another process with the same number.
    """

    def __init__(self, proc: str | Path = PROC, max_open: int = MAX_OPEN) -> None:
        self._proc = str(proc)
        # A file of any other folder outlives its process: only the kernel's own files end with it.
        self._max_open = max_open if Path(proc) == PROC else 0
        self._open: dict[tuple[int, str], int] = {}

    def read(self, pid: int, name: str) -> str | None:
        """Reads a file; None where it is missing or forbidden, or its process has ended."""
        file = self._open.get((pid, name))
        if file is None:
            if len(self._open) >= self._max_open:
                return read_text(f"{self._proc}/{pid}/{name}")
            try:
                file = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
            self._open[pid, name] = file
        try:
            return os.pread(file, _MAX_BYTES, 0).decode(errors="replace")
        except OSError:
            os.close(self._open.pop((pid, name)))
            return None

    def keep_only(self, pids: Collection[int]) -> None:
        """Closes the files of all other processes."""
        for file_key in [file_key for file_key in self._open if file_key[0] not in pids]:
            os.close(self._open.pop(file_key))

    def close(self) -> None:
        """Closes all files."""
        self.keep_only(())


Files = ProcessFiles | Path | str
"""Where to read: open files, or the folder of `/proc`."""

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
    """Identifies a process, also after its number is reused."""

    pid: int
    start_ticks: int


class ProcessState(NamedTuple):
    """The current state of a process, all its threads together."""

    key: ProcessKey
    name: str
    """The name of its first thread, cut to 15 characters."""
    parent: int
    user_seconds: float
    system_seconds: float
    major_faults: int
    inherited_faults: int
    """Minor faults of ended children: it grows whenever the process waits for one of them."""
    threads: int
    rss_bytes: int


class MemoryShares(NamedTuple):
    """The unique and proportional memory of a process."""

    uss_bytes: int
    """Memory that only this process uses, which would be free if it ended."""
    pss_bytes: int
    """The same plus its part of memory shared with others."""


def process_state(pid: int, files: Files = PROC) -> ProcessState | None:
    """The state of a process; None when it has ended, including zombies."""
    text = _text(pid, "stat", files)
    if text is None:
        return None
    before, _, after = text.rpartition(")")  # a name may contain blanks and brackets
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
    """The command line of a process, separated by blanks; empty when unknown."""
    return (read_text(f"{proc}/{pid}/cmdline") or "").replace("\0", " ").strip()


def input_output_counts(pid: int, files: Files = PROC) -> dict[str, float]:
    """The I/O counters of a process; empty without permission.

    `read_bytes` are all bytes that its system calls returned; `disk_read_bytes` those that came from a disk,
    including mapped files. The counters of a child are added to its parent's when it has ended.
    """
    counts = named_numbers(_text(pid, "io", files))
    return {ours: float(counts[theirs]) for theirs, ours in _INPUT_OUTPUT.items() if theirs in counts}


def queued_seconds(pid: int, files: Files = PROC) -> float | None:
    """How long the first thread of a process was ready and waited for a processor."""
    words = (_text(pid, "schedstat", files) or "").split()
    return int(words[1]) / 1e9 if len(words) >= 2 else None


def main_thread_counts(pid: int, files: Files = PROC) -> tuple[dict[str, float], int | None]:
    """Voluntary and involuntary context switches of the first thread, and how many processors it may use."""
    text = _text(pid, "status", files) or ""
    counts = named_numbers(text[text.find("voluntary_ctxt_switches") :])
    switches = {ours: float(counts[theirs]) for theirs, ours in _SWITCHES.items() if theirs in counts}
    return switches, usable_threads(text)


def open_files(pid: int, proc: str | Path = PROC) -> int | None:
    """The number of files, sockets and pipes a process has open; None without permission."""
    try:
        return len(os.listdir(f"{proc}/{pid}/fd"))  # noqa: PTH208 - only their number is needed
    except OSError:
        return None


def memory_shares(pid: int, proc: str | Path = PROC) -> MemoryShares | None:
    """The unique and proportional memory of a process; None without permission.

    Takes milliseconds per gigabyte, during which memory allocations of the process may wait.
    """
    sizes = named_numbers(read_text(f"{proc}/{pid}/smaps_rollup"))
    if "Pss" not in sizes:
        return None
    alone = sum(sizes.get(name, 0) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"))
    return MemoryShares(uss_bytes=alone * 1024, pss_bytes=sizes["Pss"] * 1024)
