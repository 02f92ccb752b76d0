"""Builds the window of a run's newest steps from a store, at a cost that does not grow with the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.steady import COMPILED, steadiness_of
from stepscope.schema.keys import (
    CHECKPOINT_GAP_SECONDS,
    EVAL_GAP_SECONDS,
    LOSS_KEYS,
    PHASES,
    SAMPLED_RATIO,
    STEP_SECONDS,
    device_key,
    phase_key,
)
from stepscope.schema.run import segments_of
from stepscope.schema.series import Selection
from stepscope.schema.window import Column, MachineFigures, RankWindow, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from stepscope.schema.record import Event
    from stepscope.schema.series import Buckets, Points, Source
    from stepscope.schema.window import Flags, Floats, Ints
    from stepscope.store.base import Reader

ROWS = 2048
"""A window has at most so many steps."""

COURSE_BUCKETS = 128

_ALWAYS = (
    STEP_SECONDS,
    SAMPLED_RATIO,
    EVAL_GAP_SECONDS,
    CHECKPOINT_GAP_SECONDS,
    *map(phase_key, PHASES),
    *map(device_key, ("step", *PHASES)),
)
"""What the verdict looks at, whichever detectors there are."""

LONGEST_S = 1e7
"""No part of a step takes four months; what says so, or is below zero, was not measured."""

MAX_RANKS = 16
"""So many ranks are looked at: each costs the same, and the agent has other work."""


@dataclass(frozen=True)
class Wanted:
    """What some detectors ask for."""

    keys: frozenset[str] = frozenset()
    courses: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    rows: int = field(default=ROWS)


def build_window(reader: Reader, run_id: str, wanted: Wanted) -> Window | None:
    """The newest steps of the newest segment; None for a run that has no process of its own."""
    processes = [one for one in reader.processes(run_id) if one.role in ("rank", "launcher")]
    if not processes:
        return None
    segment = segments_of(processes)[-1]
    asked = sorted({*wanted.keys, *COMPILED, *_ALWAYS})
    found = reader.newest(run_id, segment.id, asked, wanted.rows)
    ranks: dict[int, RankWindow] = {}
    for source, points in sorted(found.items(), key=lambda one: (one[0].rank or 0, one[0].host)):
        if _is_of_rank(source) and source.rank not in ranks and len(ranks) < MAX_RANKS:
            ranks[source.rank or 0] = _rank_window(reader, source, points, wanted)
    return Window(
        run_id,
        segment.id,
        tuple(one for one in ranks.values() if len(one.steps)),
        _machine(found, list(ranks.values())),
        _events(reader, run_id, segment.id, wanted),
        {one.rank: one.facts for one in segment.processes if one.role == "rank"},
    )


def _is_of_rank(source: Source) -> bool:
    """Whether it is what a rank itself has logged, and none of its loader's workers."""
    return source.axis == "step" and source.device == "" and source.rank is not None


def _rank_window(reader: Reader, source: Source, points: Mapping[str, Points], wanted: Wanted) -> RankWindow:
    base = points.get(STEP_SECONDS) or next((points[key] for key in LOSS_KEYS if key in points), None)
    base = base or max(points.values(), key=len)
    is_whole = len(base) < wanted.rows
    low_step, low_ns = _reach(base)
    # Keys that were logged together have their steps and times in common.
    rows: dict[int, tuple[Ints, Ints, Flags]] = {}
    for one in points.values():
        if id(one.steps) not in rows:
            inside = (one.steps >= low_step) & (one.times_ns > low_ns)
            rows[id(one.steps)] = (one.steps[inside], one.times_ns[inside], inside)
    steps = np.unique(np.concatenate([at for at, _, _ in rows.values()]))
    times = np.zeros(len(steps))
    places = {}
    for number, (at, times_ns, _) in rows.items():
        places[number] = np.searchsorted(steps, at)
        times[places[number]] = np.maximum(times[places[number]], times_ns / 1e9)
    columns = {
        key: _column(
            places[id(one.steps)],
            one.values[rows[id(one.steps)][2]],
            len(steps),
            is_time=key.endswith("_seconds"),
        )
        for key, one in points.items()
        if len(places[id(one.steps)])
    }
    steadiness = steadiness_of(columns, len(steps), is_whole=is_whole)
    course = {} if is_whole else _course(reader, source, [one for one in columns if one in wanted.courses])
    return RankWindow(
        source.rank or 0, source.host, steps, times, columns, *steadiness, is_whole=is_whole, course=course
    )


def _reach(base: Points) -> tuple[int, int]:
    """The first step to keep, and the moment after which: steps that were counted anew begin a window."""
    back = np.flatnonzero(np.diff(base.steps) < 0)
    if not len(back):
        return int(base.steps[0]), -1
    begin = int(back[-1]) + 1
    return int(base.steps[begin:].min()), int(base.times_ns[begin - 1])


def _column(places: NDArray[np.intp], values: Floats, count: int, *, is_time: bool) -> Column:
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
    found: Mapping[Source, Mapping[str, Points]], ranks: list[RankWindow]
) -> tuple[MachineFigures, ...]:
    """What was read on the hosts of these ranks while their steps were made."""
    spans = [(one.times[0], one.times[-1]) for one in ranks if len(one.steps)]
    if not spans:
        return ()
    low, high = min(first for first, _ in spans), max(last for _, last in spans)
    figures = []
    for source, points in found.items():
        for key, one in points.items() if source.axis == "seconds" else ():
            inside = (one.times >= low) & (one.times <= high) & np.isfinite(one.values)
            if inside.any():
                figures.append(
                    MachineFigures(
                        key, source.rank, source.host, source.device, one.times[inside], one.values[inside]
                    )
                )
    return tuple(figures)


def _events(reader: Reader, run_id: str, segment: str, wanted: Wanted) -> tuple[Event, ...]:
    found = [one for kind in sorted(wanted.events) for one in reader.events(run_id, kind) if not one.by_user]
    return tuple(sorted((one for one in found if one.segment == segment), key=lambda one: one.time_ns))
