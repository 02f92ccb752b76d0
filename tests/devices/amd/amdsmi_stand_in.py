"""A stand-in for the package amdsmi, with the answers and the errors its documentation describes."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any


class AmdSmiRetCode(IntEnum):
    SUCCESS = 0
    ERR_INVAL = 1
    ERR_NOT_SUPPORTED = 2
    NOT_IMPLEMENTED = 3
    ERR_NO_PERM = 10
    ERR_NOT_FOUND = 31
    NOT_INIT = 32
    TIMEOUT = 23
    DRIVER_NOT_LOADED = 34


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self) -> str:
        return f"An error occured with code: {self.err_code}({AmdSmiRetCode(self.err_code).name})"

    def get_error_code(self) -> int:
        return self.err_code


class AmdSmiParameterException(AmdSmiException):
    pass


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    JUNCTION = 1
    VRAM = 2


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


def an_mi300x() -> dict[Any, Any]:
    return {
        "amdsmi_get_gpu_device_uuid": "c2ff74a1-0000-1000-80d4-000000000000",
        "amdsmi_get_gpu_device_bdf": "0000:0c:00.0",
        "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "asic_serial": "0xD4A1"},
        "amdsmi_get_gpu_enumeration_info": {"hip_id": 0, "hip_uuid": "GPU-d4a1b2c3d4e5f607"},
        "amdsmi_get_gpu_driver_info": {"driver_version": "6.12.12"},
        "amdsmi_get_gpu_activity": {"gfx_activity": 88, "umc_activity": 30, "mm_activity": "N/A"},
        "amdsmi_get_gpu_vram_usage": {"vram_used": 1024, "vram_total": 196608},
        "amdsmi_get_power_info": {"current_socket_power": 640, "average_socket_power": "N/A"},
        ("amdsmi_get_temp_metric", AmdSmiTemperatureType.JUNCTION): 67,
        ("amdsmi_get_temp_metric", AmdSmiTemperatureType.VRAM): 58,
        ("amdsmi_get_clock_info", AmdSmiClkType.GFX): {"clk": 2100},
        ("amdsmi_get_clock_info", AmdSmiClkType.MEM): {"clk": 1300},
        "amdsmi_get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3},
        "amdsmi_get_gpu_process_list": [
            {"pid": 7, "memory_usage": {"vram_mem": 4096}},
            {"pid": 8, "memory_usage": {"vram_mem": "N/A"}},
        ],
        "amdsmi_get_power_cap_info": {"power_cap": 750_000_000},
        "amdsmi_get_gpu_fan_speed": AmdSmiLibraryException(AmdSmiRetCode.ERR_NOT_SUPPORTED),
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 2, "uncorrectable_count": 0},
        "amdsmi_get_pcie_info": {
            "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000},
            "pcie_metric": {"pcie_width": 8, "pcie_speed": 16, "pcie_replay_count": 5},
        },
        "amdsmi_get_violation_status": {
            "active_ppt_pwr": True,
            "active_prochot_thrm": False,
            "active_socket_thrm": "N/A",
        },
    }


class StandInAmdsmi:
    """Looks like the module amdsmi; a GPU's handle is the dictionary of its answers."""

    AmdSmiException = AmdSmiException
    AmdSmiRetCode = AmdSmiRetCode
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric
    AmdSmiClkType = AmdSmiClkType

    def __init__(self, *, count: int = 1, start: str | None = None, lacking: tuple[str, ...] = ()) -> None:
        self.gpus = [an_mi300x() for _ in range(count)]
        self.start, self.lacking = start, lacking
        self.opened = 0
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("amdsmi_") or name in self.lacking:
            raise AttributeError(name)
        return lambda handle, *arguments: self._ask(handle, name, *arguments)

    def _ask(self, handle: dict[Any, Any], name: str, *arguments: Any) -> Any:
        self.calls[name] += 1
        answer = handle.get((name, *arguments[:1]), handle.get(name))
        if answer is None:
            raise AmdSmiLibraryException(AmdSmiRetCode.ERR_NOT_SUPPORTED)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def amdsmi_init(self) -> None:
        if self.start is not None:
            raise AmdSmiLibraryException(AmdSmiRetCode[self.start])
        self.opened += 1

    def amdsmi_shut_down(self) -> None:
        self.opened -= 1

    def amdsmi_get_processor_handles(self) -> list[dict[Any, Any]]:
        return self.gpus
