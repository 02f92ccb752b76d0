"""What a GPU tells of itself, whoever made it; each reading stands alone, None is one it does not give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class GpuFacts:
    """What does not change about a GPU."""

    uuid: str
    """The one name that holds across processes, containers and orders of counting."""
    index: int
    """Its place in the driver's own order, as `nvidia-smi` counts."""
    name: str
    vendor: str
    driver: str | None = None
    pci_bus_id: str | None = None
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    runtime_index: int | None = None
    """Its place in the order programs count in, where the driver tells it (HIP); None: not told."""
    parent_uuid: str | None = None
    """For a slice of a GPU (MIG): the GPU it is a part of, whose index it shares."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    """For a slice: the two numbers its driver calls it by."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    memory_bytes: int | None = None
    utilization_ratio: float | None = None


@dataclass(frozen=True)
class GpuReading:
    """One look at a GPU, in base units."""

    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules_total: float | None = None
    """Since the driver was loaded."""
    fan_ratio: float | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    throttle_reasons: frozenset[str] | None = None
    """Why clocks are held down: names of `gpu.THROTTLE_REASONS`; empty when nothing holds them."""
    ecc_corrected_total: int | None = None
    ecc_uncorrected_total: int | None = None
    """Memory errors since the driver was loaded."""
    ecc_corrected_lifetime_total: int | None = None
    ecc_uncorrected_lifetime_total: int | None = None
    """Memory errors since the board was made."""
    remapped_rows_total: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages_total: int | None = None
    retire_pending: bool | None = None
    """What boards older than those that remap rows do with bad memory."""
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_replays_total: int | None = None
    pcie_received_bytes_per_second: float | None = None
    pcie_sent_bytes_per_second: float | None = None
    nvlink_received_bytes_per_second: float | None = None
    nvlink_sent_bytes_per_second: float | None = None
    nvlink_errors_total: int | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


FIGURES = frozenset(field.name for field in fields(GpuReading))

THROTTLE_REASONS = (
    "power_cap",
    "hardware_slowdown",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
    "sync_boost",
)


class GpuLost(Exception):
    """The GPU no longer answers: it fell off the bus, or its driver was unloaded."""


class Gpu(ABC):
    """One GPU, opened once and read again and again."""

    facts: GpuFacts

    @abstractmethod
    def read(self, *, thorough: bool) -> GpuReading:
        """Reads it; what changes slowly (errors, links, limits) only when asked to be thorough.

        Rates between two readings are None in the first one. Raises GpuLost when it no longer answers at all.
        """

    def absent(self) -> frozenset[str]:
        """The figures of a reading that it has refused to give; complete after one thorough reading."""
        return frozenset()

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Lets go of what it holds."""
