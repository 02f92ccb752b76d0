"""The current state of a host: the newest readings of each device."""

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
    """The current state of a GPU; None for what it does not report."""

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
    """The reasons for reduced clocks, as text."""


@dataclass(frozen=True)
class HostNow:
    """The current state of the host; None for what is not known."""

    cpu_ratio: float | None
    iowait_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    disk_read: float | None
    disk_written: float | None
    received: float | None
    sent: float | None


class MachineNow:
    """Keeps the newest readings of all devices."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, float]] = {}
        self._notices: dict[str, str] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}

    def take(self, taken: SamplerReadings) -> list[Reading]:
        """Stores the readings; returns them without notices and facts that were already known."""
        return [reading for reading in taken.readings if self._is_new(reading)]

    def _is_new(self, reading: Reading) -> bool:
        if isinstance(reading, Sample):
            self._figures.setdefault(reading.device, {}).update(reading.values)
            return bool(reading.values)
        if isinstance(reading, Notice):
            previous_text, self._notices[reading.subject] = self._notices.get(reading.subject), reading.text
            return previous_text != reading.text
        previous_fields, self.facts[reading.device] = self.facts.get(reading.device), reading.fields
        return previous_fields != reading.fields

    def index_of(self, device: str) -> int | None:
        """Returns the index of a GPU; None if the device is not a GPU."""
        facts = self.facts.get(device, {})
        return facts.get("index") if "uuid" in facts or "vendor" in facts else None

    def gpus(self) -> list[GpuNow]:
        """Returns all GPUs, by index."""
        gpus = [self._gpu(device) for device in self.facts if self.index_of(device) is not None]
        return sorted(gpus, key=lambda gpu: gpu.index)

    def host(self) -> HostNow:
        """Returns the state of the host."""
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
