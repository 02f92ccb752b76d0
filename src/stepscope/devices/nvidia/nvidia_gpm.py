"""Reads the utilisation of parts of an NVIDIA GPU from its performance counters (GPM; Hopper and newer)."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.devices.nvidia.nvidia_board import Board

Slice = tuple[Any, int]
"""A slice of a board (MIG): the handle of the whole board, and the id of the slice."""

MIB = 1 << 20
PERCENT = 0.01

METRICS = {
    "SM_UTIL": ("sm_active_ratio", PERCENT),
    "SM_OCCUPANCY": ("sm_occupancy_ratio", PERCENT),
    "ANY_TENSOR_UTIL": ("tensor_active_ratio", PERCENT),
    "DRAM_BW_UTIL": ("dram_active_ratio", PERCENT),
    "PCIE_TX_PER_SEC": ("pcie_sent_bytes_per_second", MIB),
    "PCIE_RX_PER_SEC": ("pcie_received_bytes_per_second", MIB),
    "NVLINK_TOTAL_TX_PER_SEC": ("nvlink_sent_bytes_per_second", MIB),
    "NVLINK_TOTAL_RX_PER_SEC": ("nvlink_received_bytes_per_second", MIB),
}
SLICE_METRICS = {"GRAPHICS_UTIL": ("utilization_ratio", PERCENT), **METRICS}
"""A slice has no ordinary utilisation; this metric has the same meaning."""


class PerformanceCounters:
    """Two samples of a board's counters; figures are computed between them."""

    def __init__(self, board: Board, slice_of: Slice | None, *, links: bool) -> None:
        self._board, self._slice_of = board, slice_of
        metrics = METRICS if slice_of is None else SLICE_METRICS
        # A board without links reports zero traffic.
        self._metrics = {
            name: metric for name, metric in metrics.items() if links or not name.startswith("NVLINK")
        }
        nvml = board.nvml
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._has_earlier = False

    def read(self) -> dict[str, float]:
        """The figures since the last call; empty at the first call, and when called again too soon."""
        earlier, later = self._samples
        taken = self._board.ask("GPM", lambda: self._take(later))
        had_earlier, self._has_earlier = self._has_earlier, taken is not None
        if taken is None:
            return {}
        figures = self._between(earlier, later) if had_earlier else {}
        if figures is None:
            return {}  # the earlier sample is kept for the next reading
        self._samples = [later, earlier]
        return figures

    def available(self) -> frozenset[str]:
        """The figures that have not been refused."""
        if self._board.refuses("GPM") or self._board.refuses("GPM metrics"):
            return frozenset()
        return frozenset(figure for figure, _ in self._metrics.values())

    def close(self) -> None:
        """Frees both samples."""
        with contextlib.suppress(self._board.nvml.NVMLError):  # the GPU is lost
            for sample in self._samples:
                self._board.nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _take(self, sample: Any) -> Any:
        if self._slice_of is None:
            return self._board.nvml.nvmlGpmSampleGet(self._board.handle, sample)
        whole, instance = self._slice_of
        return self._board.nvml.nvmlGpmMigSampleGet(whole, instance, sample)

    def _between(self, earlier: Any, later: Any) -> dict[str, float] | None:
        """Computes the figures in the library, without a call into the driver; None when nothing was counted.

        The board updates its counters about thirty times a second. Between two updates, ratios are 0 / 0, and
        figures that the library does not divide are zero, which would be wrong.
        """
        request = self._request
        request.sample1, request.sample2 = earlier, later
        request.numMetrics = len(self._metrics)
        for entry, metric in zip(request.metrics, self._metrics, strict=False):
            entry.metricId = getattr(self._board.nvml, f"NVML_GPM_METRIC_{metric}")
        if self._board.ask("GPM metrics", lambda: self._board.nvml.nvmlGpmMetricsGet(request)) is None:
            return {}
        results = list(zip(request.metrics, list(self._metrics.items()), strict=False))
        if any(
            entry.nvmlReturn == self._board.nvml.NVML_SUCCESS and math.isnan(entry.value)
            for entry, _ in results
        ):
            return None
        figures = {}
        for entry, (metric, (figure, unit)) in results:
            if entry.nvmlReturn == self._board.nvml.NVML_ERROR_NOT_SUPPORTED:
                del self._metrics[metric]
            elif entry.nvmlReturn == self._board.nvml.NVML_SUCCESS and math.isfinite(entry.value):
                figures[figure] = min(entry.value * unit, 1.0) if unit == PERCENT else entry.value * unit
        return figures


def open_counters(board: Board, slice_of: Slice | None, *, links: bool) -> PerformanceCounters | None:
    """The counters of a board, or of a slice of it; None where it has none or they cannot be read."""
    nvml = board.nvml
    handle = board.handle if slice_of is None else slice_of[0]
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        return PerformanceCounters(board, slice_of, links=links)
    except nvml.NVMLError:  # an old driver, or no permission
        return None
