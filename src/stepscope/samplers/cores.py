"""Polls how busy each logical processor is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepscope.devices.host.processor import busy_share, core_times
from stepscope.devices.rates import Rates
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from stepscope.schema.sample import Watched


class CoresSampler(Sampler):
    """Each logical processor separately, as the device `cpu-0`, `cpu-1` and so on."""

    interval_s = 5.0  # a host may have hundreds

    metrics = (
        Metric(
            "cpu/core_utilization_ratio",
            "Share of the time of one logical processor that was neither idle nor waiting for a disk.",
        ),
    )

    def __init__(self, *, _proc: Path = PROC, _now: Callable[[], float] = time.monotonic) -> None:
        self._proc = _proc
        self._rates: Rates[int] = Rates(_now)

    def sample(self, watched: Sequence[Watched]) -> Iterator[Sample]:
        """Reads every processor that is online."""
        for number, rates in self._rates.since_last(core_times(self._proc)).items():
            busy = busy_share(rates)
            if busy is not None:
                yield Sample({"cpu/core_utilization_ratio": busy}, f"cpu-{number}")
