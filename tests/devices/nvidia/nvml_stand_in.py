"""A stand-in for NVIDIA's library: boards whose answers a test sets, and errors of the real kind."""

from __future__ import annotations

import ctypes
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


class Refusal:
    """An answer that is an error."""

    def __init__(self, code: int) -> None:
        self.code = code


NOT_SUPPORTED = Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
TIMEOUT = Refusal(pynvml.NVML_ERROR_TIMEOUT)
LOST = Refusal(pynvml.NVML_ERROR_GPU_IS_LOST)


def process(pid: int, memory: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def busy(pid: int, percent: int, at_us: int) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, smUtil=percent, timeStamp=at_us)


def an_h200(index: int = 0) -> StandInBoard:
    """What an H200 answers under load, in NVML's own units."""
    return StandInBoard(
        {
            "nvmlDeviceGetUUID": f"GPU-{index}0000000-aaaa-bbbb-cccc-dddddddddddd",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{index + 1}B:00.0"),
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=41),
            ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2): SimpleNamespace(
                used=60 * GIB, total=140 * GIB
            ),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=61 * GIB, total=140 * GIB),
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetPowerUsage": 612_345,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM): 1980,
            ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM): 3201,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetFanSpeed": NOT_SUPPORTED,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetEncoderUtilization": [12, 167_000],
            "nvmlDeviceGetDecoderUtilization": [0, 167_000],
            "nvmlDeviceGetComputeRunningProcesses_v3": [],
            "nvmlDeviceGetProcessUtilization": Refusal(pynvml.NVML_ERROR_NOT_FOUND),
            "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=0),
        },
        {
            "MEMORY_TEMP": 70,
            "TOTAL_ENERGY_CONSUMPTION": 5_000_000,
            "ECC_SBE_VOL_TOTAL": 3,
            "ECC_DBE_VOL_TOTAL": 0,
            "ECC_SBE_AGG_TOTAL": 14,
            "ECC_DBE_AGG_TOTAL": 1,
            "REMAPPED_COR": 2,
            "REMAPPED_UNC": 1,
            "REMAPPED_PENDING": 1,
            "REMAPPED_FAILURE": 0,
            "PCIE_REPLAY_COUNTER": 6,
        },
    )


class StandInBoard:
    """Answers to functions, by name or by name and argument; and fields, by the end of their name."""

    def __init__(self, answers: dict[Any, Any], fields: dict[Any, Any]) -> None:
        self.answers, self.fields = answers, fields
        self.slices: list[StandInBoard] = []
        self.gpm: dict[int, float] = {}

    def fall_off(self) -> None:
        """Answers nothing any more."""
        self.answers = dict.fromkeys(self.answers, LOST)

    def answer(self, name: str, *arguments: Any) -> Any:
        given = self.answers.get((name, *arguments), self.answers.get(name, NOT_SUPPORTED))
        if isinstance(given, Refusal):
            raise pynvml.NVMLError(given.code)
        return given


class StandInNvml:
    """Looks like the module pynvml. Its constants, structures and errors are the real ones."""

    def __init__(
        self, *boards: StandInBoard, start: Refusal | None = None, lacking: tuple[str, ...] = ()
    ) -> None:
        self.boards, self.start, self.lacking = list(boards), start, lacking
        self.calls: Counter[str] = Counter()
        self.opened = 0
        self.gpm_samples: dict[int, int] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.lacking:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name in self.lacking:
            raise AttributeError(name)
        real = getattr(pynvml, name)
        if not name.startswith(("nvmlDevice", "nvmlGpm", "nvmlSystem")):
            return real
        return lambda handle, *arguments: self._ask(handle, name, *arguments)

    def _ask(self, handle: StandInBoard, name: str, *arguments: Any) -> Any:
        self.calls[name] += 1
        return handle.answer(name, *arguments)

    def nvmlInit(self) -> None:
        if self.start is not None:
            raise pynvml.NVMLError(self.start.code)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13020

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> StandInBoard:
        self.boards[index].answer("nvmlDeviceGetUUID")
        return self.boards[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: StandInBoard) -> int:
        return len(handle.slices) + 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: StandInBoard, number: int) -> StandInBoard:
        if not 0 < number <= len(handle.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle.slices[number - 1]

    def nvmlDeviceGetFieldValues(self, handle: StandInBoard, asked: tuple[Any, ...]) -> Any:
        self.calls["nvmlDeviceGetFieldValues"] += 1
        if handle.answers.get("nvmlDeviceGetUUID") is LOST:
            raise pynvml.NVMLError(LOST.code)
        values = (pynvml.c_nvmlFieldValue_t * len(asked))()
        for value, field in zip(values, asked, strict=True):
            number, scope = field if isinstance(field, tuple) else (field, None)
            name = FIELD_NAMES[number]
            given = handle.fields.get((name, scope), handle.fields.get(name, NOT_SUPPORTED))
            if isinstance(given, Refusal):
                value.nvmlReturn = given.code
            else:
                value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
                value.value.ullVal = given
        return values

    def nvmlGpmSampleAlloc(self) -> Any:
        self.calls["nvmlGpmSampleAlloc"] += 1
        return ctypes.pointer(pynvml.struct_c_nvmlGpmSample_t())

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.calls["nvmlGpmSampleFree"] += 1

    def nvmlGpmSampleGet(self, handle: StandInBoard, sample: Any) -> Any:
        self._ask(handle, "nvmlGpmSampleGet")
        return self._take(sample, handle)

    def nvmlGpmMigSampleGet(self, handle: StandInBoard, instance: int, sample: Any) -> Any:
        self.calls["nvmlGpmMigSampleGet"] += 1
        (part,) = (part for part in handle.slices if part.answers["nvmlDeviceGetGpuInstanceId"] == instance)
        return self._take(sample, part)

    def _take(self, sample: Any, board: StandInBoard) -> Any:
        self.gpm_samples[ctypes.addressof(sample.contents)] = max(self.gpm_samples.values(), default=0) + 1
        self.gpm_values = board.gpm
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        """Figures between two samples; they must be the one taken last and an earlier one."""
        first, second = (
            self.gpm_samples[ctypes.addressof(sample.contents)]
            for sample in (request.sample1, request.sample2)
        )
        assert second > first
        assert request.version == 1
        for entry in list(request.metrics)[: request.numMetrics]:
            given = self.gpm_values.get(entry.metricId)
            entry.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if given is None else pynvml.NVML_SUCCESS
            entry.value = given or 0.0
        return request


FIELD_NAMES = {
    getattr(pynvml, name): name.removeprefix("NVML_FI_DEV_")
    for name in dir(pynvml)
    if name.startswith("NVML_FI_DEV_") and "CLOCKS_EVENT" not in name
}
