"""Whether `stepscope watch --json` shows what nvidia-smi shows under load, and what the agent costs.

    PYTHONPATH=src python -m benchmarks.watch_agreement [--seconds 20]

Needs an NVIDIA GPU and PyTorch. A child makes load, `stepscope watch --json` and `nvidia-smi` look at it at
the same time. Each of our values is compared with the three of theirs nearest in time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu_agreement import LOAD
from stepscope.agent.process.election import agent_pid

Line = dict[str, Any]
Look = tuple[float, dict[str, float]]

MIB = 1 << 20
WITHIN = 0.05


@dataclass(frozen=True)
class Compared:
    """A metric of ours, nvidia-smi's name for it, and what ours is divided by to have its unit."""

    key: str
    query: str
    unit: float
    exact: bool = False


COMPARED = (
    Compared("gpu/memory_used_bytes", "memory.used", MIB, exact=True),
    Compared("gpu/memory_total_bytes", "memory.total", MIB, exact=True),
    Compared("gpu/utilization_ratio", "utilization.gpu", 0.01),
    Compared("gpu/temperature_celsius", "temperature.gpu", 1),
    Compared("gpu/memory_temperature_celsius", "temperature.memory", 1),
    Compared("gpu/power_watts", "power.draw", 1),
    Compared("gpu/power_limit_watts", "enforced.power.limit", 1),
    Compared("gpu/sm_clock_hertz", "clocks.sm", 1e6),
    Compared("gpu/memory_clock_hertz", "clocks.mem", 1e6),
    Compared("gpu/pcie_generation", "pcie.link.gen.current", 1),
    Compared("gpu/pcie_width", "pcie.link.width.current", 1),
)
MUST_SHOW = (
    "gpu/throttled_power_cap",
    "gpu/pcie_received_bytes_per_second",
    "gpu/energy_joules_total",
    "gpu/sm_active_ratio",
    "gpu/tensor_active_ratio",
    "gpu/dram_active_ratio",
)
MUST_LACK = ("gpu/fan_ratio",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    seconds = parser.parse_args().seconds
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(seconds + 15)], stdout=subprocess.PIPE)
    assert load.stdout is not None
    load.stdout.readline()
    time.sleep(3)  # until power and clocks have settled
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs, cost = watch(Path(folder), seconds)
    load.kill()
    return report(ours, theirs, cost)


def watch(folder: Path, seconds: int) -> tuple[list[Line], list[Look], dict[str, float]]:
    """Look with both at once; returns what both saw, and what the agent took meanwhile."""
    command = [
        sys.executable,
        "-m",
        "stepscope",
        "watch",
        "--json",
        "--for",
        str(seconds),
        "--store",
        str(folder),
    ]
    shown = folder / "shown.jsonl"
    with shown.open("w") as file:
        process = subprocess.Popen(command, stdout=file, env=os.environ)
        theirs, cost = [], {}
        agent: psutil.Process | None = None
        while process.poll() is None:
            theirs.append(ask_nvidia_smi())
            if agent is None and len(theirs) > 3 and (pid := agent_pid(folder)):
                agent, began = psutil.Process(pid), time.monotonic()
                before = sum(agent.cpu_times()[:2])
            if agent is not None and agent.is_running() and time.monotonic() - began > seconds - 8:
                cost = {
                    "agent, % of a core": 100
                    * (sum(agent.cpu_times()[:2]) - before)
                    / (time.monotonic() - began),
                    "agent, MB resident": agent.memory_info().rss / 1e6,
                }
                agent = None
                began = float("inf")
            time.sleep(0.5)
    lines = [json.loads(line) for line in shown.read_text().splitlines()]
    return lines, theirs, cost


def ask_nvidia_smi() -> Look:
    """What it says, and the moment in the middle of its saying so."""
    began = time.time()
    query = ",".join(figure.query for figure in COMPARED)
    answer = subprocess.check_output(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", "0"], text=True
    )
    values = [float(word) for word in answer.split(",")]
    return (began + time.time()) / 2, dict(zip((figure.query for figure in COMPARED), values, strict=True))


def report(lines: list[Line], theirs: list[Look], cost: dict[str, float]) -> int:
    """Print a table; 1 where a figure disagrees, is missing, or is there and should not be."""
    looks = [line for line in lines if line.get("gpu") == 0 and "values" in line]
    wrong = 0
    print(f"{'metric':<34}{'looks':>6}{'agree':>7}{'ours, last':>14}{'nvidia-smi':>12}")
    for figure in COMPARED:
        ours = [
            (line["time"], line["values"][figure.key] / figure.unit)
            for line in looks
            if figure.key in line["values"]
        ]
        agreed = sum(agrees(figure, at, value, theirs) for at, value in ours)
        last = f"{ours[-1][1]:.2f}" if ours else "absent"
        print(f"{figure.key:<34}{len(ours):>6}{agreed:>7}{last:>14}{theirs[-1][1][figure.query]:>12.2f}")
        wrong += not ours or agreed < len(ours)
    for key in MUST_SHOW:
        values = [line["values"][key] for line in looks if key in line["values"]]
        print(f"{key:<34}{len(values):>6}   last {values[-1] if values else 'absent'}")
        wrong += not values
    for key in MUST_LACK:
        present = [line for line in looks if key in line["values"]]
        print(f"{key:<34}{'absent, as it should be' if not present else 'THERE':>30}")
        wrong += bool(present)
    for name, value in cost.items():
        print(f"{name:<34}{value:>12.2f}")
    return 1 if wrong else 0


def agrees(figure: Compared, at: float, value: float, theirs: list[Look]) -> bool:
    """Whether a value of ours is near theirs of that moment, or between two of theirs around it."""
    near = sorted(theirs, key=lambda look: abs(look[0] - at))[:3]
    values = [look[1][figure.query] for look in near]
    if figure.exact:
        return any(abs(value - other) < 1 for other in values)
    slack = max(1.0, WITHIN * max(map(abs, values)))
    return min(values) - slack <= value <= max(values) + slack


if __name__ == "__main__":
    sys.exit(main())
