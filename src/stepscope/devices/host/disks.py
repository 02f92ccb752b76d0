"""Reads the I/O counters of the host's disks, without devices that would count the same bytes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.host.kernel_files import SYS, drop_none, list_names, read_number, read_text, read_word
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_NO_DISKS = ("loop", "ram", "zram", "sr", "fd")
"""Loop devices, memory disks, and drives for removable media."""

_SECTOR_BYTES = 512
"""The unit of these counters, whatever the sector size of the disk is."""


def disk_counts(proc: Path = PROC) -> dict[str, dict[str, float]]:
    """Counters of every block device since boot, in operations, bytes and seconds, by name."""
    counts = {}
    for line in (read_text(f"{proc}/diskstats") or "").splitlines():
        words = line.split()
        if len(words) < 13:
            continue
        reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms = map(
            float, words[3:13]
        )
        counts[words[2]] = {
            "reads": reads,
            "read_bytes": sectors_read * _SECTOR_BYTES,
            "read_seconds": read_ms / 1e3,
            "writes": writes,
            "write_bytes": sectors_written * _SECTOR_BYTES,
            "write_seconds": write_ms / 1e3,
            "busy_seconds": busy_ms / 1e3,
        }
    return counts


def whole_disks(names: Collection[str], sys: Path = SYS) -> list[str]:
    """The block devices that are disks, local or on a network.

    Partitions, and volumes and arrays made of other disks, are excluded: their bytes are counted on those
    disks. Devices without a size are slots without a disk.
    """
    known = list_names(f"{sys}/block")
    return [name for name in known if name in names and _is_whole(name, f"{sys}/block/{name}")]


def disk_facts(name: str, sys: Path = SYS) -> Mapping[str, Any]:
    """Constant properties of a disk; unknown ones are left out."""
    folder = f"{sys}/block/{name}"
    sectors, rotates = read_number(f"{folder}/size"), read_number(f"{folder}/queue/rotational")
    return drop_none(
        {
            "model": read_word(f"{folder}/device/model"),
            "size_bytes": None if sectors is None else sectors * _SECTOR_BYTES,
            "rotational": None if rotates is None else rotates == 1,
        }
    )


def _is_whole(name: str, folder: str) -> bool:
    return (
        not name.startswith(_NO_DISKS)
        and not list_names(f"{folder}/slaves")
        and read_number(f"{folder}/hidden") != 1  # one of several paths to a disk that is counted separately
        and read_number(f"{folder}/size") != 0
    )
