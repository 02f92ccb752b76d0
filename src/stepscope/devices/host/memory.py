"""Reads the size, usage and swapping of the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepscope.devices.host.kernel_files import PAGE_BYTES, number_named, read_text
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from pathlib import Path


class HostMemory(NamedTuple):
    """The current memory of the host."""

    total_bytes: int
    available_bytes: int
    """What a program can still allocate without swapping: free, or used by clean file pages."""
    page_cache_bytes: int
    """Files cached in memory."""
    shared_bytes: int
    """Memory that processes share as files, such as those of /dev/shm."""
    unwritten_bytes: int
    """Data written to files that has not reached the disk."""
    swap_total_bytes: int
    swap_used_bytes: int

    @property
    def used_bytes(self) -> int:
        """What a program cannot allocate."""
        return self.total_bytes - self.available_bytes


def host_memory(proc: Path = PROC) -> HostMemory | None:
    """The memory of the host; None where the system does not report it."""
    text = read_text(f"{proc}/meminfo") or ""
    total, available = _size(text, "MemTotal"), _size(text, "MemAvailable")
    if not total or available is None:
        return None
    shared, swap = _size(text, "Shmem") or 0, _size(text, "SwapTotal") or 0
    return HostMemory(
        total_bytes=total,
        available_bytes=min(available, total),
        page_cache_bytes=max((_size(text, "Buffers") or 0) + (_size(text, "Cached") or 0) - shared, 0),
        shared_bytes=shared,
        unwritten_bytes=(_size(text, "Dirty") or 0) + (_size(text, "Writeback") or 0),
        swap_total_bytes=swap,
        swap_used_bytes=swap - (_size(text, "SwapFree") or 0),
    )


def paging_counts(proc: Path = PROC, page_bytes: int = PAGE_BYTES) -> dict[str, float]:
    """Counters since boot: bytes `swapped_in` and `swapped_out`, and `major_faults`.

    A major fault is a page that had to be read from a disk before a program could continue.
    """
    text = read_text(f"{proc}/vmstat") or ""
    counts = {
        "swapped_in": number_named(text, "pswpin"),
        "swapped_out": number_named(text, "pswpout"),
        "major_faults": number_named(text, "pgmajfault"),
    }
    units = {"swapped_in": page_bytes, "swapped_out": page_bytes, "major_faults": 1}
    return {name: float(count * units[name]) for name, count in counts.items() if count is not None}


def _size(text: str, name: str) -> int | None:
    kibibytes = number_named(text, f"{name}:")
    return None if kibibytes is None else kibibytes * 1024
