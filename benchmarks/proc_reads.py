"""Compares the CPU time of stepscope's readers of `/proc` with psutil's: python -m benchmarks.proc_reads."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import psutil

from stepscope.devices.host.disks import disk_counts
from stepscope.devices.host.memory import host_memory, paging_counts
from stepscope.devices.host.networks import interface_counts
from stepscope.devices.host.processor import core_times, processor_counts
from stepscope.devices.process.processes import (
    ProcessFiles,
    input_output_counts,
    main_thread_counts,
    memory_shares,
    process_state,
)
from stepscope.procfs import start_ticks

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 200
ROUNDS = 15


def main() -> None:
    """Prints microseconds of CPU time for each reader, the median of rounds in which both take turns."""
    files, pid = ProcessFiles(), os.getpid()
    process = psutil.Process(pid)
    print(f"{'read':<34}{'ours µs':>10}{'psutil µs':>11}{'ratio':>8}")
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "processors, all together": (processor_counts, lambda: (psutil.cpu_times(), psutil.cpu_stats())),
        "processors, one by one": (core_times, lambda: psutil.cpu_times(percpu=True)),
        "memory and swap": (host_memory, lambda: (psutil.virtual_memory(), psutil.swap_memory())),
        "paging": (paging_counts, psutil.swap_memory),
        "disks": (disk_counts, lambda: psutil.disk_io_counters(perdisk=True)),
        "networks": (interface_counts, lambda: psutil.net_io_counters(pernic=True)),
        "one process: times, memory, threads": (
            lambda: process_state(pid, files),
            lambda: _state_by_psutil(process),
        ),
        "one process: switches, affinity": (
            lambda: main_thread_counts(pid, files),
            lambda: (process.num_ctx_switches(), len(process.cpu_affinity())),
        ),
        "one process: input and output": (lambda: input_output_counts(pid, files), process.io_counters),
        "one process: unique memory": (lambda: memory_shares(pid), process.memory_full_info),
        "one process: when it began": (lambda: start_ticks(pid), lambda: psutil.Process(pid).create_time()),
    }
    for name, (ours, theirs) in pairs.items():
        took = [(_microseconds(ours), _microseconds(theirs)) for _ in range(ROUNDS)]
        own, other = (statistics.median(column) for column in zip(*took, strict=True))
        print(f"{name:<34}{own:>10.1f}{other:>11.1f}{other / own:>8.1f}")


def _state_by_psutil(process: psutil.Process) -> object:
    with process.oneshot():
        return (
            process.ppid(),
            process.name(),
            process.cpu_times(),
            process.num_threads(),
            process.memory_info(),
            process.status(),
        )


def _microseconds(read: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        read()
    return (time.process_time() - began) / CALLS * 1e6


if __name__ == "__main__":
    main()
