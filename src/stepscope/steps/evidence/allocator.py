"""Reads what PyTorch's allocator holds of a GPU."""

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
    """Looks at the allocator of one GPU; before that is used it has nothing to say.

    Nothing is reset: `memory/peak_bytes` is the allocator's running peak, of the whole run unless the
    training resets it itself.
    """

    def __init__(self, read: Callable[[], Counters | None]) -> None:
        self._read = read

    def look(self, steps: int) -> Mapping[str, float]:
        """The figures now."""
        counters = self._read()
        return {} if counters is None else figures(counters)

    def close(self) -> None:
        """Nothing was done to be able to look."""


def figures(counters: Counters) -> dict[str, float]:
    """What is recorded of the allocator's counters; those a version of PyTorch does not have are left out."""
    found = {}
    for key, statistic, part in _FIGURES:
        pools = counters.get(statistic)
        if pools is not None:
            found[key] = float(pools["all"][part])
    for key, name in _COUNTS:
        if name in counters:
            found[key] = float(counters[name])
    return found


def cuda_counters(torch: ModuleType) -> Callable[[], Counters | None]:
    """Reads the raw counters of the GPU in use; gives None until the training has begun to use one.

    `torch.cuda.memory_stats` gives the same, six times as slowly: it flattens and sorts them.
    """
    read = getattr(torch._C, "_cuda_memoryStats", None)  # noqa: SLF001 - there is no public name for it
    if read is None:
        return lambda: None

    def counters() -> Counters | None:
        if not torch.cuda.is_initialized():
            return None  # asking would initialise the GPU: that is the training's to do
        found: Counters = read(torch.cuda.current_device())
        return found

    return counters
