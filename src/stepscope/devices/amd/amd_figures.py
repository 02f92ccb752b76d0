"""Which function of amdsmi gives which figure of a reading, and in which unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import GpuProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MIB = 1 << 20
MHZ = 1e6

# Transfers of one lane in a second, in 10⁹, by generation of PCI Express.
PCIE_SPEEDS = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}

VIOLATIONS = {
    "active_ppt_pwr": "power_cap",
    "active_prochot_thrm": "hardware_slowdown",
    "active_socket_thrm": "hardware_thermal",
    "active_vr_thrm": "hardware_thermal",
    "active_hbm_thrm": "hardware_thermal",
}
"""What holds the clocks down, by what the library says of each limit."""


@dataclass(frozen=True)
class Question:
    """A function, what it is given besides the GPU, and the figures in its answer."""

    function: str
    arguments: tuple[str | int, ...]
    meaning: Callable[[Any], Mapping[str, Any]]


def number(value: Any) -> float | None:
    """A value of the library; it writes `N/A` for what a GPU does not report."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _scaled(value: Any, unit: float) -> float | None:
    known = number(value)
    return None if known is None else known * unit


def _activity(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "utilization_ratio": _scaled(answer.get("gfx_activity"), 0.01),
        "memory_utilization_ratio": _scaled(answer.get("umc_activity"), 0.01),
    }


def _memory(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "memory_used_bytes": _scaled(answer.get("vram_used"), MIB),
        "memory_total_bytes": _scaled(answer.get("vram_total"), MIB),
    }


def _celsius(figure: str) -> Callable[[Any], Mapping[str, Any]]:
    """In degrees; versions before ROCm 6 gave thousandths of one."""

    def mean(answer: Any) -> Mapping[str, Any]:
        degrees = number(answer)
        return {figure: degrees / 1000 if degrees is not None and degrees > 1000 else degrees}

    return mean


def _power(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which of the three a GPU fills in depends on its generation."""
    known = (number(answer.get(f"{which}socket_power")) for which in ("", "current_", "average_"))
    return {"power_watts": next((watts for watts in known if watts is not None), None)}


def _clock(figure: str) -> Callable[[Any], Mapping[str, Any]]:
    return lambda answer: {figure: _scaled(answer.get("clk", answer.get("cur_clk")), MHZ)}


def _energy(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    resolution = number(answer.get("counter_resolution"))
    if resolution is None:
        return {}
    return {
        "energy_joules_total": _scaled(
            answer.get("energy_accumulator", answer.get("power")), resolution / 1e6
        )
    }


def _processes(answer: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    listed = ((one["pid"], number(one.get("memory_usage", {}).get("vram_mem"))) for one in answer)
    return {"processes": tuple(GpuProcess(pid, None if used is None else int(used)) for pid, used in listed)}


def _errors(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "ecc_corrected_total": number(answer.get("correctable_count")),
        "ecc_uncorrected_total": number(answer.get("uncorrectable_count")),
    }


def _pcie(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    static, now = answer.get("pcie_static", {}), answer.get("pcie_metric", {})
    return {
        "pcie_generation": _generation(now.get("pcie_speed")),
        "pcie_generation_most": _generation(static.get("max_pcie_speed")),
        "pcie_width": number(now.get("pcie_width")),
        "pcie_width_most": number(static.get("max_pcie_width")),
        "pcie_replays_total": number(now.get("pcie_replay_count")),
    }


def _generation(speed: Any) -> int | None:
    """From 10⁹ transfers a second, or 10⁶ in some versions."""
    known = number(speed)
    return None if known is None else PCIE_SPEEDS.get(known / 1000 if known > 1000 else known)


def _violations(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    told = [key for key in VIOLATIONS if answer.get(key, "N/A") != "N/A"]
    holding = frozenset(VIOLATIONS[key] for key in told if answer[key])
    return {"throttle_reasons": holding if told else None}


_NOW = "AmdSmiTemperatureMetric.CURRENT"

FAST = (
    Question("amdsmi_get_gpu_activity", (), _activity),
    Question("amdsmi_get_gpu_vram_usage", (), _memory),
    Question("amdsmi_get_power_info", (), _power),
    Question(
        "amdsmi_get_temp_metric", ("AmdSmiTemperatureType.JUNCTION", _NOW), _celsius("temperature_celsius")
    ),
    Question(
        "amdsmi_get_temp_metric",
        ("AmdSmiTemperatureType.VRAM", _NOW),
        _celsius("memory_temperature_celsius"),
    ),
    Question("amdsmi_get_clock_info", ("AmdSmiClkType.GFX",), _clock("sm_clock_hertz")),
    Question("amdsmi_get_energy_count", (), _energy),
    Question("amdsmi_get_gpu_process_list", (), _processes),
)
THOROUGH = (
    Question("amdsmi_get_clock_info", ("AmdSmiClkType.MEM",), _clock("memory_clock_hertz")),
    Question(
        "amdsmi_get_power_cap_info",
        (),
        lambda answer: {"power_limit_watts": _scaled(answer.get("power_cap"), 1e-6)},
    ),
    # Of 255, the most a fan is told.
    Question("amdsmi_get_gpu_fan_speed", (0,), lambda answer: {"fan_ratio": _scaled(answer, 1 / 255)}),
    Question("amdsmi_get_gpu_total_ecc_count", (), _errors),
    Question("amdsmi_get_pcie_info", (), _pcie),
    Question("amdsmi_get_violation_status", (), _violations),
)
