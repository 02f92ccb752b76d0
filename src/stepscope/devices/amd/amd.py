"""AMD GPUs through ROCm's package amdsmi: each figure is queried separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import FIGURES, Gpu, GpuFacts, GpuLost, GpuProcess, GpuReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

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
"""Throttle reasons, by the library's name of each limit."""


@dataclass(frozen=True)
class Query:
    """A function of amdsmi, its arguments besides the GPU, and the conversion of its result to figures."""

    function: str
    arguments: tuple[str | int, ...]
    convert: Callable[[Any], Mapping[str, Any]]


def number(value: Any) -> float | None:
    """A number of the library, or None: it returns `N/A` for what a GPU does not report."""
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
    """In degrees; versions before ROCm 6 returned thousandths of a degree."""

    def convert(answer: Any) -> Mapping[str, Any]:
        degrees = number(answer)
        return {figure: degrees / 1000 if degrees is not None and degrees > 1000 else degrees}

    return convert


def _power(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A GPU reports one of three values, depending on its generation."""
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
    used_memory = (
        (process["pid"], number(process.get("memory_usage", {}).get("vram_mem"))) for process in answer
    )
    return {
        "processes": tuple(GpuProcess(pid, None if used is None else int(used)) for pid, used in used_memory)
    }


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
    """The PCIe generation, from 10⁹ transfers per second, or 10⁶ in some versions."""
    known = number(speed)
    return None if known is None else PCIE_SPEEDS.get(known / 1000 if known > 1000 else known)


def _violations(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    reported = [key for key in VIOLATIONS if answer.get(key, "N/A") != "N/A"]
    active = frozenset(VIOLATIONS[key] for key in reported if answer[key])
    return {"throttle_reasons": active if reported else None}


_NOW = "AmdSmiTemperatureMetric.CURRENT"

FAST = (
    Query("amdsmi_get_gpu_activity", (), _activity),
    Query("amdsmi_get_gpu_vram_usage", (), _memory),
    Query("amdsmi_get_power_info", (), _power),
    Query(
        "amdsmi_get_temp_metric", ("AmdSmiTemperatureType.JUNCTION", _NOW), _celsius("temperature_celsius")
    ),
    Query(
        "amdsmi_get_temp_metric",
        ("AmdSmiTemperatureType.VRAM", _NOW),
        _celsius("memory_temperature_celsius"),
    ),
    Query("amdsmi_get_clock_info", ("AmdSmiClkType.GFX",), _clock("sm_clock_hertz")),
    Query("amdsmi_get_energy_count", (), _energy),
    Query("amdsmi_get_gpu_process_list", (), _processes),
)
THOROUGH = (
    Query("amdsmi_get_clock_info", ("AmdSmiClkType.MEM",), _clock("memory_clock_hertz")),
    Query(
        "amdsmi_get_power_cap_info",
        (),
        lambda answer: {"power_limit_watts": _scaled(answer.get("power_cap"), 1e-6)},
    ),
    # The maximum is 255.
    Query("amdsmi_get_gpu_fan_speed", (0,), lambda answer: {"fan_ratio": _scaled(answer, 1 / 255)}),
    Query("amdsmi_get_gpu_total_ecc_count", (), _errors),
    Query("amdsmi_get_pcie_info", (), _pcie),
    Query("amdsmi_get_violation_status", (), _violations),
)


REFUSALS = ("ERR_INVAL", "ERR_NOT_SUPPORTED", "NOT_IMPLEMENTED", "ERR_NO_PERM")
LOSSES = ("NOT_INIT", "DRIVER_NOT_LOADED")


class AmdGpu(Gpu):
    """One GPU."""

    diagnose_command = "sudo dmesg | grep -i amdgpu"

    def __init__(self, amdsmi: ModuleType, handle: Any, facts: GpuFacts) -> None:
        self.facts = facts
        self._amdsmi, self._handle = amdsmi, handle
        self._refusals, self._losses = _codes(amdsmi, REFUSALS), _codes(amdsmi, LOSSES)
        self._refused: set[Query] = set()
        self._available: set[str] = set()
        """Figures that were reported at least once."""

    def read(self, *, thorough: bool) -> GpuReading:
        """Runs all queries that the GPU has not refused; raises GpuLost when none is answered."""
        figures: dict[str, Any] = {}
        refused: set[Query] = set()
        answers, trouble = 0, "it answers nothing"
        for query in self._usable_queries(thorough=thorough):
            try:
                figures |= self._figures(query)
                answers += 1
            except self._amdsmi.AmdSmiException as error:
                trouble = str(error)
                code = error.get_error_code() if hasattr(error, "get_error_code") else None
                if code in self._losses:
                    raise GpuLost(trouble) from error
                if code in self._refusals:
                    refused.add(query)
        if not answers:
            raise GpuLost(trouble)
        self._refused |= refused
        self._available |= figures.keys()
        return GpuReading(**figures)

    def absent(self) -> frozenset[str]:
        """The figures that were never reported."""
        return FIGURES - self._available

    def _usable_queries(self, *, thorough: bool) -> list[Query]:
        """The queries that were not refused and whose function this version of the library has."""
        queries = (*FAST, *THOROUGH) if thorough else FAST
        return [
            query for query in queries if query not in self._refused and hasattr(self._amdsmi, query.function)
        ]

    def _figures(self, query: Query) -> dict[str, Any]:
        """The figures of one query, without those that are not available."""
        function = getattr(self._amdsmi, query.function)
        answer = function(self._handle, *(self._constant(name) for name in query.arguments))
        return {name: value for name, value in query.convert(answer).items() if value is not None}

    def _constant(self, name: str | int) -> Any:
        if isinstance(name, int):
            return name
        enumeration, _, member = name.partition(".")
        return getattr(getattr(self._amdsmi, enumeration), member)


def _codes(amdsmi: ModuleType, names: tuple[str, ...]) -> frozenset[int]:
    """The numbers of error codes; not every version of the library has all of them."""
    return frozenset(
        int(getattr(amdsmi.AmdSmiRetCode, name)) for name in names if hasattr(amdsmi.AmdSmiRetCode, name)
    )
