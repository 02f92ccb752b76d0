"""NVIDIA GPUs through NVML: each figure is queried separately, slices (MIG) are separate GPUs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import FIGURES, Gpu, GpuFacts, GpuLost, GpuProcess, GpuReading
from stepscope.devices.nvidia.nvidia_board import Board
from stepscope.devices.nvidia.nvidia_fields import NvidiaFields
from stepscope.devices.nvidia.nvidia_figures import FAST, ONCE, PCIE_TRAFFIC, THOROUGH
from stepscope.devices.nvidia.nvidia_gpm import open_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from stepscope.devices.nvidia.nvidia_figures import Query
    from stepscope.devices.nvidia.nvidia_gpm import Slice

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


class NvidiaDriver:
    """NVML, initialised once, the GPUs it finds, and why others could not be opened."""

    def __init__(self, options: OpenOptions) -> None:
        """Raises NVMLError when the driver cannot be used."""
        self._options, self._nvml = options, options.nvml
        self.gpus: list[Gpu] = []
        self.unavailable_gpus: dict[str, str] = {}
        """Why a GPU, or a slice of one, could not be opened."""
        self._nvml.nvmlInit()
        self._is_open = True
        try:
            self._version: str | None = self._ask(self._nvml.nvmlSystemGetDriverVersion)
            for index in range(self._nvml.nvmlDeviceGetCount()):
                self._open(index)
        except self._nvml.NVMLError:
            self.close()
            raise

    def close(self) -> None:
        """Closes the GPUs and NVML; only once, since NVML counts how often this process has opened it."""
        for gpu in self.gpus:
            gpu.close()
        self.gpus.clear()
        if self._is_open:
            self._is_open = False
            self._ask(self._nvml.nvmlShutdown)

    def _open(self, index: int) -> None:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            facts = self._facts(handle, index)
            self.gpus.append(NvidiaGpu(Board(self._nvml, handle), facts, self._options))
        except (self._nvml.NVMLError, GpuLost) as reason:
            self.unavailable_gpus[f"GPU {index}"] = str(reason)
            return
        for number, slice_handle in self._slices(handle):
            try:
                self.gpus.append(self._open_slice(slice_handle, handle, facts))
            except (self._nvml.NVMLError, GpuLost) as reason:
                self.unavailable_gpus[f"slice {number} of GPU {index}"] = str(reason)

    def _open_slice(self, handle: Any, whole: Any, parent: GpuFacts) -> Gpu:
        instance = self._nvml.nvmlDeviceGetGpuInstanceId(handle)
        facts = self._facts(
            handle,
            parent.index,
            pci_bus_id=parent.pci_bus_id,
            parent_uuid=parent.uuid,
            gpu_instance=instance,
            compute_instance=self._ask(self._nvml.nvmlDeviceGetComputeInstanceId, handle),
        )
        board = Board(self._nvml, handle)
        return NvidiaGpu(board, facts, self._options, slice_of=(whole, instance))

    def _facts(self, handle: Any, index: int, **of_a_slice: Any) -> GpuFacts:
        """The constant properties. Only the UUID is required: it distinguishes GPUs."""
        nvml = self._nvml
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        pci = None if of_a_slice else self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        facts: dict[str, Any] = {
            "name": self._ask(nvml.nvmlDeviceGetName, handle) or "NVIDIA GPU",
            "driver": self._version,
            "pci_bus_id": pci and str(pci.busId),
            "memory_total_bytes": memory and memory.total,
            "power_limit_watts": limit and limit / 1000,
        }
        return GpuFacts(uuid=uuid, index=index, vendor="NVIDIA", **(facts | of_a_slice))

    def _slices(self, handle: Any) -> Iterator[tuple[int, Any]]:
        """The handles of a GPU's slices; their numbers have gaps."""
        mode = self._ask(self._nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return
        for number in range(self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            slice_handle = self._ask(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if slice_handle is not None:
                yield number, slice_handle

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any | None:
        """The result of an optional query; None where it fails."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None
