"""What the agent costs while a run logs at an ordinary pace."""

import time
from pathlib import Path

import psutil

from benchmarks import own_entry, workload
from benchmarks.peers.stepscope import Writer
from stepscope.agent.process.election import agent_pid

WATCHED_S = 20.0
QUICK_WATCHED_S = 4.0
SETTLING_S = 15.0
"""Until the first diagnosis has loaded all detectors, which takes the agent 0.2 s once."""
STEP_S = 0.1


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Log ten steps a second and watch the agent's CPU and memory."""
    writer = Writer(str(folder))
    step = _log_for(writer, SETTLING_S, 0)
    pid = agent_pid(folder)
    if pid is None:
        raise RuntimeError(f"no agent attends to {folder}")
    agent = psutil.Process(pid)
    watched_s = QUICK_WATCHED_S if quick else WATCHED_S
    before = agent.cpu_times()
    _log_for(writer, watched_s, step)
    after = agent.cpu_times()
    memory_bytes = agent.memory_info().rss
    writer.finish()
    cpu_s = after.user + after.system - before.user - before.system
    return {"agent_cpu_percent": cpu_s / watched_s * 100, "agent_rss_mb": memory_bytes / 1e6}


def _log_for(writer: Writer, seconds: float, step: int) -> int:
    pool = workload.float32_pool()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        writer.log(step, workload.row(pool, step))
        step += 1
        time.sleep(STEP_S)
    return step


if __name__ == "__main__":
    own_entry.run(measure)
