"""Tells the step of a moment in a run, to draw what was read from the machine on the axis of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.store.timeline import read_timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.store.sqlite import SqliteReader
    from stepscope.store.timeline import Timeline


class StepJoin:
    """The timelines of a run's segments, read when they are first asked for."""

    def __init__(self, run: Run, reader: SqliteReader) -> None:
        self._run, self._reader = run, reader
        self._timelines: dict[str, Timeline] = {}

    def steps_at(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step in progress at each moment, by the segment that ran then."""
        steps = np.zeros(len(times_ns), np.int64)
        begins = [part.started_ns for part in self._run.segments]
        owners = np.searchsorted(begins, times_ns, side="right") - 1
        for number, part in enumerate(self._run.segments):
            here = owners == number
            if here.any():
                steps[here] = self._timeline(part.id).steps_at(times_ns[here])
        return steps

    def first_step(self, segment: str) -> int | None:
        """The first step of a segment; None where it logged none."""
        steps = self._timeline(segment).steps
        return int(steps.min()) if len(steps) else None

    def _timeline(self, segment: str) -> Timeline:
        if segment not in self._timelines:
            self._timelines[segment] = read_timeline(self._reader, self._run.id, segment)
        return self._timelines[segment]
