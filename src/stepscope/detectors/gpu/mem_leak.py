"""Detects memory of a GPU that grows without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.leak_finding import Readings, examine_growth
from stepscope.analysis.memory_growth import ALLOCATED, DEVICE_LIMITS
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Remedy
from stepscope.schema.window import MachineFigures

if TYPE_CHECKING:
    from stepscope.schema.finding import Finding
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT = "census"

ADVICE = (
    Remedy(
        "Keep no tensors that have a graph: each keeps all activations of its step on the GPU.",
        "total += loss.item()                       # or loss.detach()",
        "PyTorch",
    ),
    Remedy(
        "Record which lines allocate memory that is not freed.",
        "torch.cuda.memory._record_memory_history()\n"
        "torch.cuda.memory._dump_snapshot('memory.pickle')   # open it on pytorch.org/memory_viz",
        "PyTorch",
    ),
)


@dataclass(frozen=True)
class GpuMemoryLeak(Detector):
    """Fits a line to the memory that tensors use at the end of a step."""

    id: ClassVar[str] = "mem.leak"
    title: ClassVar[str] = "Memory of the GPU leaks"
    sentence: ClassVar[str] = (
        "the memory of tensors at the end of a step grows steadily, and will be full before the run ends; if "
        "the end is not known, within a day or as long again as the run has lasted"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((ALLOCATED,),)
    reads: ClassVar[tuple[str, ...]] = tuple(DEVICE_LIMITS)
    courses: ClassVar[tuple[str, ...]] = (ALLOCATED, *DEVICE_LIMITS)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    min_steps: ClassVar[int] = 30
    is_optional: ClassVar[bool] = True

    least_bytes: Annotated[float, Range(0)] = 64 * 2.0**20
    """Minimum growth while it was observed, in bytes; 1% of the limit if that is less."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Examines the whole segment."""
        course = rank.course.get(ALLOCATED)
        if course is None:
            chosen = rank.where(ALLOCATED, steady=False)
            times, values = rank.times[chosen], rank.columns[ALLOCATED].values[chosen]
            steps = rank.steps[chosen].astype(np.float64)
        else:
            times, values, steps = course.times, course.minimum, course.starts.astype(np.float64)
        figures = MachineFigures(ALLOCATED, rank.rank, rank.host, "", times, values)
        totals = {
            key: min(float(size.values[-1]) for size in sizes)
            for key in DEVICE_LIMITS
            if (sizes := window.figures(key, rank.host))
        }
        for event in window.events_of(SETUP_EVENT, rank.rank):
            for device in event.fields.get("devices", ()):
                totals.update(dict.fromkeys(DEVICE_LIMITS, float(device["total_bytes"])))
        readings = Readings(figures, times, values, steps, "Tensor memory", totals, ADVICE)
        return examine_growth(self, window, [readings], self.least_bytes)
