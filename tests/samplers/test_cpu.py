"""The processors, and the control group that may hold a training back."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.samplers.cpu import CpuSampler
from stepscope.schema.sample import DeviceFacts
from tests.devices.written import HandClock, values_of, watched, write


def stat(user: int, system: int, idle: int, iowait: int, switches: int = 0) -> dict[str, str]:
    line = f"{user} 0 {system} {idle} {iowait} 0 0 0 0 0"
    text = f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\nctxt {switches}\nprocs_running 3\nprocs_blocked 1\n"
    return {"stat": text}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def grouped(tmp_path: Path, groups: dict[str, str]) -> None:
    """Puts processes into control groups of version 2."""
    mount = f"30 1 0:30 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n"
    write(tmp_path / "proc", {"self/mountinfo": mount})
    for process, path in groups.items():
        write(tmp_path / "proc", {f"{process}/cgroup": f"0::{path}\n"})
        (tmp_path / f"cgroup{path}").mkdir(parents=True, exist_ok=True)


def throttled(tmp_path: Path, group: str, used_us: int, periods: tuple[int, int], held_us: int) -> None:
    quota = f"nr_periods {periods[0]}\nnr_throttled {periods[1]}\nthrottled_usec {held_us}\n"
    write(tmp_path / "cgroup", {f"{group}/cpu.stat": f"usage_usec {used_us}\n{quota}"})


def test_shares_of_time_come_with_the_second_look(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(proc, {**stat(100, 100, 100, 100, 50), "loadavg": "6.0 3.0 1.5 3/100 4242\n"})
    first = values_of(cpu.sample([]))
    assert first == {
        "cpu/load_1m": 6.0,
        "cpu/load_5m": 3.0,
        "cpu/load_15m": 1.5,
        "cpu/load_per_core_ratio": 3.0,
        "cpu/runnable_threads": 3,
        "cpu/blocked_threads": 1,
    }
    write(proc, stat(130, 110, 140, 120, 250))
    clock.now += 2
    second = values_of(cpu.sample([]))
    assert second["cpu/utilization_ratio"] == pytest.approx(0.4)
    assert second["cpu/user_ratio"] == pytest.approx(0.3)
    assert second["cpu/system_ratio"] == pytest.approx(0.1)
    assert second["cpu/iowait_ratio"] == pytest.approx(0.2)
    assert second["cpu/steal_ratio"] == 0
    assert second["cpu/context_switches_per_second"] == 100


def test_iowait_that_went_back_by_a_tick_costs_its_own_figure_alone(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(proc, stat(0, 0, 0, 10))
    list(cpu.sample([]))
    write(proc, stat(25, 0, 75, 9))
    clock.now += 1
    values = values_of(cpu.sample([]))
    assert "cpu/iowait_ratio" not in values
    assert values["cpu/utilization_ratio"] == pytest.approx(0.25)


def test_a_machine_without_readable_files_yields_nothing(tmp_path: Path) -> None:
    cpu = CpuSampler(_proc=tmp_path / "proc", _sys=tmp_path, _now=HandClock())
    assert list(cpu.sample([watched(7)])) == []


def test_throttling_is_reported_as_a_share_of_time_and_of_periods(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    grouped(tmp_path, {"self": "/pod/container", "7": "/pod/container"})
    write(tmp_path / "cgroup", {"pod/cpu.max": "200000 100000\n", "pod/container/cpu.max": "max 100000\n"})
    throttled(tmp_path, "pod", 0, (0, 0), 0)
    assert values_of(cpu.sample([watched(7)])) == {"cpu/cgroup_limit_cores": 2.0}
    throttled(tmp_path, "pod", 6_000_000, (40, 10), 1_200_000)
    clock.now += 4
    assert values_of(cpu.sample([watched(7)])) == {
        "cpu/cgroup_limit_cores": 2.0,
        "cpu/cgroup_used_cores": 1.5,
        "cpu/cgroup_throttled_ratio": pytest.approx(0.3),
        "cpu/cgroup_throttled_periods_ratio": 0.25,
    }


def test_a_looser_limit_shared_with_others_may_be_the_one_that_holds_back(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    grouped(tmp_path, {"self": "/pod/container"})
    write(tmp_path / "cgroup", {"pod/cpu.max": "8 1\n", "pod/container/cpu.max": "4 1\n"})
    for seconds, held_us in ((0, 0), (1, 500_000)):
        throttled(tmp_path, "pod/container", 0, (seconds * 10, 0), 0)
        throttled(tmp_path, "pod", 0, (seconds * 10, seconds * 9), held_us)
        clock.now += seconds
        values = values_of(cpu.sample([]))
    assert values["cpu/cgroup_limit_cores"] == 4.0
    assert values["cpu/cgroup_throttled_ratio"] == pytest.approx(0.5)
    assert values["cpu/cgroup_throttled_periods_ratio"] == pytest.approx(0.9)


def test_a_training_in_a_group_of_its_own_owns_the_figures_of_it(tmp_path: Path, proc: Path) -> None:
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=HandClock())
    grouped(tmp_path, {"self": "/agent", "7": "/job"})
    write(tmp_path / "cgroup", {"agent/cpu.max": "1 1\n", "job/cpu.max": "3 1\n"})
    samples = list(cpu.sample([watched(7)]))
    assert values_of(samples, owner=watched(7)) == {"cpu/cgroup_limit_cores": 3.0}
    assert values_of(samples) == {}


def test_facts_are_reported_once_and_again_only_when_they_change(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    write(proc, {"cpuinfo": "processor : 0\nmodel name : Some Processor\n\n"})
    grouped(tmp_path, {"self": "/job"})
    write(tmp_path / "cgroup", {"job/cpu.max": "3 1\n", "job/memory.max": "4096\n"})
    facts = []
    for limit in ("3 1\n", "3 1\n", "2 1\n"):
        write(tmp_path / "cgroup", {"job/cpu.max": limit})
        facts.append([reading.fields for reading in cpu.sample([]) if isinstance(reading, DeviceFacts)])
        clock.now += 301
    fields = {"model": "Some Processor", "threads": 1, "cgroup_limit_bytes": 4096}
    assert facts == [[{**fields, "cgroup_limit_cores": 3.0}], [], [{**fields, "cgroup_limit_cores": 2.0}]]


def test_clocks_are_read_at_intervals(tmp_path: Path, proc: Path) -> None:
    clock = HandClock()
    cpu = CpuSampler(_proc=proc, _sys=tmp_path, _now=clock)
    folder = "devices/system/cpu/cpufreq/policy0"
    write(tmp_path, {f"{folder}/scaling_cur_freq": "1000000", f"{folder}/cpuinfo_max_freq": "4000000"})
    clocks = []
    for _ in range(6):
        clocks.append(values_of(cpu.sample([])))
        clock.now += 1
    assert clocks == [{"cpu/frequency_hertz": 1e9, "cpu/frequency_ratio": 0.25}, {}, {}, {}, {}, clocks[0]]
