"""Measures the memory of a model, and the additional memory of a forward pass."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from stepscope.devices.process.processes import process_state
from stepscope.profiling.plain_data import Described
from stepscope.profiling.window.session import Detail, ProfilerBusy, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.profiling.window.events import Timeline


@dataclass(frozen=True)
class Footprint(Described):
    """Parameters and buffers of a model; shared ones are counted once."""

    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    buffer_bytes: int
    bytes_by_type: dict[str, int]
    """Parameters and buffers together, by number type."""


def footprint_of(model: Any) -> Footprint:
    """Counts parameters and buffers."""
    parameters, buffers = list(model.parameters()), list(model.buffers())
    by_type: defaultdict[str, int] = defaultdict(int)
    for tensor in (*parameters, *buffers):
        by_type[str(tensor.dtype).removeprefix("torch.")] += _bytes(tensor)
    return Footprint(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        parameter_bytes=sum(map(_bytes, parameters)),
        buffer_bytes=sum(map(_bytes, buffers)),
        bytes_by_type=dict(by_type),
    )


def peak_bytes(run: Callable[[], object], *, on_device: bool) -> int | None:
    """The peak tensor memory during a run, above the level before it.

    It uses the allocator's events, so that torch's own peak statistics are not reset. None if another
    profiler is in use.
    """
    try:
        session = Session(Detail(memory=True))
    except ProfilerBusy:
        return None
    session.prepare()
    session.record()
    try:
        run()
    finally:
        timeline = session.stop()
    return peak_of(timeline, on_device=on_device)


def peak_of(timeline: Timeline, *, on_device: bool) -> int:
    """The peak of the allocations and deallocations in order of time."""
    allocations = [allocation for allocation in timeline.allocations if allocation.on_device == on_device]
    allocations.sort(key=lambda allocation: allocation.time_ns)
    return max(accumulate((allocation.count_bytes for allocation in allocations), initial=0))


def resident_bytes() -> int | None:
    """Resident memory of this process; None if not available."""
    state = process_state(os.getpid())
    return None if state is None else state.rss_bytes


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
