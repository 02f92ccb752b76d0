"""The metrics of a GPU, with a description of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import THROTTLE_REASONS
from stepscope.schema.sample import Metric

if TYPE_CHECKING:
    from stepscope.devices.gpu import GpuReading

DESCRIPTIONS = {
    "utilization_ratio": (
        "Share of the last moments (up to a second) in which at least one kernel ran, as the driver counts. "
        "It does not say how much of the GPU that kernel used: small kernels one after another read as 1."
    ),
    "memory_utilization_ratio": "Share of the same time in which device memory was being read or written.",
    "memory_used_bytes": "Device memory taken by all processes, without what the driver keeps for itself.",
    "memory_total_bytes": "Size of the device memory.",
    "temperature_celsius": "Temperature of the chip; of an AMD GPU, of its hottest point.",
    "memory_temperature_celsius": "Temperature of the device memory.",
    "power_watts": "Power the board draws; on recent NVIDIA boards the mean of the last second.",
    "power_limit_watts": "Power the board may draw.",
    "energy_joules_total": "Energy used since the driver was loaded.",
    "fan_ratio": "Target speed of the fan, as a share of its highest; absent without a fan.",
    "sm_clock_hertz": "Clock of the compute units now.",
    "memory_clock_hertz": "Clock of the device memory now.",
    "ecc_corrected_total": "Memory errors that were corrected since the driver was loaded.",
    "ecc_uncorrected_total": "Memory errors that could not be corrected since the driver was loaded.",
    "ecc_corrected_lifetime_total": "Memory errors that were corrected since the board was made.",
    "ecc_uncorrected_lifetime_total": "Memory errors that could not be corrected since the board was made.",
    "remapped_rows_total": "Rows of device memory that were replaced by spare ones after errors.",
    "remap_pending": "1 when a row waits to be replaced at the next reset of the GPU.",
    "remap_failed": "1 when a row could not be replaced: the board has run out of spare ones.",
    "retired_pages_total": "Pages of device memory taken out of use after errors, where no rows are spare.",
    "retire_pending": "1 when a page waits to be taken out of use at the next reset of the GPU.",
    "pcie_generation": "Generation the PCI Express link runs at now; an idle GPU lowers it to save power.",
    "pcie_generation_most": "Highest generation that board and slot allow.",
    "pcie_width": "Lanes the PCI Express link uses now.",
    "pcie_width_most": "Maximum number of lanes that board and slot allow.",
    "pcie_replays_total": "Times something had to be sent again over PCI Express.",
    "pcie_received_bytes_per_second": "Traffic over PCI Express to the GPU.",
    "pcie_sent_bytes_per_second": "Traffic over PCI Express from the GPU.",
    "nvlink_received_bytes_per_second": "Traffic over all NVLinks to the GPU.",
    "nvlink_sent_bytes_per_second": "Traffic over all NVLinks from the GPU.",
    "nvlink_errors_total": "Replays, recoveries and checksum errors of all NVLinks.",
    "encoder_ratio": "Share of time in which the video encoder was busy.",
    "decoder_ratio": "Share of time in which the video decoder was busy.",
    "sm_active_ratio": (
        "Share of the compute units that had work, averaged since the last reading: what `utilization_ratio` "
        "is often mistaken for."
    ),
    "sm_occupancy_ratio": "Warps that were resident, as a share of the most the compute units can hold.",
    "tensor_active_ratio": "Share of time in which the tensor cores were busy.",
    "dram_active_ratio": "Share of the bandwidth of device memory that was used.",
}
"""By the name of the figure in a reading; its key is `gpu/` and that name."""

THROTTLE_DESCRIPTIONS = {
    "power_cap": "1 while clocks are reduced to stay within the power limit; usual under full load.",
    "hardware_slowdown": "1 while the hardware has halved the clocks, or more, because of heat or low power.",
    "software_thermal": "1 while the driver reduces clocks because the chip or its memory is hot.",
    "hardware_thermal": "1 while the hardware reduces clocks because the chip is too hot.",
    "power_brake": "1 while the machine's power supply makes the board slow down.",
    "sync_boost": "1 while clocks are reduced to match those of other GPUs.",
}

METRICS = (
    *(Metric(f"gpu/{name}", description) for name, description in DESCRIPTIONS.items()),
    *(Metric(f"gpu/throttled_{reason}", THROTTLE_DESCRIPTIONS[reason]) for reason in THROTTLE_REASONS),
    Metric("gpu/memory_used_ratio", "Share of the device memory that is taken."),
    Metric("gpu/process_count", "Processes that compute on the GPU, of all users."),
    Metric("gpu/process_memory_bytes", "Device memory taken by a recording process and those it started."),
    Metric(
        "gpu/process_utilization_ratio",
        "Share of time in which a kernel of a recording process, or of one it started, ran on the GPU.",
    ),
    Metric("gpu/mean_utilization_ratio", "Mean of `utilization_ratio` over the GPUs of the host."),
    Metric("gpu/least_utilization_ratio", "`utilization_ratio` of the least busy GPU of the host."),
    Metric("gpu/total_power_watts", "Power all GPUs of the host draw together."),
    Metric("gpu/total_memory_used_bytes", "Device memory taken on all GPUs of the host together."),
)


def figures_of(reading: GpuReading) -> dict[str, float]:
    """The known values of a reading, by metric key."""
    known: dict[str, Any] = {name: getattr(reading, name) for name in DESCRIPTIONS}
    values = {f"gpu/{name}": float(value) for name, value in known.items() if value is not None}
    if reading.throttle_reasons is not None:
        for reason in THROTTLE_REASONS:
            values[f"gpu/throttled_{reason}"] = float(reason in reading.throttle_reasons)
    if reading.memory_used_bytes is not None and reading.memory_total_bytes:
        values["gpu/memory_used_ratio"] = reading.memory_used_bytes / reading.memory_total_bytes
    if reading.processes is not None:
        values["gpu/process_count"] = float(len(reading.processes))
    return values
