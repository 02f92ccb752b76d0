"""The NVML function of each figure of a reading, its unit, and how often it is queried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.devices.nvidia.nvidia_board import Call

MHZ = 1e6

# The bits of the clock event reasons that reduce clocks. Excluded: idle, application clocks, display.
THROTTLE_BITS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}


@dataclass(frozen=True)
class Query:
    """One query: the figures it returns, and the calls that can answer it, the best first."""

    figures: tuple[str, ...]
    calls: tuple[Call, ...]
    convert: Callable[[Any], tuple[Any, ...]]
    """Converts the answer to the figures, in their order and in base units."""


def _times(factor: float) -> Callable[[Any], tuple[Any, ...]]:
    return lambda answer: (answer * factor,)


def _as_is(answer: Any) -> tuple[Any, ...]:
    return (answer,)


def _throttle_reasons(mask: int) -> tuple[Any, ...]:
    return (frozenset(name for bit, name in THROTTLE_BITS.items() if mask & bit),)


FAST = (
    Query(
        ("utilization_ratio", "memory_utilization_ratio"),
        (("nvmlDeviceGetUtilizationRates",),),
        lambda rates: (rates.gpu / 100, rates.memory / 100),
    ),
    # Version 2 excludes memory reserved by the driver, and so matches the used memory in nvidia-smi.
    Query(
        ("memory_used_bytes", "memory_total_bytes"),
        (("nvmlDeviceGetMemoryInfo", "nvmlMemory_v2"), ("nvmlDeviceGetMemoryInfo",)),
        lambda memory: (memory.used, memory.total),
    ),
    Query(
        ("temperature_celsius",),
        (
            ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
            ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
        ),
        _as_is,
    ),
    Query(("power_watts",), (("nvmlDeviceGetPowerUsage",),), lambda milliwatts: (milliwatts / 1000,)),
    Query(("sm_clock_hertz",), (("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),), _times(MHZ)),
    Query(
        ("throttle_reasons",),
        (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
        _throttle_reasons,
    ),
)
"""Queried at every reading. Each costs a call into the driver: slowly changing figures belong below."""

THOROUGH = (
    Query(("memory_clock_hertz",), (("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),), _times(MHZ)),
    Query(
        ("power_limit_watts",),
        (("nvmlDeviceGetEnforcedPowerLimit",),),
        lambda milliwatts: (milliwatts / 1000,),
    ),
    Query(("fan_ratio",), (("nvmlDeviceGetFanSpeed",),), lambda percent: (percent / 100,)),
    Query(("pcie_generation",), (("nvmlDeviceGetCurrPcieLinkGeneration",),), _as_is),
    Query(("pcie_width",), (("nvmlDeviceGetCurrPcieLinkWidth",),), _as_is),
    Query(("encoder_ratio",), (("nvmlDeviceGetEncoderUtilization",),), lambda answer: (answer[0] / 100,)),
    Query(("decoder_ratio",), (("nvmlDeviceGetDecoderUtilization",),), lambda answer: (answer[0] / 100,)),
)
"""Queried at a thorough reading."""

ONCE = (
    Query(("pcie_generation_most",), (("nvmlDeviceGetMaxPcieLinkGeneration",),), _as_is),
    Query(("pcie_width_most",), (("nvmlDeviceGetMaxPcieLinkWidth",),), _as_is),
)
"""Queried at a thorough reading until answered: constants."""

PCIE_TRAFFIC = (
    Query(
        ("pcie_sent_bytes_per_second",),
        (("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"),),
        _times(1000),
    ),
    Query(
        ("pcie_received_bytes_per_second",),
        (("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"),),
        _times(1000),
    ),
)
"""Each takes 20 ms, while the driver counts bytes: queried at a thorough reading, without a better source."""
