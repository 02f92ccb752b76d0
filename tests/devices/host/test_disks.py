"""Bytes are counted once: on whole disks, not on what they are cut into or put together to."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.disks import disk_counts, disk_facts, whole_disks
from tests.devices.written import write

NAMES = [
    "dm-0",
    "loop3",
    "md0",
    "nbd0",
    "nbd1",
    "nvme0c0n1",
    "nvme0n1",
    "ram0",
    "sda",
    "sda1",
    "sr0",
    "zram0",
]


def test_counters_are_bytes_operations_and_seconds(tmp_path: Path) -> None:
    line = " 259 0 nvme0n1 10 1 16 500 20 2 32 1500 0 250 2000 0 0 0 0 0 0\n"
    write(tmp_path, {"diskstats": line + " 8 0 old 1 2 3 4\n"})
    assert disk_counts(tmp_path) == {
        "nvme0n1": {
            "reads": 10.0,
            "read_bytes": 8192.0,
            "read_seconds": 0.5,
            "writes": 20.0,
            "write_bytes": 16384.0,
            "write_seconds": 1.5,
            "busy_seconds": 0.25,
        }
    }
    assert disk_counts(tmp_path / "nowhere") == {}


def test_partitions_volumes_arrays_and_places_for_disks_are_left_out(tmp_path: Path) -> None:
    for name in NAMES:
        if name != "sda1":
            write(tmp_path, {f"block/{name}/size": "2048\n"})
    write(
        tmp_path,
        {
            "block/sda/sda1/size": "1024\n",
            "block/dm-0/slaves/sda/size": "2048\n",
            "block/md0/slaves/sda/size": "2048\n",
            "block/nbd1/size": "0\n",
            "block/nvme0c0n1/hidden": "1\n",
            "block/nvme0n1/hidden": "0\n",
            "block/unread/size": "2048\n",
        },
    )
    assert whole_disks(NAMES, tmp_path) == ["nbd0", "nvme0n1", "sda"]


def test_facts_omit_what_a_disk_does_not_report(tmp_path: Path) -> None:
    write(tmp_path, {"block/vda/size": "2048\n", "block/vda/queue/rotational": "0\n"})
    assert disk_facts("vda", tmp_path) == {"size_bytes": 1048576, "rotational": False}
    assert disk_facts("gone", tmp_path) == {}
