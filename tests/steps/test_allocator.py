"""The memory of the allocator is read rarely and correctly, and never changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stepscope.steps.evidence.allocator import AllocatorFigures, cuda_counters, figures

GIB = 1 << 30


def pools(current: int, peak: int) -> dict[str, dict[str, int]]:
    whole = {"current": current, "peak": peak, "allocated": 9 * peak, "freed": 9 * peak - current}
    return {"all": whole, "large_pool": whole, "small_pool": dict.fromkeys(whole, 0)}


def counters(**fields: Any) -> dict[str, Any]:
    """The allocator's dictionary as PyTorch 2.11 gives it, as far as it is read."""
    return {
        "allocated_bytes": pools(2 * GIB, 5 * GIB),
        "reserved_bytes": pools(6 * GIB, 6 * GIB),
        "inactive_split_bytes": pools(GIB, GIB),
        "requested_bytes": pools(2 * GIB - 100, 5 * GIB),
        "allocation": pools(812, 900),
        "num_alloc_retries": 3,
        "num_ooms": 1,
        "num_device_alloc": 40,
        "num_device_free": 12,
        "num_sync_all_streams": 2,
        "max_split_size": -1,
        **fields,
    }


def test_figures_are_the_allocators_own() -> None:
    assert AllocatorFigures(counters).read(1) == {
        "memory/allocated_bytes": 2.0 * GIB,
        "memory/peak_bytes": 5.0 * GIB,
        "memory/reserved_bytes": 6.0 * GIB,
        "memory/inactive_split_bytes": 1.0 * GIB,
        "memory/alloc_retries_total": 3.0,
        "memory/ooms_total": 1.0,
        "memory/device_allocs_total": 40.0,
        "memory/device_frees_total": 12.0,
        "memory/stream_syncs_total": 2.0,
    }


def test_a_counter_that_a_version_of_pytorch_lacks_is_left_out() -> None:
    old = counters()
    del old["num_device_alloc"], old["inactive_split_bytes"]
    values = figures(old)
    assert "memory/device_allocs_total" not in values
    assert "memory/inactive_split_bytes" not in values
    assert values["memory/allocated_bytes"] == 2.0 * GIB


def test_before_a_gpu_is_used_there_are_no_figures() -> None:
    assert AllocatorFigures(lambda: None).read(1) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_there_are_no_figures_and_nothing_is_initialised() -> None:
    observer = AllocatorFigures(cuda_counters(torch))
    assert observer.read(1) == {}
    assert not torch.cuda.is_initialized()
    observer.close()
