"""Finds what else happened in a step: a checkpoint, a compilation, a garbage collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.views.json_values import clean
from stepscope.views.overview.event_marks import is_marked
from stepscope.views.steps.step_values import step_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run

MIN_PAUSE_RATIO = 0.1
"""A garbage collection that takes at least this share of a step is marked."""

MAX_MARKS = 6

COUNTER_MARKS = {
    "compile/frames": "compiled",
    "compile/recompiles": "compiled again",
    "compile/graph_breaks": "graph break",
    "optimizer_skipped": "optimizer skipped",
}
PAUSE_SECONDS = "gc/pause_seconds"


class StepMarks:
    """The marks of a range of steps of one rank."""

    def __init__(self, run: Run, rank: int, low: int, high: int) -> None:
        self._events: dict[int, list[str]] = {}
        for event in run.events():
            is_here = event.step is not None and low <= event.step <= high and event.rank in (None, rank)
            if is_here and is_marked(event) and event.step is not None:
                self._events.setdefault(event.step, []).append(clean(event.kind, 60).replace("_", " "))
        self._counted: dict[int, list[str]] = {}
        for key, word in COUNTER_MARKS.items():
            counts = step_values(run, key, rank, low, high)
            for step in counts.steps[counts.values > 0].tolist():
                self._counted.setdefault(step, []).append(word)
        self._pauses = step_values(run, PAUSE_SECONDS, rank, low, high)

    def of(self, step: int, seconds: float, phases: Mapping[str, float]) -> tuple[str, ...]:
        """Returns the marks of a step, given its duration and its phases."""
        marks = [*self._events.get(step, ()), *self._counted.get(step, ())]
        if phases.get("checkpoint", 0.0) > 0:
            marks.append("checkpoint")
        if phases.get("eval", 0.0) > 0:
            marks.append("evaluation")
        pause = float(self._pauses.at(np.array([step]))[0])
        if pause >= MIN_PAUSE_RATIO * seconds:
            marks.append("garbage collection")
        return tuple(dict.fromkeys(marks))[:MAX_MARKS]
