"""Whether samplers keep a schedule of a tenth of a second, and what the agent costs then.

    python -m benchmarks.sampling_schedule [--interval 0.1] [--seconds 20]

A process that logs ten steps a second is watched; the moments of all readings are taken from its store.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

import stepscope
from stepscope.agent.process.election import agent_pid

LOGGING = """
import sys, time, stepscope
config = {"samplers": {"default": {"interval_s": float(sys.argv[2])}}}
until = time.monotonic() + float(sys.argv[3])
with stepscope.TrainingMonitor(config, run="scheduled", directory=sys.argv[1]) as monitor:
    while time.monotonic() < until:
        monitor.log({"loss": 1.0})
        time.sleep(0.1)
"""

KEYS = (
    "cpu/utilization_ratio",
    "memory/used_bytes",
    "process/rss_bytes",
    "network/received_bytes_per_second",
    "gpu/power_watts",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interval", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), options.interval, options.seconds)


def measure(folder: Path, interval_s: float, seconds: float) -> int:
    """Print the pace of each sampler; 1 where its mean is off by more than a tenth."""
    command = [sys.executable, "-c", LOGGING, str(folder), str(interval_s), str(seconds)]
    process = subprocess.Popen(command)
    time.sleep(4)
    agent = psutil.Process(agent_pid(folder))
    began, before = time.monotonic(), sum(agent.cpu_times()[:2])
    time.sleep(seconds - 8)
    spent = (sum(agent.cpu_times()[:2]) - before) / (time.monotonic() - began)
    process.wait()
    run = stepscope.open_store(folder).run("scheduled")
    off = 0
    for key in KEYS:
        if not any(info.key == key for info in run.machine_keys()):
            continue
        times = run.series(key, device="" if not key.startswith("gpu/") else None).times
        pauses = np.diff(times)
        mean = (times[-1] - times[0]) / (len(times) - 1)
        late = np.percentile(np.abs(pauses - interval_s), 99) / interval_s
        print(f"{key:<36} {len(times):4d} looks, mean {mean:.4f} s, p99 of the deviation {late:.0%}")
        off += abs(mean - interval_s) > 0.1 * interval_s or late > 0.1
    print(f"agent {spent:.2%} of a core")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
