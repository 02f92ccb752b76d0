"""Reads what torch's profiler recorded into plain spans.

It reads torch's raw events: the list that `profile.events()` makes of them takes twenty times as long to
build, and the training loop waits meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MARK = "ProfilerStep#"
"""What torch calls the span of a step."""

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
"""How the calls into a device's driver begin; operators have a namespace before their name."""
_USER_SCOPE = 7
"""torch's number for what `record_function` marks."""


class Span(NamedTuple):
    """Something a thread did from one moment to another."""

    thread: int
    start_ns: int
    end_ns: int
    name: str
    id: int = 0
    """What the device work it began refers to; 0 for what begins none itself."""
    shapes: str = ""


class DeviceSpan(NamedTuple):
    """A kernel, copy or fill that a device worked on."""

    device: int
    start_ns: int
    end_ns: int
    name: str
    begun_by: int = 0
    """The id of the operator that began it."""


class Allocation(NamedTuple):
    """Memory taken, or given back when negative."""

    thread: int
    time_ns: int
    count_bytes: int
    on_device: bool


@dataclass
class Timeline:
    """All that was recorded, by what it is."""

    operators: list[Span] = field(default_factory=list)
    """Operators and calls into a device's driver, on any thread of the host."""
    ranges: list[Span] = field(default_factory=list)
    """What was marked by name: by torch (steps, data loader, optimizer) and by the user."""
    functions: list[Span] = field(default_factory=list)
    """Python functions; only where stacks were asked for."""
    overlapping: list[Span] = field(default_factory=list)
    """What began on one thread and ended on another, as collective operations do."""
    device: list[DeviceSpan] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part) for part in vars(self).values())

    def within(self, start_ns: int, end_ns: int) -> Timeline:
        """What the host began in a stretch of time, functions in progress then, and work it gave a device."""

        def kept(spans: list[Any]) -> list[Any]:
            return [span for span in spans if start_ns <= span.start_ns < end_ns]

        others = {span.id for span in self.operators if not start_ns <= span.start_ns < end_ns} - {0}
        return Timeline(
            operators=kept(self.operators),
            ranges=kept(self.ranges),
            functions=[span for span in self.functions if span.start_ns < end_ns and span.end_ns > start_ns],
            overlapping=kept(self.overlapping),
            # A device does its work later than the host gives it, often after the end of the stretch.
            device=[one for one in self.device if one.begun_by not in others and one.start_ns >= start_ns],
            allocations=[one for one in self.allocations if start_ns <= one.time_ns < end_ns],
        )


def timeline_of(events: list[Any], host: object, *, with_shapes: bool = True) -> Timeline:
    """The spans among raw events; `host` is the device type that torch gives to processors."""
    timeline = Timeline()
    if not events:
        return timeline
    times, is_function = _times_of(events[0]), _function_test(events[0])
    for event in events:
        name = event.name()
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
            # The driver's calls have numbers of their own, which may be those of operators.
            own_id = 0 if name.startswith(_DRIVER) else event.correlation_id()
            shown = str(shapes) if any(shapes) else ""
            span = Span(event.start_thread_id(), start_ns, end_ns, name, own_id, shown)
            if is_function(event, name):
                timeline.functions.append(span)
            else:
                _kind_of(timeline, event, span).append(span)
    _leave_out_marks(timeline)
    return timeline


def _kind_of(timeline: Timeline, event: Any, span: Span) -> list[Span]:
    if event.scope() == _USER_SCOPE:
        return timeline.ranges
    if event.is_async() or event.end_thread_id() != span.thread:
        return timeline.overlapping
    return timeline.operators


def _allocation(event: Any, time_ns: int, host: object) -> Allocation:
    return Allocation(event.start_thread_id(), time_ns, event.nbytes(), event.device_type() != host)


def _leave_out_marks(timeline: Timeline) -> None:
    """Drops the shadows that named ranges throw on a device: no device works on them."""
    names = {span.name for span in timeline.ranges}
    timeline.device = [span for span in timeline.device if span.name not in names]


def _times_of(event: Any) -> Callable[[Any], tuple[int, int]]:
    """How start and end are read: in nanoseconds, or microseconds from torch before 2.4."""
    if hasattr(event, "start_ns"):
        return lambda one: ((start := one.start_ns()), start + one.duration_ns())
    return lambda one: ((start := one.start_us() * 1000), start + one.duration_us() * 1000)


def _function_test(event: Any) -> Callable[[Any, str], bool]:
    if hasattr(event, "is_python_function"):
        return lambda one, _name: bool(one.is_python_function())
    return lambda _one, name: ".py(" in name or name.startswith(("<built-in", "nn.Module:"))
