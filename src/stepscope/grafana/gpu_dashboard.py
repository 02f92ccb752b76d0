"""The dashboard of GPUs, and the panels of it that the dashboard of trainings shows too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.grafana.layout import Dashboard, Row, Variable
from stepscope.grafana.panels import (
    NO_UNIT,
    SHARES,
    TEMPERATURES,
    Query,
    bar_gauge,
    stat,
    state_timeline,
    table,
    time_series,
)

if TYPE_CHECKING:
    from stepscope.grafana.panels import Panel

GPU = '{host=~"$host", gpu=~"$gpu"}'
RATE = "[$__rate_interval]"
BY_GPU = "{{host}} gpu{{gpu}}"

OF_GPUS = (
    Variable("host", "label_values(stepscope_system_cpu_ratio, host)"),
    Variable("gpu", 'label_values(gpu_utilization_percent{host=~"$host"}, gpu)'),
)

GPU_UTILIZATION = time_series(
    "GPU utilisation",
    "Share of time in which a kernel ran. It does not say how much of the GPU the kernel used.",
    Query(f"gpu_utilization_percent{GPU}", BY_GPU),
    unit="percent",
    highest=100,
)
GPU_MEMORY = time_series(
    "GPU memory used",
    "Device memory in use by all processes, in MiB.",
    Query(f"gpu_memory_used_mb{GPU}", BY_GPU),
    unit="mbytes",
)
GPU_TEMPERATURE = bar_gauge(
    "GPU temperature",
    "Temperature of the chip now. Many GPUs reduce their clocks between 83 °C and 90 °C.",
    Query(f"gpu_temperature_celsius{GPU}", BY_GPU),
    unit="celsius",
    highest=100,
    thresholds=TEMPERATURES,
)
GPU_POWER = time_series(
    "GPU power",
    "Power that each board draws.",
    Query(f"gpu_power_draw_watts{GPU}", BY_GPU),
    unit="watt",
)


def gpus() -> Dashboard:
    """Everything about the GPUs of the hosts."""
    return Dashboard(
        "stepscope-gpu",
        "stepscope: GPUs",
        "Utilisation, memory, temperature, power, clocks and errors of GPUs.",
        OF_GPUS,
        (
            Row("Work", (GPU_UTILIZATION, *_gpu_activity())),
            Row("Memory", (GPU_MEMORY, _gpu_memory_share(), _gpu_traffic())),
            Row(
                "Heat and power",
                (GPU_TEMPERATURE, _gpu_temperature_over_time(), GPU_POWER, *_gpu_limits()),
            ),
            Row("Errors and facts", _gpu_health(), is_collapsed=True),
        ),
    )


def _gpu_activity() -> tuple[Panel, ...]:
    figures = {
        "stepscope_gpu_sm_active_ratio": (
            "Compute units", "Share of the compute units that had work."
        ),
        "stepscope_gpu_sm_occupancy_ratio": ("Occupancy", "Resident warps as a share of the maximum."),
        "stepscope_gpu_tensor_active_ratio": (
            "Tensor cores", "Share of time in which the tensor cores were busy."
        ),
        "stepscope_gpu_dram_active_ratio": (
            "Memory bandwidth", "Share of the bandwidth of device memory in use."
        ),
    }  # fmt: skip
    return tuple(
        time_series(
            title,
            f"{about} On Hopper and newer.",
            Query(f"{name}{GPU}", BY_GPU),
            unit="percentunit",
            highest=1,
        )
        for name, (title, about) in figures.items()
    )


def _gpu_memory_share() -> Panel:
    return bar_gauge(
        "GPU memory filled",
        "Memory in use as a share of the size of the device memory.",
        Query(f"100 * gpu_memory_used_mb{GPU} / gpu_memory_total_mb{GPU}", BY_GPU),
        unit="percent",
        highest=100,
        thresholds=SHARES,
    )


def _gpu_traffic() -> Panel:
    return time_series(
        "PCI Express traffic",
        "Bytes per second to and from each GPU.",
        Query(f"rate(stepscope_pcie_bytes_total{GPU}{RATE})", BY_GPU + " {{direction}}"),
        unit="Bps",
    )


def _gpu_temperature_over_time() -> Panel:
    return time_series(
        "GPU temperature over time",
        "Temperature of the chip.",
        Query(f"gpu_temperature_celsius{GPU}", BY_GPU),
        unit="celsius",
    )


def _gpu_limits() -> tuple[Panel, ...]:
    return (
        time_series(
            "Power limit",
            "Power that each board may draw.",
            Query(f"stepscope_gpu_power_limit_watts{GPU}", BY_GPU),
            unit="watt",
        ),
        stat(
            "Energy",
            "Energy that the GPUs have used in the time shown.",
            Query(f"sum(increase(stepscope_gpu_energy_joules_total{GPU}[$__range]))"),
            unit="joule",
        ),
        time_series(
            "Fan speed",
            "Target speed as a share of the maximum; absent without a fan.",
            Query(f"gpu_fan_speed_percent{GPU}", BY_GPU),
            unit="percent",
            highest=100,
        ),
        time_series(
            "Clocks",
            "Clocks of the compute units and of the memory.",
            Query(f"stepscope_gpu_clock_hertz{GPU}", BY_GPU + " {{clock}}"),
            unit="hertz",
        ),
        state_timeline(
            "Reduced clocks",
            "When clocks were reduced, and why.",
            Query(f"rate(stepscope_gpu_throttle_seconds_total{GPU}{RATE}) > bool 0", BY_GPU + " {{reason}}"),
            states={"0": ("full speed", "green"), "1": ("reduced", "orange")},
            width=16,
        ),
    )


def _gpu_health() -> tuple[Panel, ...]:
    return (
        time_series(
            "Memory errors",
            "New errors of the device memory, corrected and not.",
            Query(f"increase(stepscope_gpu_ecc_errors_total{GPU}{RATE})", BY_GPU + " {{type}}"),
            unit=NO_UNIT,
            width=12,
        ),
        table(
            "GPUs",
            "What is known of each GPU.",
            f"stepscope_gpu_info{GPU}",
            ("host", "gpu", "uuid", "name", "driver", "cuda_index", "mig"),
        ),
    )
