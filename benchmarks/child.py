"""Runs one measurement inside a peer's environment and writes its result as JSON."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import loops, workload

Outcome = dict[str, Any]

HELPERS_START_S = 1.0
"""Lets helper processes come up, so that runs of any length have the same fixed cost."""


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_paced(peer: ModuleType, folder: str, bare_bytes: int, budget_s: float) -> Outcome:
    """Time each log call with 200 µs of work between calls, and the slowdown of the loop."""
    rounds = workload.calibrate_work()
    writer = peer.Writer(folder)
    paced = loops.paced(writer.log, rounds, budget_s, resident_bytes)
    writer.finish()
    calls_us = sorted(ns / 1000 for ns in paced.call_ns)
    return {
        "calls": len(calls_us),
        "p50_us": calls_us[len(calls_us) // 2],
        "p99_us": calls_us[len(calls_us) * 99 // 100],
        "max_us": calls_us[-1],
        "slowdown": paced.slowdown,
        "work_us": paced.work_us,
        "rss_mb": (paced.end_bytes - bare_bytes) / 1e6,
        "rss_growth_mb": (paced.end_bytes - paced.early_bytes) / 1e6,
        "steps": paced.steps,
    }


def measure_flat(peer: ModuleType, folder: str, bare_bytes: int, rows: int) -> Outcome:
    """Log rows as fast as the peer takes them, until they are durable and readable."""
    began = time.perf_counter()
    writer = peer.Writer(folder)
    start_s = time.perf_counter() - began
    time.sleep(HELPERS_START_S)
    started = time.perf_counter()
    loops.flat_out(writer.log, rows)
    logged = time.perf_counter()
    end_bytes = resident_bytes()
    writer.finish()
    return {
        "rows": rows,
        "start_s": start_s,
        "log_s": logged - started,
        "wall_s": time.perf_counter() - started,
        "rss_mb": (end_bytes - bare_bytes) / 1e6,
    }


def measure_fill(peer: ModuleType, folder: str, points: int) -> Outcome:
    """Write one long series for the read-back."""
    values = workload.float64_values(points)
    writer = peer.Writer(folder)
    began = time.perf_counter()
    if hasattr(writer, "fill"):
        writer.fill(workload.READ_KEY, values)
    else:
        for step, value in enumerate(values):
            writer.log(step, {"loss": value})
    writer.finish()
    return {"points": points, "wall_s": time.perf_counter() - began}


def measure_read(peer: ModuleType, folder: str, points: int) -> Outcome:
    """Read the long series back and compare it bit by bit."""
    began = time.perf_counter()
    steps, values = peer.read_series(folder, workload.READ_KEY)
    read_s = time.perf_counter() - began
    exact = loops.compare(steps, values, workload.float64_values(points))
    return {"points": points, "found": len(steps), "read_s": read_s, "exact": exact}


def measure_crash(peer: ModuleType, folder: str, acknowledge: int) -> None:
    """Log until killed, acknowledging each step after its call returned."""
    os.set_inheritable(acknowledge, False)
    writer = peer.Writer(folder)
    loops.until_killed(writer.log, acknowledge)


def measure_recover(peer: ModuleType, folder: str, acknowledged: int) -> Outcome:
    """Count the acknowledged steps that cannot be read back as they were logged."""
    steps, values = peer.read_series(folder, workload.READ_KEY)
    pool = workload.float32_pool()
    recovered = {
        int(step)
        for step, value in zip(steps, values, strict=True)
        if value == workload.row(pool, int(step))["loss"]
    }
    return {"acknowledged": acknowledged, "lost": sum(s not in recovered for s in range(acknowledged))}


NEEDS_BARE_MEMORY = ("paced", "flat")
READS = ("read", "recover")


def main() -> None:
    """Expect: peer, measurement, data folder, result file, parameters as JSON."""
    name, measurement, folder, result, parameters = sys.argv[1:]
    arguments = json.loads(parameters)
    workload.float32_pool()
    if measurement in NEEDS_BARE_MEMORY:
        arguments["bare_bytes"] = resident_bytes()
    began = time.perf_counter()
    peer = importlib.import_module(f"benchmarks.peers.{name}")
    if measurement in READS and hasattr(peer, "import_reader"):
        peer.import_reader()
    import_s = time.perf_counter() - began
    outcome = globals()[f"measure_{measurement}"](peer, folder, **arguments)
    Path(result).write_text(json.dumps({**outcome, "import_s": import_s}))


if __name__ == "__main__":
    main()
