"""Says in one sentence what holds a window up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.profiling.window.breakdown import Breakdown
    from stepscope.profiling.window.operations import Operation

NOTABLE = 1 / 3
"""A part of the window that is not compute is the bottleneck from this share on."""


def bottleneck_of(breakdown: Breakdown, operations: Sequence[Operation]) -> str:
    """The largest part that is not compute where that is a third or more, else the largest operation."""
    shares = breakdown.shares()
    compute = shares.pop("compute")
    part = max(shares, key=lambda name: shares[name])
    if shares[part] < NOTABLE:
        return _compute(compute, operations)
    if part == "data":
        return (
            f"Data: {shares[part]:.0%} of the window went into waiting for batches; more loader workers, "
            "cheaper transforms or faster storage would shorten it."
        )
    if part == "communication":
        return (
            f"Communication: {shares[part]:.0%} of the window was exchange with other ranks that no compute "
            "hid; larger buckets, gradient accumulation or fewer exchanges would shorten it."
        )
    return _idle(shares[part], breakdown)


def _compute(share: float, operations: Sequence[Operation]) -> str:
    if not operations:
        return "Nothing was recorded inside the window."
    first = operations[0]
    return (
        f"Compute: {share:.0%} of the window, of which {first.name} is the largest part, with "
        f"{first.share_ratio:.0%} of the time of all operations."
    )


def _idle(share: float, breakdown: Breakdown) -> str:
    if breakdown.measured_on == "main thread":
        return (
            f"Idle: {share:.0%} of the window the main thread was inside no operator: it ran Python between "
            "them, slept, or waited for something that is not torch."
        )
    if breakdown.host_busy_ratio >= 0.5:
        return (
            f"Idle: {share:.0%} of the window the device had nothing to do while the main thread issued "
            "work too slowly; larger batches, torch.compile or CUDA graphs would help."
        )
    return (
        f"Idle: {share:.0%} of the window the device had nothing to do, and the main thread was mostly "
        "inside no operator either: it ran Python, slept, or waited for something that is not torch."
    )
