"""The host's memory from /proc/meminfo and /proc/vmstat."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.memory import host_memory, paging_counts
from tests.devices.written import write

MEMINFO = """\
MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    400 kB
Buffers:          20 kB
Cached:          250 kB
SwapCached:        9 kB
SwapTotal:       500 kB
SwapFree:        450 kB
Dirty:             3 kB
Writeback:         2 kB
Shmem:            70 kB
"""


def test_used_memory_excludes_what_is_available_and_files_are_not_shared_memory(tmp_path: Path) -> None:
    write(tmp_path, {"meminfo": MEMINFO})
    memory = host_memory(tmp_path)
    assert memory is not None
    assert memory.used_bytes == 600 * 1024
    assert memory.page_cache_bytes == 200 * 1024
    assert memory.shared_bytes == 70 * 1024
    assert memory.unwritten_bytes == 5 * 1024
    assert memory.swap_used_bytes == 50 * 1024


def test_swapping_is_counted_in_bytes_and_faults_in_pages(tmp_path: Path) -> None:
    write(tmp_path, {"vmstat": "nr_free_pages 5\npswpin 2\npswpout 3\npgmajfault 7\n"})
    assert paging_counts(tmp_path, page_bytes=65536) == {
        "swapped_in": 131072.0,
        "swapped_out": 196608.0,
        "major_faults": 7.0,
    }


def test_a_host_without_memory_information_has_no_figures(tmp_path: Path) -> None:
    assert host_memory(tmp_path) is None
    assert paging_counts(tmp_path) == {}
    write(tmp_path, {"meminfo": "MemTotal: 1000 kB\n"})
    assert host_memory(tmp_path) is None
