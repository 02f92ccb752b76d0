"""Builds the window of a run's newest steps from a store, at a cost that does not grow with the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.steady import COMPILED, steadiness_of
from stepscope.schema.keys import (
    ANOTHER_TRAINING_EVENT,
    CHECKPOINT_GAP_SECONDS,
    EVAL_GAP_SECONDS,
    LOSS_KEYS,
    PHASES,
    SAMPLED_RATIO,
    STEP_SECONDS,
    device_key,
    phase_key,
)
from stepscope.schema.run import LIVE, segments_of
from stepscope.schema.series import Selection
from stepscope.schema.total_steps import TOTAL_STEPS_EVENTS, total_steps_of
from stepscope.schema.window import Column, MachineFigures, RankWindow, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.schema.run import SegmentInfo
    from stepscope.schema.series import Buckets, Points, Source
    from stepscope.schema.window import Flags, Floats, Ints
    from stepscope.store.base import Reader

ROWS = 2048
"""Maximum number of steps in a window."""

COURSE_BUCKETS = 128

ANY = "/*"
"""A requested key with this end stands for the keys that begin with what is before the asterisk."""

MAX_KEYS = 64
"""Maximum number of such keys: as many as a model has layers that are recorded."""

_ALWAYS = (
    STEP_SECONDS,
    SAMPLED_RATIO,
    EVAL_GAP_SECONDS,
    CHECKPOINT_GAP_SECONDS,
    *map(phase_key, PHASES),
    *map(device_key, ("step", *PHASES)),
)
"""Keys that the verdict needs, independent of which detectors are enabled."""

LONGEST_S = 1e7
"""Times above this (four months) or below zero are measurement errors and are ignored."""

MAX_RANKS = 16
"""Maximum number of ranks in a window. Each rank costs the agent the same time."""


@dataclass(frozen=True)
class WindowRequest:
    """What a window must contain: keys, courses and event kinds of the detectors that will read it."""

    keys: frozenset[str] = frozenset()
    """One that ends in `/*` stands for all keys with this beginning, the first 64 of them."""
    courses: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    rows: int = field(default=ROWS)


def build_window(reader: Reader, run_id: str, request: WindowRequest) -> Window | None:
    """Returns the newest steps of the newest segment; None for a run without a rank or launcher process."""
    processes = [process for process in reader.processes(run_id) if process.role in ("rank", "launcher")]
    if not processes:
        return None
    segment = segments_of(processes)[-1]
    keys = sorted({*_expanded(reader, run_id, request.keys), *COMPILED, *_ALWAYS})
    newest = reader.newest(run_id, segment.id, keys, request.rows)
    another = {
        event.rank: event.step
        for event in reader.events(run_id, ANOTHER_TRAINING_EVENT)
        if event.segment == segment.id and not event.by_user
    }
    ranks: dict[int, RankWindow] = {}
    for source in sorted(newest, key=lambda source: (source.rank or 0, source.host)):
        if _is_of_rank(source) and source.rank not in ranks and len(ranks) < MAX_RANKS:
            first_step = another.get(source.rank)
            ranks[source.rank or 0] = _rank_window(reader, source, newest[source], request, first_step)
    with_steps = tuple(rank for rank in ranks.values() if len(rank.steps))
    return Window(
        run_id,
        segment.id,
        with_steps,
        _machine(newest, with_steps, request),
        _events(reader, run_id, segment.id, request),
        {process.rank: process.facts for process in segment.processes if process.role == "rank"},
        _remaining_s(reader, segment, with_steps),
        {
            process.rank: max(process.last_ns, process.started_ns) / 1e9
            for process in segment.processes
            if process.role == "rank" and process.status == "stalled"
        },
    )


def _expanded(reader: Reader, run_id: str, keys: frozenset[str]) -> set[str]:
    """Returns the keys, with those that a run has in the place of each that ends in `/*`."""
    expanded = {key for key in keys if not key.endswith(ANY)}
    for key in keys - expanded:
        prefix = key.removesuffix("*")
        page = reader.keys(run_id, "step", limit=MAX_KEYS, after=prefix)
        expanded.update(info.key for info in page if info.key.startswith(prefix))
    return expanded


def _remaining_s(reader: Reader, segment: SegmentInfo, ranks: Sequence[RankWindow]) -> float | None:
    if segment.status not in LIVE:
        return 0.0
    process = min(segment.processes, key=lambda process: (process.role != "rank", process.rank))
    total = total_steps_of(process.facts, reader.events(process.run_id, TOTAL_STEPS_EVENTS))
    if total is None or not ranks or STEP_SECONDS not in ranks[0].columns:
        return None
    (taken,) = ranks[0].aligned(STEP_SECONDS, steady=False)
    # Steps count from 0, so the last step's number plus 1 have been done.
    left = max(total - int(ranks[0].steps[-1]) - 1, 0)
    return left * float(np.mean(taken)) if len(taken) else None


def _is_of_rank(source: Source) -> bool:
    """Whether a rank itself logged it, not a worker of its data loader."""
    return source.axis == "step" and source.device == "" and source.rank is not None


def _rank_window(
    reader: Reader,
    source: Source,
    points: Mapping[str, Points],
    request: WindowRequest,
    first_step: int | None,
) -> RankWindow:
    """Returns the window of a rank, without the trainings of other models before `first_step`."""
    base = points.get(STEP_SECONDS) or next((points[key] for key in LOSS_KEYS if key in points), None)
    base = base or max(points.values(), key=len)
    low_step, low_ns = _window_start(base)
    is_whole = len(base) < request.rows
    if first_step is not None and low_step < first_step <= base.steps[-1]:
        low_step, is_whole = first_step, True
    # Keys that were logged together share their arrays of steps and times.
    rows: dict[int, tuple[Ints, Ints, Flags]] = {}
    for series in points.values():
        if id(series.steps) not in rows:
            inside = (series.steps >= low_step) & (series.times_ns > low_ns)
            rows[id(series.steps)] = (series.steps[inside], series.times_ns[inside], inside)
    steps = np.unique(np.concatenate([row_steps for row_steps, _, _ in rows.values()]))
    times = np.zeros(len(steps))
    places = {}
    for array_id, (row_steps, times_ns, _) in rows.items():
        places[array_id] = np.searchsorted(steps, row_steps)
        times[places[array_id]] = np.maximum(times[places[array_id]], times_ns / 1e9)
    columns = {
        key: column_of(
            places[id(series.steps)],
            series.values[rows[id(series.steps)][2]],
            len(steps),
            is_time=key.endswith("_seconds"),
        )
        for key, series in points.items()
        if len(places[id(series.steps)])
    }
    steadiness = steadiness_of(columns, len(steps), is_whole=is_whole)
    course = {} if is_whole else _course(reader, source, [key for key in columns if key in request.courses])
    return RankWindow(
        source.rank or 0, source.host, steps, times, columns, *steadiness, is_whole=is_whole, course=course
    )


def _window_start(base: Points) -> tuple[int, int]:
    """Returns the first step to keep and the time after which; a restarted step count starts a new window."""
    back = np.flatnonzero(np.diff(base.steps) < 0)
    if not len(back):
        return int(base.steps[0]), -1
    begin = int(back[-1]) + 1
    return int(base.steps[begin:].min()), int(base.times_ns[begin - 1])


def column_of(places: NDArray[np.intp], values: Floats, count: int, *, is_time: bool) -> Column:
    """Returns the values of a key at some of the steps; a time that cannot be right is not finite."""
    spread = np.full(count, np.nan)
    present = np.zeros(count, bool)
    spread[places] = values
    present[places] = True
    finite = np.isfinite(spread)
    if is_time:
        finite &= (spread >= 0) & (spread <= LONGEST_S)
    return Column(spread, present, finite)


def _course(reader: Reader, source: Source, keys: list[str]) -> dict[str, Buckets]:
    return {
        key: reader.buckets(
            Selection(source.run_id, key, source.segment, source.rank, source.host, source.device, "step"),
            COURSE_BUCKETS,
        )
        for key in keys
    }


def _machine(
    newest: Mapping[Source, Mapping[str, Points]], ranks: Sequence[RankWindow], request: WindowRequest
) -> tuple[MachineFigures, ...]:
    """Returns what samplers read on the hosts of these ranks during their steps, or newest of a course."""
    low = min((rank.times[0] for rank in ranks), default=np.inf)
    high = max((rank.times[-1] for rank in ranks), default=-np.inf)
    figures = []
    for source, points in newest.items():
        for key, series in points.items() if source.axis == "seconds" else ():
            inside = np.isfinite(series.values)
            if key not in request.courses:
                inside &= (series.times >= low) & (series.times <= high)
            if inside.any():
                times, values = series.times[inside], series.values[inside]
                figures.append(MachineFigures(key, source.rank, source.host, source.device, times, values))
    return tuple(figures)


def _events(reader: Reader, run_id: str, segment: str, request: WindowRequest) -> tuple[Event, ...]:
    events = [
        event
        for kind in sorted(request.events)
        for event in reader.events(run_id, kind)
        if not event.by_user and event.segment == segment
    ]
    return tuple(sorted(events, key=lambda event: event.time_ns))
