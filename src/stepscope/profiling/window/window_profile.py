"""The result of a profiled window: operations, where the time went, and the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.plain_data import Described
from stepscope.profiling.window import operations
from stepscope.profiling.window.breakdown import Breakdown, WindowSpan, breakdown_of
from stepscope.profiling.window.events import STEP_MARK
from stepscope.profiling.window.nesting import operator_calls
from stepscope.profiling.window.operations import NANOSECONDS, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.profiling.window.breakdown import Breakdown
    from stepscope.profiling.window.events import Timeline
    from stepscope.profiling.window.operations import Operation

METHOD = (
    "torch.profiler, raw events; self time is without the operations called inside; recording makes short "
    "operators slower than they are without it"
)
NOTABLE = 1 / 3
"""Minimum share of the window at which a part other than compute is the bottleneck."""


@dataclass(frozen=True)
class WindowProfile(Described):
    """The profile of a part of a training, recorded by torch's profiler."""

    epoch: int | None
    after_step: int | None
    """The step after which recording started; None for a window of seconds."""
    steps: int | None
    """Number of recorded steps; None for a window of seconds."""
    window_seconds: float
    breakdown: Breakdown
    operations: tuple[Operation, ...]
    """Ranked by host time."""
    device_operations: tuple[Operation, ...]
    """Ranked by device time; empty without a device."""
    kernels: tuple[Operation, ...]
    bottleneck: str
    trace: str | None
    """Path of the compressed Chrome trace; None if it was disabled or could not be written."""
    events: int
    """Number of events in the profile."""
    method: str


@dataclass(frozen=True)
class Place:
    """The position of a window in the training."""

    epoch: int | None = None
    after_step: int | None = None
    steps: int | None = None


def window_profile(
    timeline: Timeline, place: Place, *, top: int, with_memory: bool = False, trace: str | None = None
) -> WindowProfile:
    """Computes the profile of a recording; raises StepscopeError if it has no step."""
    on_host = window_of(timeline, place.steps)
    inside = timeline.within(on_host.start_ns, on_host.end_ns)
    # Device work belongs to the steps that queued it, even if it runs after the host has finished them.
    window = on_host._replace(end_ns=max([on_host.end_ns, *(span.end_ns for span in inside.device)]))
    parts = list(operator_calls(inside))
    breakdown = breakdown_of(inside, parts, window)
    host_operations = operations.host_operations(parts, top, with_memory=with_memory)
    device_operations = operations.device_operations(inside.device, inside.operators, top)
    return WindowProfile(
        epoch=place.epoch,
        after_step=place.after_step,
        steps=place.steps,
        window_seconds=window.length_ns * NANOSECONDS,
        breakdown=breakdown,
        operations=host_operations,
        device_operations=device_operations,
        kernels=operations.kernels(inside.device, top),
        bottleneck=bottleneck_of(breakdown, device_operations or host_operations),
        trace=trace,
        events=len(inside),
        method=METHOD,
    )


def window_of(timeline: Timeline, steps: int | None) -> WindowSpan:
    """The span from the first step's mark to the end of the last complete step."""
    marks = sorted(
        (span for span in timeline.ranges if span.name.startswith(STEP_MARK)), key=lambda span: span.start_ns
    )[:steps]
    if not marks:
        raise StepscopeError("The profiler recorded no step.")
    return WindowSpan(marks[0].thread, marks[0].start_ns, marks[-1].end_ns)


def bottleneck_of(breakdown: Breakdown, operations: Sequence[Operation]) -> str:
    """The bottleneck in a sentence: the largest part other than compute, else the largest operation."""
    shares = breakdown.shares()
    compute = shares.pop("compute")
    part = max(shares, key=lambda name: shares[name])
    if shares[part] < NOTABLE:
        return _compute(compute, operations)
    if part == "data":
        return (
            f"Data: {shares[part]:.0%} of the window was spent waiting for batches. Use more loader workers, "
            "cheaper transforms or faster storage."
        )
    if part == "communication":
        return (
            f"Communication: {shares[part]:.0%} of the window was communication with other ranks that did "
            "not overlap with compute. Use larger buckets, gradient accumulation or fewer collectives."
        )
    return _idle(shares[part], breakdown)


def _compute(share: float, operations: Sequence[Operation]) -> str:
    if not operations:
        return "Nothing was recorded inside the window."
    first = operations[0]
    return (
        f"Compute: {share:.0%} of the window; the largest operation is {first.name}, with "
        f"{first.share_ratio:.0%} of the time of all operations."
    )


def _idle(share: float, breakdown: Breakdown) -> str:
    if breakdown.measured_on == "main thread":
        return (
            f"Idle: for {share:.0%} of the window, the main thread ran no operator: it ran Python code, "
            "slept, or waited for something other than torch."
        )
    if breakdown.host_busy_ratio >= 0.5:
        return (
            f"Idle: for {share:.0%} of the window, the device was idle because the main thread queued work "
            "too slowly. Use larger batches, torch.compile or CUDA graphs."
        )
    return (
        f"Idle: for {share:.0%} of the window, the device was idle, and the main thread mostly ran no "
        "operator: it ran Python code, slept, or waited for something other than torch."
    )
