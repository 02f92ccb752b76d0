"""How the log call's time depends on run length, keys seen before, and a dead agent."""

import os
import signal
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path

from benchmarks import own_entry, workload
from benchmarks.child import resident_bytes
from benchmarks.peers.stepscope import Writer
from stepscope.agent.process.election import agent_pid

CALLS = 1_000_000
QUICK_CALLS = 50_000
FEW_KEYS = 10
MANY_KEYS = 10_000
PROBE_CALLS = 20_000

Log = Callable[[int, dict[str, float]], None]


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Time the same row under each condition; report medians as ratios."""
    writer = Writer(str(folder))
    length = _by_run_length(writer.log, QUICK_CALLS if quick else CALLS)
    keys = _by_keys_seen(writer.log)
    agent = _without_agent(writer.log, folder)
    writer.finish()
    return {**length, **keys, **agent}


def _by_run_length(log: Log, calls: int) -> dict[str, float]:
    tenth = calls // 10
    first_ns = _median_call_ns(log, range(tenth))
    early_bytes = resident_bytes()
    _median_call_ns(log, range(tenth, calls - tenth))
    last_ns = _median_call_ns(log, range(calls - tenth, calls))
    return {
        "call_first_tenth_us": first_ns / 1000,
        "call_last_tenth_us": last_ns / 1000,
        "call_last_over_first": last_ns / first_ns,
        "rss_growth_mb_over_run": (resident_bytes() - early_bytes) / 1e6,
    }


def _by_keys_seen(log: Log) -> dict[str, float]:
    few_ns = _median_call_ns(log, range(PROBE_CALLS))
    for number in range(FEW_KEYS, MANY_KEYS, workload.KEYS_PER_ROW):
        row = {f"key_{number + index}": 0.5 for index in range(workload.KEYS_PER_ROW)}
        log(number, row)
    many_ns = _median_call_ns(log, range(PROBE_CALLS))
    return {"call_many_keys_over_few": many_ns / few_ns}


def _without_agent(log: Log, folder: Path) -> dict[str, float]:
    with_ns = _median_call_ns(log, range(PROBE_CALLS))
    agent = agent_pid(folder)
    if agent is None or agent == os.getpid():
        return {}
    os.kill(agent, signal.SIGKILL)
    without_ns = _median_call_ns(log, range(PROBE_CALLS))
    return {"call_agent_killed_over_alive": without_ns / with_ns}


def _median_call_ns(log: Log, steps: range) -> float:
    pool = workload.float32_pool()
    now = time.perf_counter_ns
    call_ns = array("q", bytes(8 * len(steps)))
    for index, step in enumerate(steps):
        metrics = workload.row(pool, step)
        before = now()
        log(step, metrics)
        call_ns[index] = now() - before
    return statistics.median(call_ns)


if __name__ == "__main__":
    own_entry.run(measure)
