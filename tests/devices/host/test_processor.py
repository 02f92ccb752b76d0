"""Processor time, queue and clocks, from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.devices.host.processor import (
    busy_share,
    clocks,
    core_times,
    load,
    processor_counts,
    processor_facts,
    shares,
    usable_threads,
)
from tests.devices.written import write

STAT = """\
cpu  100 20 50 800 30 4 6 10 90 8
cpu0 60 10 25 400 15 2 3 5 45 4
cpu7 40 10 25 400 15 2 3 5 45 4
intr 5000 0 0 12
ctxt 7000
btime 1794727687
processes 760
procs_running 5
procs_blocked 2
"""
CPUINFO = """\
processor	: {number}
model name	: Some Processor 9000
cpu MHz		: {megahertz}
physical id	: {package}
core id		: {core}
flags		: fpu tsc{flag}

"""


def test_guest_time_is_not_counted_twice(tmp_path: Path) -> None:
    write(tmp_path, {"stat": STAT})
    counts = processor_counts(tmp_path)
    assert counts is not None
    assert sum(counts.times.values()) == 1020
    assert (counts.context_switches, counts.interrupts) == (7000, 5000)
    assert (counts.runnable, counts.blocked, counts.logical) == (5, 2, 2)


def test_cores_keep_their_numbers_where_some_are_offline(tmp_path: Path) -> None:
    write(tmp_path, {"stat": STAT})
    times = core_times(tmp_path)
    assert list(times) == [0, 7]
    assert times[7]["user"] == 40


def test_a_host_without_proc_reports_nothing(tmp_path: Path) -> None:
    assert processor_counts(tmp_path) is None
    assert core_times(tmp_path) == {}
    assert load(tmp_path) is None
    assert clocks(tmp_path, tmp_path) is None
    assert processor_facts(tmp_path, tmp_path) == {}


def test_waiting_for_a_disk_is_not_being_busy() -> None:
    assert busy_share({"user": 1, "system": 1, "idle": 5, "iowait": 3}) == pytest.approx(0.2)
    assert busy_share({}) is None
    assert busy_share({"user": 0.0, "idle": 0.0}) is None


def test_shares_are_those_of_the_rest_when_one_kind_went_back() -> None:
    assert shares({"user": 3, "idle": 1}) == {"user": 0.75, "idle": 0.25}


def test_the_clock_is_the_mean_of_all_policies_and_a_share_of_each_ones_best(tmp_path: Path) -> None:
    policies = {"policy0": (2_000_000, 4_000_000), "policy1": (3_000_000, 3_000_000)}
    for name, (now, most) in policies.items():
        folder = f"devices/system/cpu/cpufreq/{name}"
        write(tmp_path, {f"{folder}/scaling_cur_freq": str(now), f"{folder}/cpuinfo_max_freq": str(most)})
    clock = clocks(tmp_path, tmp_path)
    assert clock is not None
    assert (clock.mean_hertz, clock.most_ratio) == (2.5e9, 0.75)


def test_a_virtual_machine_with_only_the_nominal_clock_reports_none(tmp_path: Path) -> None:
    block = {"number": 0, "megahertz": "2596.1", "package": 0, "core": 0}
    write(tmp_path, {"cpuinfo": CPUINFO.format(flag="", **block)})
    assert clocks(tmp_path, tmp_path) is None
    write(tmp_path, {"cpuinfo": CPUINFO.format(flag=" aperfmperf pni", **block)})
    clock = clocks(tmp_path, tmp_path)
    assert clock is not None
    assert (clock.mean_hertz, clock.most_ratio) == (pytest.approx(2.5961e9), None)


def test_facts_distinguish_cores_from_threads_and_count_the_usable_ones(tmp_path: Path) -> None:
    blocks = [
        CPUINFO.format(number=number, megahertz=2000, package=package, core=core, flag="")
        for number, (package, core) in enumerate([(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)])
    ]
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    cpufreq = "devices/system/cpu/cpu0/cpufreq"
    write(
        proc,
        {
            "cpuinfo": "".join(blocks),
            "meminfo": "MemTotal:       1024 kB\n",
            "self/status": "Name:\tx\nCpus_allowed:\t0000000f,80000001\nCpus_allowed_list:\t0,31-35\n",
        },
    )
    write(
        sys,
        {f"{cpufreq}/scaling_governor": "powersave\n", f"{cpufreq}/cpuinfo_max_freq": "3000000\n"},
    )
    assert processor_facts(proc, sys) == {
        "model": "Some Processor 9000",
        "threads": 6,
        "cores": 3,
        "usable_threads": 6,
        "frequency_max_hertz": 3e9,
        "governor": "powersave",
        "memory_total_bytes": 1048576,
    }


def test_a_process_without_an_affinity_mask_is_not_an_error() -> None:
    assert usable_threads("") is None
