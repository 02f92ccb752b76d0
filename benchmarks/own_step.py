"""What default monitoring adds to a step of 5 ms on the CPU."""

import os
import statistics
import time
from pathlib import Path

import stepscope
from benchmarks import own_entry, workload

STEP_S = 0.005
STEPS_PER_BLOCK = 40
BLOCKS = 40
QUICK_BLOCKS = 6


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Alternate blocks of monitored and plain steps and compare the median step."""
    os.environ["STEPSCOPE_DIR"] = str(folder)
    rounds = _rounds_of_a_step()
    plain: list[float] = []
    monitored: list[float] = []
    with stepscope.TrainingMonitor(run="run", project="bench") as monitor:
        for _ in range(QUICK_BLOCKS if quick else BLOCKS):
            plain += _plain_steps(rounds)
            monitored += _monitored_steps(monitor, rounds)
    plain_s, monitored_s = statistics.median(plain), statistics.median(monitored)
    return {"step_ms": plain_s * 1000, "step_overhead_percent": (monitored_s / plain_s - 1) * 100}


def _rounds_of_a_step() -> int:
    """How much work lasts as long as a step: sized by steps as they are measured, not by single calls."""
    rounds = workload.calibrate_work() * 25
    return round(rounds * STEP_S / statistics.median(_plain_steps(rounds)))


def _plain_steps(rounds: int) -> list[float]:
    took: list[float] = []
    began = time.perf_counter()
    for _ in range(STEPS_PER_BLOCK):
        workload.work(rounds)
        ended = time.perf_counter()
        took.append(ended - began)
        began = ended
    return took


def _monitored_steps(monitor: stepscope.TrainingMonitor, rounds: int) -> list[float]:
    took: list[float] = []
    began = time.perf_counter()
    for batch in monitor.batches(range(STEPS_PER_BLOCK)):
        workload.work(rounds)
        monitor.log_training_step(loss=1.0 / (batch + 1), accuracy=0.5, custom_metrics={"lr": 0.1})
        ended = time.perf_counter()
        took.append(ended - began)
        began = ended
    return took


if __name__ == "__main__":
    own_entry.run(measure)
