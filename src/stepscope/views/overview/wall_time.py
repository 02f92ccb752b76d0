"""Accounts for the wall time of a run: start-up, steps, evaluations, checkpoints, gaps, and the rest."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from stepscope.analysis.large_shares import LARGE, LargeShare
from stepscope.schema.keys import (
    CHECKPOINT_GAP_SECONDS,
    EPOCH_GAP_SECONDS,
    EVAL_GAP_SECONDS,
    STARTUP_SECONDS,
    STEP_SECONDS,
)
from stepscope.views.formatting import percent
from stepscope.views.steps.phase_breakdown import phases_of
from stepscope.views.steps.step_rate import run_seconds, segment_seconds

if TYPE_CHECKING:
    from stepscope.reading import Run
    from stepscope.views.metrics.series_summaries import SeriesSummaries

COMPILE_SECONDS = "compile/seconds"

LABELS = {
    "startup": "start-up",
    "steps": "training steps",
    "compilation": "compilation",
    "evaluation": "evaluation",
    "checkpoints": "checkpoints",
    "epoch_gaps": "between epochs",
    "ending": "after the last step",
    "unaccounted": "unaccounted",
}
"""The label of each part, in display order."""

SHARE_TEXTS = {
    EVAL_GAP_SECONDS: "evaluation",
    CHECKPOINT_GAP_SECONDS: "writing checkpoints",
    EPOCH_GAP_SECONDS: "between epochs",
    COMPILE_SECONDS: "compilation",
}
"""What may take a large share of the time besides training, as texts name it."""

MIN_SECONDS = 60.0
"""Shares of shorter runs are not meaningful: they are mostly start-up."""

_GAPS = (STARTUP_SECONDS, EPOCH_GAP_SECONDS, EVAL_GAP_SECONDS, CHECKPOINT_GAP_SECONDS)


@dataclass(frozen=True)
class TimePart:
    """One part of the wall time of a run."""

    name: str
    label: str
    seconds: float
    share: float
    """Share of the wall time, from 0 to 1."""


@dataclass(frozen=True)
class WallTime:
    """The wall time of a run over all its segments, as its first rank spent it."""

    seconds: float
    parts: tuple[TimePart, ...]
    """Parts that took any time; they add up to the whole."""

    def described(self) -> dict[str, Any]:
        """Returns the wall time as plain dictionaries, for JSON."""
        return asdict(self)


def wall_time_of(run: Run, summaries: SeriesSummaries, now_ns: int) -> WallTime | None:
    """Returns how a run spent its wall time; None if its steps are not timed."""
    ranks = summaries.ranks(STEP_SECONDS)
    total_seconds = run_seconds(run, now_ns)
    if not ranks or total_seconds <= 0:
        return None

    def total(key: str) -> float:
        return sum(summary.total for summary in summaries.logged(key, ranks[0]))

    steps, compiling = total(STEP_SECONDS), total(COMPILE_SECONDS)
    within_steps = {phase.phase: phase.share * steps for phase in phases_of(run, summaries)}
    evaluating, saving = within_steps.get("eval", 0.0), within_steps.get("checkpoint", 0.0)
    spent = {
        "startup": total(STARTUP_SECONDS) + _before_the_monitor(run, ranks[0]),
        "steps": max(steps - compiling - evaluating - saving, 0.0),
        "compilation": compiling,
        "evaluation": total(EVAL_GAP_SECONDS) + evaluating,
        "checkpoints": total(CHECKPOINT_GAP_SECONDS) + saving,
        "epoch_gaps": total(EPOCH_GAP_SECONDS),
        "ending": min(_after_the_last(run, summaries, ranks[0], now_ns), total_seconds),
    }
    if not all(map(math.isfinite, spent.values())):
        return None  # the user logged numbers under the keys that stepscope uses
    # In a loop that only logs, the first step began before anything was recorded.
    spent["steps"] = max(min(spent["steps"], total_seconds - sum(spent.values()) + spent["steps"]), 0.0)
    spent["unaccounted"] = max(total_seconds - sum(spent.values()), 0.0)
    parts = [
        TimePart(name, label, spent[name], spent[name] / total_seconds)
        for name, label in LABELS.items()
        if spent[name] > 0
    ]
    return WallTime(total_seconds, tuple(parts))


def large_share_of(run: Run, summaries: SeriesSummaries) -> LargeShare | None:
    """Returns the largest part of the time that is not training, if it is large."""
    # Up to the last record, so that lists do not change while nothing arrives.
    ends = {
        segment.id: max((process.last_ns for process in segment.processes), default=0)
        for segment in run.segments
    }
    total_seconds = sum(segment_seconds(segment, ends[segment.id]) for segment in run.segments)
    ranks = summaries.ranks(STEP_SECONDS)
    if total_seconds < MIN_SECONDS or not ranks:
        return None
    seconds = {key: sum(process.total for process in summaries.logged(key, ranks[0])) for key in SHARE_TEXTS}
    key = max(seconds, key=lambda key: seconds[key])
    share = seconds[key] / total_seconds
    if not LARGE <= share <= 1:
        return None
    return LargeShare(share, f"{percent(share)} of wall time is {SHARE_TEXTS[key]}")


def _before_the_monitor(run: Run, rank: int) -> float:
    """Returns the seconds from the start of the launcher to the start of training: imports, mostly."""
    seconds = 0.0
    for segment in run.segments:
        began_ns = [
            process.started_ns
            for process in segment.processes
            if process.role == "rank" and process.rank == rank
        ]
        if began_ns and any(process.role == "launcher" for process in segment.processes):
            seconds += max(min(began_ns) - segment.started_ns, 0) / 1e9
    return seconds


def _after_the_last(run: Run, summaries: SeriesSummaries, rank: int, now_ns: int) -> float:
    """Returns the seconds from the last timed event of each segment to its end, without checkpoints."""
    seconds = 0.0
    for segment in run.segments:
        timed = {
            key: [series for series in summaries.logged(key, rank) if series.source.segment == segment.id]
            for key in (STEP_SECONDS, *_GAPS)
        }
        saved = timed.pop(CHECKPOINT_GAP_SECONDS)
        last_ns = max(
            (series.last_ns for series_of_key in timed.values() for series in series_of_key), default=0
        )
        if last_ns:
            saving = sum(series.last or 0.0 for series in saved if series.last_ns > last_ns)
            seconds += max(
                segment_seconds(segment, now_ns) - (last_ns - segment.started_ns) / 1e9 - saving, 0.0
            )
    return seconds
