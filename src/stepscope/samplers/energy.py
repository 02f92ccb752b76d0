"""Reads the energy of the host's processors and memory from their energy counters (RAPL)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from stepscope.devices.host.rapl import POWERCAP, Meter, RaplUnavailable, find_zones
from stepscope.procfs import PROC
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import Metric, Notice, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from stepscope.devices.host.rapl import Kind
    from stepscope.schema.sample import Reading, Watched

KEYS: dict[Kind, str] = {
    "package": "energy/cpu_joules_total",
    "dram": "energy/dram_joules_total",
    "psys": "energy/board_joules_total",
}


HOST = ""


class EnergySampler(Sampler):
    """Counts joules since its start: of the host, and of each package as a separate device."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(KEYS["package"], "Energy of all processor packages since the agent began."),
        Metric(KEYS["dram"], "Energy of the memory of all packages since the agent began."),
        Metric(KEYS["psys"], "Energy of the whole board since the agent began, packages included."),
    )

    def __init__(
        self, *, _powercap: Path = POWERCAP, _proc: Path = PROC, _clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._powercap, self._proc, self._clock = _powercap, _proc, _clock
        self._meters: list[Meter] = []

    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        """Reads every counter; returns a notice when there is none, and tries again the next time."""
        del watched  # the counters belong to the host
        if not self._meters:
            try:
                zones = find_zones(self._powercap, self._proc)
                self._meters = [Meter(zone, self._clock) for zone in zones]
            except RaplUnavailable as reason:
                return [Notice("energy", str(reason))]
            except (OSError, ValueError):  # permission was removed between two samples
                return []
        return list(self._read())

    def _read(self) -> Iterator[Reading]:
        """Sums for the host and for each package; an incomplete sum is left out."""
        sums: dict[str, dict[str, float]] = {HOST: {}}
        incomplete: set[tuple[str, str]] = set()
        for meter in self._meters:
            key = KEYS[meter.zone.kind]
            devices = {HOST, HOST if meter.zone.kind == "psys" else meter.zone.device}
            try:
                joules = meter.joules()
            except (OSError, ValueError) as error:
                incomplete.update((device, key) for device in devices)
                yield Notice(f"energy: {meter.zone.folder.name}", f"{meter.zone.folder} is not read: {error}")
                continue
            for device in devices:
                values = sums.setdefault(device, {})
                values[key] = values.get(key, 0.0) + joules
        for device, values in sums.items():
            complete = {key: joules for key, joules in values.items() if (device, key) not in incomplete}
            if complete:
                yield Sample(complete, device=device)
