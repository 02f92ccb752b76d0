"""The loops in which a peer's log call is exercised."""

from __future__ import annotations

import os
import struct
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks import workload

Log = Callable[[int, dict[str, float]], None]

BLOCK_S = 0.25
SETTLE_S = 0.05
WARM_UP_CALLS = 20
ACKNOWLEDGEMENT = struct.Struct("<q")


@dataclass(frozen=True)
class Paced:
    """What the paced loop saw."""

    call_ns: array[int]
    slowdown: float
    work_us: float
    early_bytes: int
    end_bytes: int
    steps: int


def drop(step: int, metrics: dict[str, float]) -> None:
    """The empty function logging is compared with."""


def paced(log: Log, rounds: int, budget_s: float, resident_bytes: Callable[[], int]) -> Paced:
    """Alternate blocks of logging and of `drop`, the same fixed work between calls in both."""
    pool = workload.float32_pool()
    steps = WARM_UP_CALLS
    began = time.perf_counter()
    for step in range(steps):
        log(step, workload.row(pool, step))
        workload.work(rounds)
    block = max(10, int(BLOCK_S * steps / (time.perf_counter() - began)))
    call_ns = array("q")
    logging_s: list[float] = []
    dropping_s: list[float] = []
    early_bytes = 0
    deadline = time.perf_counter() + budget_s
    while not logging_s or time.perf_counter() < deadline:
        logging_s.append(_block(log, pool, rounds, range(steps, steps + block), call_ns))
        steps += block
        early_bytes = early_bytes or resident_bytes()
        time.sleep(SETTLE_S)
        dropping_s.append(_block(drop, pool, rounds, range(steps, steps + block), array("q")))
    return Paced(
        call_ns=call_ns,
        slowdown=median(logging_s) / median(dropping_s),
        work_us=median(dropping_s) / block * 1e6,
        early_bytes=early_bytes,
        end_bytes=resident_bytes(),
        steps=steps,
    )


def _block(log: Log, pool: array[float], rounds: int, steps: range, call_ns: array[int]) -> float:
    """Run one block, append the time of each call, return the wall time of the block."""
    now = time.perf_counter_ns
    began = now()
    for step in steps:
        metrics = workload.row(pool, step)
        before = now()
        log(step, metrics)
        call_ns.append(now() - before)
        workload.work(rounds)
    return (now() - began) / 1e9


def flat_out(log: Log, rows: int) -> None:
    """Log rows with nothing between the calls."""
    pool = workload.float32_pool()
    for step in range(rows):
        log(step, workload.row(pool, step))


def until_killed(log: Log, acknowledge: int) -> None:
    """Log with work between calls; the pipe gets a step once its call has returned."""
    pool = workload.float32_pool()
    rounds = workload.calibrate_work()
    step = 0
    while True:
        log(step, workload.row(pool, step))
        os.write(acknowledge, ACKNOWLEDGEMENT.pack(step))
        workload.work(rounds)
        step += 1


def compare(steps: Sequence[int], values: Sequence[float], expected: list[float]) -> str:
    """Say whether a series came back: `exact`, `float32`, `incomplete` or `altered`."""
    if [int(step) for step in steps] != list(range(len(expected))):
        return "incomplete"
    seconds = array("d", values)
    if seconds.tobytes() == array("d", expected).tobytes():
        return "exact"
    if seconds.tobytes() == array("d", array("f", expected)).tobytes():
        return "float32"
    return "altered"
