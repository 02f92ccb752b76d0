"""Limits on processor time and what they cost, in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

from stepscope.devices.host.cgroup import CpuLimit, Group, cpu_counts, cpu_limits
from tests.devices.written import write


def test_the_tightest_limit_on_the_way_to_the_root_comes_first(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cpu.max": "max 100000\n",
            "pod/cpu.max": "150000 100000\n",
            "pod/container/cpu.max": "800000 100000\n",
        },
    )
    pod, container = f"{tmp_path}/pod", f"{tmp_path}/pod/container"
    limits = cpu_limits(Group(2, (container, pod, str(tmp_path))))
    assert limits == [CpuLimit(pod, 1.5), CpuLimit(container, 8.0)]


def test_version_1_writes_a_negative_quota_for_none(tmp_path: Path) -> None:
    group = Group(1, (str(tmp_path),))
    write(tmp_path, {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"})
    assert cpu_limits(group) == []
    write(tmp_path, {"cpu.cfs_quota_us": "250000\n"})
    assert cpu_limits(group) == [CpuLimit(str(tmp_path), 2.5)]


def test_time_is_in_seconds_with_the_units_of_each_version(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "2/cpu.stat": "usage_usec 5000000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n",
            "1/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000\n",
        },
    )
    version_1 = {"periods": 10.0, "throttled_periods": 4.0, "throttled_seconds": 1.5}
    assert cpu_counts(f"{tmp_path}/1", 1) == version_1
    assert cpu_counts(f"{tmp_path}/2", 2) == {**version_1, "used_seconds": 5.0}
    assert cpu_counts(f"{tmp_path}/gone", 2) == {}
