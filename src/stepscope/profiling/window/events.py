"""Converts the events of torch's profiler into plain spans.

It reads torch's raw events, because the training loop waits for the result: the operator table of 394,000
events takes 5 s this way, and 34 s with `profile.key_averages()` (torch 2.13, two cores). That has the same
self times, but neither the user's functions nor a way to leave out what is not part of the recorded steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MARK = "ProfilerStep#"
"""Prefix of the span of a step in torch."""

_MEMORY = "[memory]"
_BOOKKEEPING = frozenset(
    [
        "[OutOfMemory]",
        "Activity Buffer Request",
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    ]
)
_DRIVER = ("cu", "hip")
"""Prefixes of calls into a device's driver; operators have a namespace before their name."""
_USER_SCOPE = 7
"""torch's scope number of ranges marked by `record_function`."""


class Span(NamedTuple):
    """Something a thread did, with start and end time."""

    thread: int
    start_ns: int
    end_ns: int
    name: str
    id: int = 0
    """The id that device work queued by this span refers to; 0 if it queues none itself."""
    shapes: str = ""


class DeviceSpan(NamedTuple):
    """A kernel, copy or fill on a device."""

    device: int
    start_ns: int
    end_ns: int
    name: str
    begun_by: int = 0
    """The id of the operator that queued it."""


class Allocation(NamedTuple):
    """Memory allocated, or freed if negative."""

    thread: int
    time_ns: int
    count_bytes: int
    on_device: bool


@dataclass
class Timeline:
    """All recorded spans and allocations, by kind."""

    operators: list[Span] = field(default_factory=list)
    """Operators and calls into a device's driver, in any thread of the host."""
    ranges: list[Span] = field(default_factory=list)
    """Named ranges, marked by torch (steps, data loader, optimizer) or by the user."""
    functions: list[Span] = field(default_factory=list)
    """Python functions; only if stacks were recorded."""
    overlapping: list[Span] = field(default_factory=list)
    """Spans that began in one thread and ended in another, as collective operations do."""
    device: list[DeviceSpan] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part) for part in vars(self).values())

    def within(self, start_ns: int, end_ns: int) -> Timeline:
        """The spans started by the host in a time range, functions running then, and queued device work."""

        def kept(spans: list[Any]) -> list[Any]:
            return [span for span in spans if start_ns <= span.start_ns < end_ns]

        others = {span.id for span in self.operators if not start_ns <= span.start_ns < end_ns} - {0}
        return Timeline(
            operators=kept(self.operators),
            ranges=kept(self.ranges),
            functions=[span for span in self.functions if span.start_ns < end_ns and span.end_ns > start_ns],
            overlapping=kept(self.overlapping),
            # A device works later than the host queues, often after the end of the range.
            device=[
                span for span in self.device if span.begun_by not in others and span.start_ns >= start_ns
            ],
            allocations=[
                allocation for allocation in self.allocations if start_ns <= allocation.time_ns < end_ns
            ],
        )


def timeline_of(events: list[Any], host: object, *, with_shapes: bool = True) -> Timeline:
    """The spans of raw events; `host` is torch's device type for the CPU."""
    timeline = Timeline()
    if not events:
        return timeline
    times, is_function = _times_of(events[0]), _function_test(events[0])
    for event in events:
        name = _name_of(event)
        if name in _BOOKKEEPING:
            continue
        start_ns, end_ns = times(event)
        if name == _MEMORY:
            timeline.allocations.append(_allocation(event, start_ns, host))
        elif event.device_type() != host:
            begun_by = event.linked_correlation_id()
            timeline.device.append(DeviceSpan(event.device_index(), start_ns, end_ns, name, begun_by))
        else:
            shapes = event.shapes() if with_shapes else ()
            # Driver calls have ids of their own, which may equal those of operators.
            own_id = 0 if name.startswith(_DRIVER) else event.correlation_id()
            shown = str(shapes) if any(shapes) else ""
            span = Span(event.start_thread_id(), start_ns, end_ns, name, own_id, shown)
            if is_function(event, name):
                timeline.functions.append(span)
            else:
                _kind_of(timeline, event, span).append(span)
    _leave_out_marks(timeline)
    return timeline


def _name_of(event: Any) -> str:
    """The name of an event; torch may return bytes that are no text for a function that has been freed."""
    try:
        return str(event.name())
    except UnicodeDecodeError:
        return "(unknown)"


def _kind_of(timeline: Timeline, event: Any, span: Span) -> list[Span]:
    if event.scope() == _USER_SCOPE:
        return timeline.ranges
    if event.is_async() or event.end_thread_id() != span.thread:
        return timeline.overlapping
    return timeline.operators


def _allocation(event: Any, time_ns: int, host: object) -> Allocation:
    return Allocation(event.start_thread_id(), time_ns, event.nbytes(), event.device_type() != host)


def _leave_out_marks(timeline: Timeline) -> None:
    """Removes device spans of named ranges: they are not work of the device."""
    names = {span.name for span in timeline.ranges}
    timeline.device = [span for span in timeline.device if span.name not in names]


def _times_of(event: Any) -> Callable[[Any], tuple[int, int]]:
    """A function that reads start and end: in nanoseconds, or in microseconds for torch before 2.4."""
    if hasattr(event, "start_ns"):
        return lambda raw: ((start := raw.start_ns()), start + raw.duration_ns())
    return lambda raw: ((start := raw.start_us() * 1000), start + raw.duration_us() * 1000)


def _function_test(event: Any) -> Callable[[Any, str], bool]:
    if hasattr(event, "is_python_function"):
        return lambda raw, _name: bool(raw.is_python_function())
    return lambda _raw, name: ".py(" in name or name.startswith(("<built-in", "nn.Module:"))
