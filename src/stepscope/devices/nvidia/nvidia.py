"""NVIDIA GPUs through NVML: each figure is queried separately, slices (MIG) are separate GPUs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import FIGURES, Gpu, GpuFacts, GpuProcess, GpuReading
from stepscope.devices.nvidia.nvidia_fields import NvidiaFields
from stepscope.devices.nvidia.nvidia_gpm import open_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from stepscope.devices.nvidia.nvidia_board import Board, Call
    from stepscope.devices.nvidia.nvidia_gpm import Slice

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

LIST_CALLS = (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",))
"""The function without a version raises another error than NVMLError where library and driver differ."""


class NvidiaProcesses:
    """The processes on one board, with their memory and their share of its time."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._counted_until_us = 0

    def read(self, *, thorough: bool) -> tuple[GpuProcess, ...] | None:
        """All processes; their share of time since the last thorough call only when `thorough`."""
        processes = self._board.call_first(LIST_CALLS)
        if processes is None:
            return None
        memory: dict[int, int | None] = {}
        for process in processes:
            # A process may be listed once for each of its contexts.
            parts = (memory.get(process.pid), process.usedGpuMemory)
            known = [part for part in parts if part is not None]
            memory[process.pid] = sum(known) if known else None
        busy = self._busy() if thorough and memory else None
        return tuple(
            GpuProcess(pid, used, None if busy is None else busy.get(pid, 0.0))
            for pid, used in memory.items()
        )

    def _busy(self) -> dict[int, float] | None:
        """The share of time in which each process had a kernel running; idle processes are left out.

        None when the driver has no new sample: no process was busy, or it has not sampled yet.
        """
        samples = self._board.ask("process utilization", self._samples)
        if not samples:
            return None
        latest: dict[int, Any] = {}
        for sample in samples:
            # The driver sometimes returns uninitialised entries.
            if sample.smUtil <= 100 and sample.timeStamp >= self._counted_until_us:
                latest[sample.pid] = sample
        self._counted_until_us = max(
            [self._counted_until_us, *(sample.timeStamp for sample in latest.values())]
        )
        return {pid: sample.smUtil / 100 for pid, sample in latest.items()}

    def _samples(self) -> list[Any]:
        nvml = self._board.nvml
        try:
            return list(nvml.nvmlDeviceGetProcessUtilization(self._board.handle, self._counted_until_us))
        except nvml.NVMLError as error:
            # Both mean that no process was busy; the first is how the library reports an empty list.
            if error.value in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                return []
            raise


class NvidiaGpu(Gpu):
    """One GPU, or one slice of a GPU."""

    diagnose_command = "sudo dmesg | grep -i -e xid -e nvrm"

    def __init__(
        self, board: Board, facts: GpuFacts, options: OpenOptions, *, slice_of: Slice | None = None
    ) -> None:
        self.facts = facts
        self._board = board
        self._fields = NvidiaFields(board, options.now)
        self._processes = NvidiaProcesses(board)
        self._counters = None
        if options.performance_counters:
            self._counters = open_counters(board, slice_of, links=bool(self._fields.links))
        self._constants: dict[str, Any] = {}

    def read(self, *, thorough: bool) -> GpuReading:
        """Reads the GPU with about ten calls into the driver; thirty when thorough."""
        self._board.begin()
        figures: dict[str, Any] = dict(self._counters.read()) if self._counters else {}
        known = self._counters.available() if self._counters else frozenset()
        figures |= self._fields.read(thorough=thorough, known=known)
        figures |= self._answers(FAST)
        if thorough:
            self._constants |= self._answers(
                query for query in ONCE if query.figures[0] not in self._constants
            )
            known |= self._fields.available()
            figures |= self._answers(THOROUGH) | self._constants
            figures |= self._answers(query for query in PCIE_TRAFFIC if query.figures[0] not in known)
        figures["processes"] = self._processes.read(thorough=thorough)
        self._board.end()
        return GpuReading(**figures)

    def absent(self) -> frozenset[str]:
        """The figures that no function of NVML returns for this board."""
        available = self._fields.available() | (self._counters.available() if self._counters else frozenset())
        for query in FAST + THOROUGH + ONCE + PCIE_TRAFFIC:
            if not all(self._board.refuses(call) for call in query.calls):
                available |= frozenset(query.figures)
        if not all(self._board.refuses(call) for call in LIST_CALLS):
            available |= {"processes"}
        return FIGURES - available

    def close(self) -> None:
        """Frees what the performance counters hold."""
        if self._counters:
            self._counters.close()
            self._counters = None

    def _answers(self, queries: Iterable[Query]) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for query in queries:
            answer = self._board.call_first(query.calls)
            if answer is not None:
                figures.update(zip(query.figures, query.convert(answer), strict=True))
        return figures


@dataclass(frozen=True)
class OpenOptions:
    """Options for opening GPUs."""

    nvml: ModuleType
    performance_counters: bool = True
    """Whether to read the performance counters, which another profiler of the host (DCGM) may need."""
    now: Callable[[], float] = time.monotonic
