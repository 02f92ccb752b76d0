"""Measures what a model holds, and what a forward pass takes besides."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from stepscope.devices.process.processes import process_state
from stepscope.profiling.plain import Described
from stepscope.profiling.window.session import Detail, ProfilerBusy, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.profiling.window.events import Timeline


@dataclass(frozen=True)
class Footprint(Described):
    """Parameters and buffers of a model, each counted once however often it is used."""

    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    buffer_bytes: int
    bytes_by_type: dict[str, int]
    """Parameters and buffers together, by type of number."""


def footprint_of(model: Any) -> Footprint:
    """Counts parameters and buffers."""
    parameters, buffers = list(model.parameters()), list(model.buffers())
    by_type: defaultdict[str, int] = defaultdict(int)
    for tensor in (*parameters, *buffers):
        by_type[str(tensor.dtype).removeprefix("torch.")] += _bytes(tensor)
    return Footprint(
        parameters=sum(one.numel() for one in parameters),
        trainable_parameters=sum(one.numel() for one in parameters if one.requires_grad),
        parameter_bytes=sum(map(_bytes, parameters)),
        buffer_bytes=sum(map(_bytes, buffers)),
        bytes_by_type=dict(by_type),
    )


def peak_bytes(run: Callable[[], object], *, on_device: bool) -> int | None:
    """The most memory tensors took at once during a run, above what was taken before it.

    It follows the allocator's own events, so that the peaks torch keeps for the user are not reset. None
    where another profiler is in use.
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
    """The highest point of all that was taken and given back, in the order it happened."""
    ours = sorted(
        (one for one in timeline.allocations if one.on_device == on_device), key=lambda one: one.time_ns
    )
    return max(accumulate((one.count_bytes for one in ours), initial=0))


def resident_bytes() -> int | None:
    """Memory of this process as the system sees it; None where it does not tell."""
    state = process_state(os.getpid())
    return None if state is None else state.rss_bytes


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
