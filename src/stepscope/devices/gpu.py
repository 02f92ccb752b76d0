"""The interface of a GPU of any vendor; a figure that it does not report is None."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class GpuFacts:
    """Constant properties of a GPU."""

    uuid: str
    """The only name that is the same in all processes and containers."""
    index: int
    """Its index in the order of the driver and its tools."""
    name: str
    vendor: str
    driver: str | None = None
    cuda: str | None = None
    """The newest version of CUDA that the driver supports."""
    pci_bus_id: str | None = None
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    runtime_index: int | None = None
    """Its index in programs, where the driver reports it (HIP); None if unknown."""
    parent_uuid: str | None = None
    """For a slice of a GPU (MIG): the whole GPU, whose index it shares."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    """For a slice: the two ids the driver uses."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    memory_bytes: int | None = None
    utilization_ratio: float | None = None


@dataclass(frozen=True)
class GpuReading:
    """One reading of a GPU, in base units."""

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
    """Why clocks are reduced: names of `gpu.THROTTLE_REASONS`; empty when they are not."""
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
    """Retired pages: how boards without row remapping handle bad memory."""
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
    """One GPU, opened once and read repeatedly."""

    facts: GpuFacts
    diagnose_command: str = "sudo dmesg"
    """Shows why it no longer answers."""

    @abstractmethod
    def read(self, *, thorough: bool) -> GpuReading:
        """Reads the GPU; slowly changing figures (errors, links, limits) only when `thorough`.

        Rates between two readings are None in the first one. Raises GpuLost when the GPU no longer answers.
        """

    def absent(self) -> frozenset[str]:
        """The figures of a reading that it does not report; complete after one thorough reading."""
        return frozenset()

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Frees the resources of the GPU."""
