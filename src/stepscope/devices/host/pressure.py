"""Reads how long tasks waited for processor, memory or disk (Linux pressure stall information)."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from stepscope.devices.host.kernel_files import read_text
from stepscope.devices.rates import HostRates
from stepscope.procfs import PROC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TOTAL = re.compile(r"^(some|full) .*total=(\d+)", re.MULTILINE)


class Pressure:
    """The pressure on one resource of the host: `cpu`, `memory` or `io`."""

    def __init__(self, resource: str, proc: Path = PROC, now: Callable[[], float] = time.monotonic) -> None:
        self._file = f"{proc}/pressure/{resource}"
        self._rates = HostRates(now)

    def since_last(self) -> dict[str, float]:
        """The shares of time since the last call in which `some` tasks, or all (`full`), waited.

        Computed from the running totals: the averages beside them lag by ten seconds. Empty at the first
        call, and on a kernel without pressure information.
        """
        counts = {kind: int(total) / 1e6 for kind, total in _TOTAL.findall(read_text(self._file) or "")}
        return {kind: min(share, 1.0) for kind, share in self._rates.since_last(counts).items()}
