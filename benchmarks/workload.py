"""The values every peer logs and the work between two calls."""

from __future__ import annotations

import random
import time
from array import array
from functools import cache

KEYS_PER_ROW = 10
READ_KEY = "loss"
WORK_NS = 200_000

POOL_SIZE = 1 << 18
STRIDE = POOL_SIZE // KEYS_PER_ROW
"""Steps after which a series repeats: far more than a block that any peer compresses."""


@cache
def float32_pool() -> array[float]:
    """Losses as a loop has them: float64 objects whose values came from float32."""
    noise = random.Random(7).gauss
    return array("d", array("f", (2.0 + noise(0.0, 0.5) for _ in range(POOL_SIZE))))


def float64_values(count: int) -> list[float]:
    """Values that need all 64 bits, to find out whether a peer keeps them."""
    noise = random.Random(11).gauss
    return [2.0 + noise(0.0, 0.5) for _ in range(count)]


def row(pool: array[float], step: int) -> dict[str, float]:
    """Build a fresh row of ten floats under literal keys."""
    at = step % STRIDE
    return {
        "loss": pool[at],
        "accuracy": pool[at + STRIDE],
        "grad_norm": pool[at + 2 * STRIDE],
        "learning_rate": pool[at + 3 * STRIDE],
        "tokens_per_second": pool[at + 4 * STRIDE],
        "data_seconds": pool[at + 5 * STRIDE],
        "forward_seconds": pool[at + 6 * STRIDE],
        "backward_seconds": pool[at + 7 * STRIDE],
        "perplexity": pool[at + 8 * STRIDE],
        "entropy": pool[at + 9 * STRIDE],
    }


def work(rounds: int) -> float:
    """Compute for a fixed number of rounds: interference shows as time, not as fewer rounds."""
    total = 0.0
    for index in range(rounds):
        total += index * 0.5
    return total


def calibrate_work() -> int:
    """Find how many rounds of `work` take 200 µs on an undisturbed core."""
    rounds = 2_000
    for _ in range(2):
        best_ns = min(_time_ns_of_work(rounds) for _ in range(200))
        rounds = max(1, rounds * WORK_NS // best_ns)
    return rounds


def _time_ns_of_work(rounds: int) -> int:
    began = time.perf_counter_ns()
    work(rounds)
    return time.perf_counter_ns() - began
