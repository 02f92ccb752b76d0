"""What one agent costs while fifty runs are live."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks import own_entry, workload
from stepscope import open_store, procfs
from stepscope.agent.process.election import agent_pid
from stepscope.agent.process.start import ensure_agent
from stepscope.config.sections import Settings
from stepscope.journal.folder import JournalName, list_journals
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.schema.keys import PHASES, phase_key

RUNS = 50
STEPS_PER_S = 5
WATCHED_S = 40.0
QUICK_WATCHED_S = 5.0
WARM_UP_S = 30.0
QUICK_WARM_UP_S = 5.0
SILENT_EVERY = 5
"""Every fifth run logs nothing in every other stretch of `SILENT_S` seconds, as during an evaluation."""
SILENT_S = 10.0
GRADIENTS_EVERY = 7
AGENT_STARTS_S = 20.0
TAKEN_IN_S = 60.0


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Has fifty runs log five steps a second each, and measures the agent's CPU and memory."""
    warm_up_s, watched_s = (QUICK_WARM_UP_S, QUICK_WATCHED_S) if quick else (WARM_UP_S, WATCHED_S)
    cpu_percent, rss_mb = measure_runs(folder, RUNS, warm_up_s, watched_s)
    return {"agent_cpu_percent_50_runs": cpu_percent, "agent_rss_mb_50_runs": rss_mb}


def measure_runs(folder: Path, runs: int, warm_up_s: float, watched_s: float) -> tuple[float, float]:
    """The agent's share of one core in percent, and its memory in MB, with so many live runs."""
    ensure_agent(folder, Settings())
    with _idle_processes(runs) as pids:
        load = [_Run(folder, number, pid) for number, pid in enumerate(pids)]
        _log_for(load, warm_up_s)
        agent = psutil.Process(_wait_for_agent(folder))
        before, began = agent.cpu_times(), time.monotonic()
        _log_for(load, watched_s)
        after, elapsed_s = agent.cpu_times(), time.monotonic() - began
        memory_bytes = agent.memory_info().rss
        for run in load:
            run.end()
        _check_nothing_was_lost(folder, load)
    cpu_s = after.user + after.system - before.user - before.system
    return cpu_s / elapsed_s * 100, memory_bytes / 1e6


class _Run:
    """The journal of one run, written on behalf of a process that does nothing itself."""

    def __init__(self, folder: Path, number: int, pid: int) -> None:
        self._number, self.steps = number, 0
        self.name = f"run {number}"
        name = JournalName(f"run{number:02}", "0", 0, pid)
        supply = SegmentSupply(folder, name, segment_bytes=4 << 20, unread_bytes=1 << 30, mapping="auto")
        opening = {"run": self.name, "project": "bench", "host": os.uname().nodename, "role": "rank"}
        facts = {"mark": asdict(procfs.mark(pid)), "command": ["python", "train.py"], "world_size": 1}
        self._writer = JournalWriter(supply, {**opening, "started_ns": time.time_ns(), "facts": facts})

    def log_step(self, elapsed_s: float) -> None:
        """Logs what a watched training with ten metrics of its own logs in a step."""
        if self._number % SILENT_EVERY == 1 and int(elapsed_s / SILENT_S) % 2:
            return
        self.steps += 1
        step = self.steps
        row = workload.row(workload.float32_pool(), step * RUNS + self._number)
        self._writer.append_row(row, step)
        self._writer.append_row(self._phases(1 + row["entropy"] / 20), step)
        if step % GRADIENTS_EVERY == 0:
            norms = {f"gradient_norm/layer.{layer}": row["grad_norm"] for layer in range(4)}
            self._writer.append_row({"gradient_norm": row["grad_norm"], **norms}, step)

    def _phases(self, noise: float) -> dict[str, float]:
        """A step in its phases; every tenth run waits for its data."""
        seconds = dict.fromkeys(PHASES, 0.02 * noise)
        seconds["data"] *= 3 if self._number % 10 == 0 else 0.5
        timed = {phase_key(name): value for name, value in seconds.items()}
        return {**timed, "step_seconds": sum(seconds.values()), "samples_per_second": 64 / noise}

    def end(self) -> None:
        """Says that the run is over."""
        self._writer.close({"status": "finished", "reason": ""})


def _log_for(load: list[_Run], seconds: float) -> None:
    """Logs five steps a second of every run, spread evenly over the second."""
    began = time.monotonic()
    pause_s = 1 / (STEPS_PER_S * len(load))
    turn = 0
    while (elapsed_s := time.monotonic() - began) < seconds:
        due = int(elapsed_s / pause_s)
        for number in range(turn, due):
            load[number % len(load)].log_step(elapsed_s)
        turn = due
        time.sleep(max(pause_s, 0.02))


@contextmanager
def _idle_processes(count: int) -> Iterator[list[int]]:
    """Processes whose numbers the journals carry: the agent looks whether they live, and samples them."""
    idle = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield [process.pid for process in idle]
    finally:
        for process in idle:
            process.terminate()
            process.wait()


def _check_nothing_was_lost(folder: Path, load: list[_Run]) -> None:
    deadline = time.monotonic() + TAKEN_IN_S
    while any(list_journals(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    store = open_store(folder)
    for run in load:
        stored = len(store.run(run.name).series("loss").steps)
        if stored != run.steps:
            raise RuntimeError(f"{run.name} logged {run.steps} steps, {stored} are in the store")


def _wait_for_agent(folder: Path) -> int:
    deadline = time.monotonic() + AGENT_STARTS_S
    while (pid := agent_pid(folder)) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no agent attends to {folder}")
        time.sleep(0.05)
    return pid


if __name__ == "__main__":
    own_entry.run(measure)
