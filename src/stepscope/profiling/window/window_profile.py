"""What a profiled window tells: operations, where the time went, what holds it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.profiling.plain import Described
from stepscope.profiling.window import operations
from stepscope.profiling.window.bottleneck import bottleneck_of
from stepscope.profiling.window.breakdown import Breakdown, breakdown_of
from stepscope.profiling.window.coverage import Stretch
from stepscope.profiling.window.events import STEP_MARK
from stepscope.profiling.window.nesting import own_parts
from stepscope.profiling.window.operations import NANOSECONDS, Operation

if TYPE_CHECKING:
    from stepscope.profiling.window.events import Timeline

METHOD = (
    "torch.profiler, raw events; self time is without the operations called inside; recording makes short "
    "operators slower than they are without it"
)


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
