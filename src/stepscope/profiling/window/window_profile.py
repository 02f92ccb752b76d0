"""What a profiled window tells: operations, where the time went, what holds it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.plain import Described
from stepscope.profiling.window import operations
from stepscope.profiling.window.breakdown import Breakdown, breakdown_of
from stepscope.profiling.window.coverage import Stretch
from stepscope.profiling.window.events import STEP_MARK
from stepscope.profiling.window.nesting import own_parts
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
"""A part of the window that is not compute is the bottleneck from this share on."""


@dataclass(frozen=True)
class WindowProfile(Described):
    """A stretch of a training under torch's profiler."""

    epoch: int | None
    after_step: int | None
    """The step after which recording began; None for a window of seconds."""
    steps: int | None
    """How many steps were recorded; None for a window of seconds."""
    window_seconds: float
    breakdown: Breakdown
    operations: tuple[Operation, ...]
    """By time of the host."""
    device_operations: tuple[Operation, ...]
    """By time of the device; empty where there was none."""
    kernels: tuple[Operation, ...]
    bottleneck: str
    trace: str | None
    """The Chrome trace, compressed; None where it was not wanted or could not be written."""
    events: int
    """How many events it rests on."""
    method: str


@dataclass(frozen=True)
class Place:
    """Where in the training a window lies."""

    epoch: int | None = None
    after_step: int | None = None
    steps: int | None = None


def window_profile(
    timeline: Timeline, place: Place, *, top: int, with_memory: bool = False, trace: str | None = None
) -> WindowProfile:
    """Judges what was recorded; raises StepscopeError where not one step was."""
    on_host = window_of(timeline, place.steps)
    inside = timeline.within(on_host.start_ns, on_host.end_ns)
    # All the steps gave the device to do is theirs, also what it does after the host is done with them.
    window = on_host._replace(end_ns=max([on_host.end_ns, *(span.end_ns for span in inside.device)]))
    parts = list(own_parts(inside))
    breakdown = breakdown_of(inside, parts, window)
    host_operations = operations.on_the_host(parts, top, with_memory=with_memory)
    device_operations = operations.on_the_device(inside.device, inside.operators, top)
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


def window_of(timeline: Timeline, steps: int | None) -> Stretch:
    """From the first step's mark to the end of the last that counts."""
    marks = sorted(
        (span for span in timeline.ranges if span.name.startswith(STEP_MARK)), key=lambda span: span.start_ns
    )[:steps]
    if not marks:
        raise StepscopeError("The profiler recorded no step.")
    return Stretch(marks[0].thread, marks[0].start_ns, marks[-1].end_ns)


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
