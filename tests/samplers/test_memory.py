"""Memory of the host and of the control group, and how near either is to its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepscope.samplers.memory import MemorySampler
from tests.devices.written import HandClock, values_of, watched, write

MEMINFO = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nCached: 200 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    mount = f"30 1 0:30 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n"
    write(tmp_path / "proc", {"self/mountinfo": mount, "meminfo": MEMINFO})
    return tmp_path / "proc"


def memory(proc: Path, clock: HandClock | None = None, shm: Path | None = None) -> MemorySampler:
    return MemorySampler(_proc=proc, _shm=shm or proc / "no-shm", _now=clock or HandClock())


def test_the_host_alone_decides_where_nothing_else_limits(proc: Path) -> None:
    values = values_of(memory(proc).sample([]))
    assert values["memory/total_bytes"] == 1000 * 1024
    assert values["memory/used_bytes"] == 600 * 1024
    assert values["memory/used_ratio"] == values["memory/nearest_limit_used_ratio"] == 0.6
    assert values["memory/swap_used_bytes"] == 6 * 1024
    assert not any(key.startswith(("memory/cgroup", "memory/shm")) for key in values)


def limited(tmp_path: Path, group: str, limit: str, used: int, spare: int) -> None:
    write(
        tmp_path / "cgroup",
        {
            f"{group}/memory.max": f"{limit}\n",
            f"{group}/memory.current": f"{used}\n",
            f"{group}/memory.stat": f"inactive_file {spare}\n",
            f"{group}/memory.events": "high 1\nmax 2\noom 3\noom_kill 4\n",
        },
    )


def test_the_tightest_limit_is_reported_and_the_fullest_decides_how_near_the_limit_is(
    tmp_path: Path, proc: Path
) -> None:
    write(proc, {"self/cgroup": "0::/pod/container\n"})
    limited(tmp_path, "pod", "10000", 9900, 400)
    limited(tmp_path, "pod/container", "4000", 3000, 2000)
    values = values_of(memory(proc).sample([watched(7)]))
    assert values["memory/cgroup_limit_bytes"] == 4000
    assert values["memory/cgroup_used_bytes"] == 3000
    assert values["memory/cgroup_used_ratio"] == 0.75
    assert values["memory/cgroup_working_set_bytes"] == 1000
    assert values["memory/cgroup_working_set_ratio"] == 0.25
    assert values["memory/nearest_limit_used_ratio"] == 0.95
    events = [values[f"memory/cgroup_{name}_total"] for name in ("high_events", "max_events", "oom_events")]
    assert events == [1, 2, 3]
    assert values["memory/cgroup_oom_kills_total"] == 4


def test_a_group_without_a_limit_still_reports_its_usage(tmp_path: Path, proc: Path) -> None:
    write(proc, {"self/cgroup": "0::/job\n"})
    limited(tmp_path, "job", "max", 3000, 1000)
    values = values_of(memory(proc).sample([]))
    assert values["memory/cgroup_used_bytes"] == 3000
    assert "memory/cgroup_limit_bytes" not in values
    assert "memory/cgroup_used_ratio" not in values
    assert values["memory/nearest_limit_used_ratio"] == 0.6


def test_a_training_in_a_group_of_its_own_owns_the_figures_of_it(tmp_path: Path, proc: Path) -> None:
    write(proc, {"self/cgroup": "0::/agent\n", "7/cgroup": "0::/job\n"})
    limited(tmp_path, "agent", "100", 1, 0)
    limited(tmp_path, "job", "1000", 900, 0)
    samples = list(memory(proc).sample([watched(7)]))
    assert values_of(samples, owner=watched(7))["memory/nearest_limit_used_ratio"] == 0.9
    assert values_of(samples)["memory/nearest_limit_used_ratio"] == 0.6
    assert "memory/cgroup_limit_bytes" not in values_of(samples)


def test_swapping_faults_and_pressure_are_rates(proc: Path) -> None:
    clock = HandClock()
    sampler = memory(proc, clock)
    for pages, faults, stalled_us in ((10, 5, 0), (14, 25, 1_000_000)):
        write(
            proc,
            {
                "vmstat": f"pswpin {pages}\npswpout {2 * pages}\npgmajfault {faults}\n",
                "pressure/memory": f"some avg10=0 total={stalled_us}\nfull avg10=0 total={stalled_us // 2}\n",
            },
        )
        clock.now += 2
        values = values_of(sampler.sample([]))
    assert values["memory/swap_in_bytes_per_second"] == 2 * PAGE
    assert values["memory/swap_out_bytes_per_second"] == 4 * PAGE
    assert values["memory/major_faults_per_second"] == 10
    assert values["memory/pressure_some_ratio"] == 0.5
    assert values["memory/pressure_full_ratio"] == 0.25


def test_shared_memory_is_that_of_its_file_system(proc: Path, tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    values = values_of(memory(proc, shm=tmp_path).sample([]))
    assert values["memory/shm_total_bytes"] == status.f_blocks * status.f_frsize
    assert 0 <= values["memory/shm_used_ratio"] <= 1


def test_a_machine_without_readable_files_yields_nothing(tmp_path: Path) -> None:
    assert list(memory(tmp_path / "nowhere").sample([watched(7)])) == []
