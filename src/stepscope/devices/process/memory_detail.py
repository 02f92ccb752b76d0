"""Reads the unique and proportional memory of processes, as often as its cost allows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.process.processes import MemoryShares, memory_shares
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from stepscope.devices.process.processes import ProcessKey

BUDGET_RATIO = 0.0005
"""The share of one core this may take, for all processes together."""

MAX_BUDGET_S = 0.01
"""The most processor time for one sample: enough for a few processes, too little to disturb a training."""


class MemoryDetail:
    """Reads processes in turn, the least recently read first."""

    def __init__(
        self,
        every_s: float,
        proc: Path = PROC,
        now: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._every_s, self._proc, self._now, self._cpu_seconds = every_s, str(proc), now, cpu_seconds
        self._read_at: dict[ProcessKey, float] = {}
        self._known: dict[ProcessKey, MemoryShares] = {}
        self._budget_s, self._budget_at = MAX_BUDGET_S, now()

    def read_due(self, processes: Collection[ProcessKey]) -> dict[ProcessKey, MemoryShares]:
        """Reads as many due processes as the budget allows; `processes` are all current ones."""
        self._read_at = {key: at for key, at in self._read_at.items() if key in processes}
        self._known = {key: shares for key, shares in self._known.items() if key in processes}
        began = self._now()
        self._budget_s = min(self._budget_s + BUDGET_RATIO * (began - self._budget_at), MAX_BUDGET_S)
        self._budget_at = began
        due = [key for key in processes if began - self._read_at.get(key, float("-inf")) >= self._every_s]
        due.sort(key=lambda key: self._read_at.get(key, float("-inf")))
        shares_read = {}
        for key in due:
            if self._budget_s <= 0:
                break
            shares = self._read_within_budget(key)
            self._read_at[key] = began
            if shares is not None:
                shares_read[key] = shares
        return shares_read

    def known(self, key: ProcessKey) -> MemoryShares | None:
        """The last reading of a process; None where there is none, or it is forbidden."""
        return self._known.get(key)

    def _read_within_budget(self, key: ProcessKey) -> MemoryShares | None:
        began = self._cpu_seconds()
        shares = memory_shares(key.pid, self._proc)
        self._budget_s -= self._cpu_seconds() - began
        if shares is None:
            self._known.pop(key, None)
        else:
            self._known[key] = shares
        return shares
