"""The watched processes, their loader workers and their trees, written and real."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.devices.host.kernel_files import PAGE_BYTES
from stepscope.devices.process.processes import process_state
from stepscope.errors import ConfigError
from stepscope.samplers.processes import ProcessesSampler
from stepscope.schema.sample import Watched
from tests.conftest import Script
from tests.devices.written import HandClock, process, values_of, watched, write

TICKS = os.sysconf("SC_CLK_TCK")
WORKER = {"name": "pt_data_worker", "parent": 10}


def sampler(proc: Path, clock: HandClock) -> ProcessesSampler:
    return ProcessesSampler(_proc=proc, _now=clock, _cpu_seconds=lambda: 0.0)


def counters(proc: Path, pid: int, count: int) -> None:
    """What a process has done, all of it so many times."""
    write(
        proc,
        {
            f"{pid}/io": f"rchar: {count}\nwchar: {count}\nsyscr: {count}\nsyscw: {count}\n"
            f"read_bytes: {2 * count}\nwrite_bytes: {3 * count}\ncancelled_write_bytes: 0\n",
            f"{pid}/schedstat": f"0 {count * 1_000_000} 5\n",
            f"{pid}/status": "Name:\tpython\nCpus_allowed:\t0f\n"
            f"voluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t{4 * count}\n",
        },
    )


def test_rates_of_the_process_itself_come_with_the_second_look(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    process(tmp_path, 10, ticks=(TICKS, 0), threads=6, rss_pages=100)
    counters(tmp_path, 10, 1000)
    first = values_of(processes.sample([watched(10)]), owner=watched(10))
    assert first == {
        "process/cpu_user_seconds_total": 1.0,
        "process/cpu_system_seconds_total": 0.0,
        "process/rss_bytes": 100 * PAGE_BYTES,
        "process/threads": 6,
        "process/usable_cores": 4,
        "tree/rss_bytes": 100 * PAGE_BYTES,
        "tree/processes": 1,
        "tree/threads": 6,
    }
    process(tmp_path, 10, ticks=(3 * TICKS, TICKS), threads=6, rss_pages=100, major_faults=20)
    counters(tmp_path, 10, 1500)
    clock.now += 2
    second = values_of(processes.sample([watched(10)]), owner=watched(10))
    assert second["process/cpu_ratio"] == second["tree/cpu_ratio"] == 1.5
    assert second["process/major_faults_per_second"] == 10
    assert second["process/queued_ratio"] == 0.25
    assert second["process/voluntary_switches_per_second"] == 250
    assert second["process/involuntary_switches_per_second"] == 1000
    assert second["process/read_bytes_per_second"] == second["process/reads_per_second"] == 250
    assert second["process/disk_read_bytes_per_second"] == 500
    assert second["process/disk_write_bytes_per_second"] == 750


def test_workers_are_devices_and_other_children_are_in_the_tree_alone(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    for ticks in (0, TICKS):
        process(tmp_path, 10, ticks=(ticks, 0), rss_pages=1)
        process(tmp_path, 11, ticks=(ticks, 0), rss_pages=2, start=200, **WORKER)
        process(tmp_path, 12, ticks=(ticks, 0), rss_pages=4, start=201, **WORKER)
        process(tmp_path, 13, "ffmpeg", name="ffmpeg", parent=11, ticks=(ticks, 0), rss_pages=8)
        counters(tmp_path, 12, 100 + ticks)
        clock.now += 1
        samples = list(processes.sample([watched(10)]))
    assert {sample.device for sample in samples} == {"", "loader-0", "loader-1"}
    assert values_of(samples, "loader-1", watched(10)) == {
        "process/cpu_ratio": 1.0,
        "process/rss_bytes": 4 * PAGE_BYTES,
        "process/major_faults_per_second": 0.0,
        "process/read_bytes_per_second": TICKS,
        "process/write_bytes_per_second": TICKS,
        "process/reads_per_second": TICKS,
        "process/writes_per_second": TICKS,
        "process/disk_read_bytes_per_second": 2 * TICKS,
        "process/disk_write_bytes_per_second": 3 * TICKS,
    }
    tree = values_of(samples, owner=watched(10))
    assert tree["tree/cpu_ratio"] == 4.0
    assert tree["tree/rss_bytes"] == 15 * PAGE_BYTES
    assert tree["tree/processes"] == 4


def test_what_ended_workers_have_read_is_not_taken_for_a_spike_of_their_parent(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    seen = []
    for count, inherited_faults in ((0, 0), (10, 0), (10**9, 5000), (10**9 + 10, 5000)):
        process(tmp_path, 10, inherited_faults=inherited_faults)
        counters(tmp_path, 10, count)
        seen.append(values_of(processes.sample([watched(10)]), owner=watched(10)))
        clock.now += 1
    rates = [values.get("process/read_bytes_per_second") for values in seen]
    assert rates == [None, 10.0, None, 10.0]
    assert "process/cpu_ratio" in seen[2]


def test_a_worker_of_the_next_epoch_has_the_name_but_not_the_past_of_the_last(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    process(tmp_path, 10)
    for pid, start in ((11, 200), (12, 300)):
        process(tmp_path, pid, ticks=(9 * TICKS, 0), start=start, **WORKER)
        samples = list(processes.sample([watched(10)]))
        shutil.rmtree(tmp_path / str(pid))
        clock.now += 1
        assert values_of(samples, "loader-0", watched(10)) == {"process/rss_bytes": 10 * PAGE_BYTES}


def test_a_number_given_to_another_process_gives_no_rate_across_the_two(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 11, start=200, **WORKER)
    list(processes.sample([watched(10)]))
    process(tmp_path, 11, start=900, ticks=(50 * TICKS, 0), **WORKER)
    clock.now += 1
    values = values_of(processes.sample([watched(10)]), owner=watched(10))
    assert values["tree/cpu_ratio"] == 0.0


def test_the_memory_of_the_tree_is_reported_when_all_of_it_is_known(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    process(tmp_path, 10)
    process(tmp_path, 11, **WORKER)
    write(tmp_path, {"10/smaps_rollup": "Pss: 30 kB\nPrivate_Dirty: 10 kB\n"})
    samples = list(processes.sample([watched(10)]))
    values = values_of(samples, owner=watched(10))
    assert (values["process/pss_bytes"], values["process/uss_bytes"]) == (30 * 1024, 10 * 1024)
    assert "tree/pss_bytes" not in values
    write(tmp_path, {"11/smaps_rollup": "Pss: 5 kB\nPrivate_Dirty: 1 kB\n"})
    clock.now += 10
    samples = list(processes.sample([watched(10)]))
    assert values_of(samples, "loader-0", watched(10))["process/pss_bytes"] == 5 * 1024
    assert values_of(samples, owner=watched(10))["tree/pss_bytes"] == 35 * 1024


def test_open_files_are_counted_at_intervals(tmp_path: Path) -> None:
    clock = HandClock()
    processes = sampler(tmp_path, clock)
    process(tmp_path, 10)
    write(tmp_path, {"10/fd/0": "", "10/fd/1": ""})
    counts = []
    for _ in range(3):
        counts.append(values_of(processes.sample([watched(10)]), owner=watched(10)).get("process/open_files"))
        clock.now += 5
    assert counts == [2, None, 2]


def test_a_process_that_is_gone_is_silent(tmp_path: Path) -> None:
    assert list(sampler(tmp_path, HandClock()).sample([watched(10)])) == []


@pytest.mark.parametrize("seconds", [0, -1, "often"])
def test_an_interval_that_is_none_is_refused_by_name(seconds: object) -> None:
    with pytest.raises(ConfigError, match=r"samplers.processes.memory_detail_every_s is .* above 0"):
        ProcessesSampler(memory_detail_every_s=seconds)  # type: ignore[arg-type]


LOADER = """
    import select, sys
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 1_000_000

        def __getitem__(self, index):
            return sum(number * number for number in range(20_000))

    for epoch in range(2):
        for batch in DataLoader(Squares(), num_workers=2, multiprocessing_context="fork"):
            if batch.numel() and select.select([sys.stdin], [], [], 0)[0]:
                break
        sys.stdin.readline()
    print("done", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_two_real_workers_are_seen_at_work_in_each_epoch(
    start: Script, until: Callable[[Callable[[], object]], None]
) -> None:
    training = start(LOADER, stdin=subprocess.PIPE)
    assert training.stdin is not None
    assert training.stdout is not None
    process = Watched("a-run", "seg1", 0, training.pid, "rank")
    processes = ProcessesSampler()
    devices: set[str] = set()
    for _ in range(2):
        at_work: set[str] = set()

        def is_at_work(at_work: set[str] = at_work) -> bool:
            samples = list(processes.sample([process]))
            devices.update(sample.device for sample in samples)
            at_work |= {sample.device for sample in samples if sample.values.get("process/cpu_ratio", 0) > 0}
            return at_work == {"", "loader-0", "loader-1"}

        until(is_at_work)
        training.stdin.write("next\n")
        training.stdin.flush()
    assert training.stdout.readline() == "done\n"
    until(lambda: {sample.device for sample in processes.sample([process])} == {""})
    assert devices == {"", "loader-0", "loader-1"}
    training.kill()
    training.wait()
    assert list(processes.sample([process])) == []


def test_a_real_training_is_sampled_without_the_agent_it_started(start: Script) -> None:
    training = start(
        """
        import sys, time, stepscope
        from stepscope.agent.process.election import agent_pid
        with stepscope.TrainingMonitor(run="watched") as monitor:
            monitor.log({"loss": 1.0})
            while agent_pid(monitor.directory) is None:
                time.sleep(0.01)
            print(agent_pid(monitor.directory), flush=True)
            sys.stdin.readline()
        """,
        stdin=subprocess.PIPE,
    )
    assert training.stdout is not None
    agent = int(training.stdout.readline())
    assert process_state(agent) is not None
    process = Watched("a-run", "seg1", 0, training.pid, "rank")
    values = values_of(ProcessesSampler().sample([process]), owner=process)
    assert values["tree/processes"] == 1
    assert values["process/rss_bytes"] == values["tree/rss_bytes"] > 0
    training.communicate("end\n", timeout=120)
