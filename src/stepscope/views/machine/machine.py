"""What a machine does at the moment: the newest figure of each device, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import THROTTLE_REASONS
from stepscope.schema.sample import Notice, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.schema.sample import Reading


@dataclass(frozen=True)
class GpuNow:
    """A GPU as it is; what it does not tell is None."""

    index: int
    name: str
    utilization_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_celsius: float | None
    power_watts: float | None
    power_limit_watts: float | None
    fan_ratio: float | None
    sm_clock_hertz: float | None
    throttled: tuple[str, ...]
    """Why its clocks are held down, in words."""


@dataclass(frozen=True)
class HostNow:
    """The host as it is; what is not known yet, or not told, is None."""

    cpu_ratio: float | None
    iowait_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    disk_read: float | None
    disk_written: float | None
    received: float | None
    sent: float | None


class MachineNow:
    """Keeps the newest of everything that is read."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, float]] = {}
        self._notices: dict[str, str] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}

    def take(self, taken: SamplerReadings) -> list[Reading]:
        """Notes what was read; returns it without what was said before."""
        return [reading for reading in taken.readings if self._is_new(reading)]

    def _is_new(self, reading: Reading) -> bool:
        if isinstance(reading, Sample):
            self._figures.setdefault(reading.device, {}).update(reading.values)
            return bool(reading.values)
        if isinstance(reading, Notice):
            previous, self._notices[reading.subject] = self._notices.get(reading.subject), reading.text
            return previous != reading.text
        previous, self.facts[reading.device] = self.facts.get(reading.device), reading.fields
        return previous != reading.fields

    def index_of(self, device: str) -> int | None:
        """The number of a GPU; None for what is none."""
        facts = self.facts.get(device, {})
        return facts.get("index") if "uuid" in facts or "vendor" in facts else None

    def gpus(self) -> list[GpuNow]:
        """All GPUs, by number."""
        gpus = [self._gpu(device) for device in self.facts if self.index_of(device) is not None]
        return sorted(gpus, key=lambda gpu: gpu.index)

    def host(self) -> HostNow:
        """The host itself."""
        figures = self._figures.get("", {})
        return HostNow(
            cpu_ratio=figures.get("cpu/utilization_ratio"),
            iowait_ratio=figures.get("cpu/iowait_ratio"),
            memory_used_bytes=figures.get("memory/used_bytes"),
            memory_total_bytes=figures.get("memory/total_bytes"),
            disk_read=figures.get("disk/read_bytes_per_second"),
            disk_written=figures.get("disk/write_bytes_per_second"),
            received=figures.get("network/received_bytes_per_second"),
            sent=figures.get("network/sent_bytes_per_second"),
        )

    def _gpu(self, device: str) -> GpuNow:
        facts, figures = self.facts[device], self._figures.get(device, {})
        reasons = [reason for reason in THROTTLE_REASONS if figures.get(f"gpu/throttled_{reason}")]
        return GpuNow(
            index=int(facts["index"]),
            name=str(facts.get("name", "")),
            utilization_ratio=figures.get("gpu/utilization_ratio"),
            memory_used_bytes=figures.get("gpu/memory_used_bytes"),
            memory_total_bytes=figures.get("gpu/memory_total_bytes"),
            temperature_celsius=figures.get("gpu/temperature_celsius"),
            power_watts=figures.get("gpu/power_watts"),
            power_limit_watts=figures.get("gpu/power_limit_watts"),
            fan_ratio=figures.get("gpu/fan_ratio"),
            sm_clock_hertz=figures.get("gpu/sm_clock_hertz"),
            throttled=tuple(reason.replace("_", " ") for reason in reasons),
        )
