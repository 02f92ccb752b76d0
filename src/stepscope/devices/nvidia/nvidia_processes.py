"""Lists the processes that compute on an NVIDIA GPU, with their memory and their share of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import GpuProcess

if TYPE_CHECKING:
    from stepscope.devices.nvidia.nvidia_board import Board

LIST_WAYS = (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",))
"""The function without a number raises what is no NVMLError where library and driver differ."""


class NvidiaProcesses:
    """The processes of one board; remembers until when their time has been counted."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._counted_until_us = 0

    def read(self, *, thorough: bool) -> tuple[GpuProcess, ...] | None:
        """All of them; their share of time, since the last time it was asked, only when thorough."""
        listed = self._board.call_first(LIST_WAYS)
        if listed is None:
            return None
        memory: dict[int, int | None] = {}
        for process in listed:
            # A process may stand there once for each of its contexts.
            parts = (memory.get(process.pid), process.usedGpuMemory)
            known = [part for part in parts if part is not None]
            memory[process.pid] = sum(known) if known else None
        busy = self._busy() if thorough and memory else None
        return tuple(
            GpuProcess(pid, used, None if busy is None else busy.get(pid, 0.0))
            for pid, used in memory.items()
        )

    def _busy(self) -> dict[int, float] | None:
        """The share of time in which each process had a kernel running; one that had none is left out.

        None when the driver has counted nothing since: no process may have been busy, or none looked at yet.
        """
        samples = self._board.ask("process utilization", self._samples)
        if not samples:
            return None
        latest: dict[int, Any] = {}
        for sample in samples:
            # The driver now and then hands out entries it has not filled in.
            if sample.smUtil <= 100 and sample.timeStamp >= self._counted_until_us:
                latest[sample.pid] = sample
        self._counted_until_us = max([self._counted_until_us, *(one.timeStamp for one in latest.values())])
        return {pid: sample.smUtil / 100 for pid, sample in latest.items()}

    def _samples(self) -> list[Any]:
        nvml = self._board.nvml
        try:
            return list(nvml.nvmlDeviceGetProcessUtilization(self._board.handle, self._counted_until_us))
        except nvml.NVMLError as error:
            # Both say that no process was busy; the first is how the library reports an empty answer.
            if error.value in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                return []
            raise
