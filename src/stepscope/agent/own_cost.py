"""Measures the agent's own overhead: its processor time and memory, and the cost of each sampler."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.agent.sampling import Cost, SamplerReadings
from stepscope.schema.sample import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVERY_S = 10.0

METRICS = (
    Metric("stepscope/agent_cpu_ratio", "Processor time the agent takes; 0.01 is a hundredth of one core."),
    Metric("stepscope/agent_resident_bytes", "Memory the agent holds."),
    Metric(
        "stepscope/sampler_cpu_ratio",
        "Processor time of one sampler (its device); 0.01 is a hundredth of a core.",
    ),
    Metric("stepscope/sampler_poll_seconds", "How long a poll of one sampler (its device) takes on average."),
    Metric("stepscope/sampler_missed_total", "Polls left out because the one before took too long."),
)


class OwnCost:
    """Reads the agent's own cost every ten seconds."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = time.process_time,
        statm: Path = Path("/proc/self/statm"),
    ) -> None:
        self._now, self._cpu_seconds, self._statm = now, cpu_seconds, statm
        self._read_at, self._cpu_before = now(), cpu_seconds()
        self._costs: Mapping[str, Cost] = {}

    def read(self, costs: Mapping[str, Cost]) -> list[SamplerReadings]:
        """What was spent since the last reading; empty when that was less than `EVERY_S` ago."""
        elapsed = self._now() - self._read_at
        if elapsed < EVERY_S:
            return []
        samples = [self._agent(elapsed)]
        samples += [
            Sample(_spent(cost, self._costs.get(name), elapsed), f"sampler-{name}")
            for name, cost in costs.items()
        ]
        self._read_at, self._cpu_before, self._costs = self._now(), self._cpu_seconds(), costs
        return [SamplerReadings("own_cost", time.time_ns(), samples)]

    def _agent(self, elapsed: float) -> Sample:
        values = {"stepscope/agent_cpu_ratio": (self._cpu_seconds() - self._cpu_before) / elapsed}
        try:
            pages = int(self._statm.read_text().split()[1])
            values["stepscope/agent_resident_bytes"] = float(pages * os.sysconf("SC_PAGE_SIZE"))
        except OSError:
            pass  # not Linux
        return Sample(values)


def _spent(cost: Cost, before: Cost | None, elapsed: float) -> dict[str, float]:
    before = before or Cost(0, 0.0, 0.0, 0)
    values = {
        "stepscope/sampler_cpu_ratio": (cost.cpu_seconds - before.cpu_seconds) / elapsed,
        "stepscope/sampler_missed_total": float(cost.missed),
    }
    polls = cost.polls - before.polls
    if polls:
        values["stepscope/sampler_poll_seconds"] = (cost.wall_seconds - before.wall_seconds) / polls
    return values
