"""Limits on memory and how near they are, in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.cgroup import (
    Group,
    GroupMemory,
    MemoryLimit,
    group_memory,
    memory_events,
    memory_limits,
)
from tests.devices.written import write


def test_the_tightest_limit_on_the_way_to_the_root_comes_first(tmp_path: Path) -> None:
    write(tmp_path, {"memory.max": "max\n", "pod/memory.max": "1000\n", "pod/container/memory.max": "9000\n"})
    pod, container = f"{tmp_path}/pod", f"{tmp_path}/pod/container"
    limits = memory_limits(Group(2, (container, pod, str(tmp_path))))
    assert limits == [MemoryLimit(pod, 1000), MemoryLimit(container, 9000)]


def test_the_largest_number_of_version_1_is_not_a_limit(tmp_path: Path) -> None:
    group = Group(1, (str(tmp_path),))
    write(tmp_path, {"memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory_limits(group) == []
    write(tmp_path, {"memory.limit_in_bytes": "2147483648\n"})
    assert memory_limits(group) == [MemoryLimit(str(tmp_path), 2147483648)]


def test_reclaimable_files_are_not_part_of_the_working_set(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "2/memory.current": "1000\n",
            "2/memory.stat": "anon 300\ninactive_file 600\nactive_file 100\n",
            "1/memory.usage_in_bytes": "1000\n",
            "1/memory.stat": "inactive_file 1\ntotal_inactive_file 600\n",
            "torn/memory.current": "500\n",
            "torn/memory.stat": "inactive_file 600\n",
            "bare/memory.current": "500\n",
        },
    )
    assert group_memory(f"{tmp_path}/2", 2) == GroupMemory(1000, 400)
    assert group_memory(f"{tmp_path}/1", 1) == GroupMemory(1000, 400)
    assert group_memory(f"{tmp_path}/torn", 2) == GroupMemory(500, 0)
    assert group_memory(f"{tmp_path}/bare", 2) == GroupMemory(500, None)
    assert group_memory(str(tmp_path), 2) is None


def test_events_are_counted_as_far_as_the_version_does(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "2/memory.events": "low 9\nhigh 5\nmax 4\noom 3\noom_kill 2\noom_group_kill 1\n",
            "1/memory.failcnt": "4\n",
            "1/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        },
    )
    assert memory_events(f"{tmp_path}/2", 2) == {"high": 5, "max": 4, "oom": 3, "oom_kill": 2}
    assert memory_events(f"{tmp_path}/1", 1) == {"max": 4, "oom_kill": 2}
    assert memory_events(f"{tmp_path}/gone", 1) == {}
