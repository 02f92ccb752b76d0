"""Reads the statistics of PyTorch's CUDA allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

_FIGURES = (
    ("memory/allocated_bytes", "allocated_bytes", "current"),
    ("memory/peak_bytes", "allocated_bytes", "peak"),
    ("memory/reserved_bytes", "reserved_bytes", "current"),
    ("memory/inactive_split_bytes", "inactive_split_bytes", "current"),
)
_COUNTS = (
    ("memory/alloc_retries_total", "num_alloc_retries"),
    ("memory/ooms_total", "num_ooms"),
    ("memory/device_allocs_total", "num_device_alloc"),
    ("memory/device_frees_total", "num_device_free"),
    ("memory/stream_syncs_total", "num_sync_all_streams"),
)

Counters = dict[str, Any]
"""The allocator's own nested dictionary: statistic, then pool, then `current`, `peak` and sums."""


class AllocatorFigures:
    """Reads the allocator of the current GPU; without values until the training uses a GPU.

    Nothing is reset: `memory/peak_bytes` is the allocator's peak of the whole run, unless the training resets
    it.
    """

    def __init__(self, read: Callable[[], Counters | None]) -> None:
        self._read = read

    def read(self, steps: int) -> Mapping[str, float]:
        """The current values."""
        counters = self._read()
        return {} if counters is None else figures(counters)

    def close(self) -> None:
        """Does nothing: reading needs no setup."""


def figures(counters: Counters) -> dict[str, float]:
    """The recorded values of the allocator's counters; without those that this PyTorch version lacks."""
    values = {}
    for key, statistic, part in _FIGURES:
        pools = counters.get(statistic)
        if pools is not None:
            values[key] = float(pools["all"][part])
    for key, name in _COUNTS:
        if name in counters:
            values[key] = float(counters[name])
    return values


def cuda_counters(torch: ModuleType) -> Callable[[], Counters | None]:
    """A function that reads the raw counters of the current GPU; None until the training uses a GPU.

    `torch.cuda.memory_stats` returns the same values but takes six times as long: it flattens and sorts them.
    """
    read = getattr(torch._C, "_cuda_memoryStats", None)  # noqa: SLF001 - there is no public name for it
    if read is None:
        return lambda: None

    def counters() -> Counters | None:
        if not torch.cuda.is_initialized():
            return None  # reading would initialise CUDA, which is up to the training
        raw: Counters = read(torch.cuda.current_device())
        return raw

    return counters
