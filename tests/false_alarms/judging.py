"""Puts curves and whole runs through all detectors and default rules, as an agent does while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from stepscope.alerts.defaults import default_rules
from stepscope.alerts.run_watch import RunWatch
from stepscope.analysis.diagnose import Diagnostician
from stepscope.analysis.steady import steadiness_of
from stepscope.schema.finding import SEVERITIES
from stepscope.schema.series import Buckets, Source
from stepscope.schema.window import Column, RankWindow, Window
from tests.false_alarms.curves import Curve

SECOND = 1_000_000_000
BEGAN_S = 1_760_000_000
ROWS = 2048
LOUD = SEVERITIES[: SEVERITIES.index("warning") + 1]
"""What nobody wants to read of a healthy run."""

DIAGNOSTICIAN = Diagnostician({})


def findings_at(curve: Curve, ends: Iterable[int]) -> set[str]:
    """The loud findings there are when so many losses have been logged, each time in the newest window."""
    ids: set[str] = set()
    for end in ends:
        diagnosis = DIAGNOSTICIAN.examine(window_of(curve, end))
        ids.update(finding.id for finding in diagnosis.findings if finding.severity in LOUD)
    return ids


def window_of(curve: Curve, end: int) -> Window:
    """The newest losses of a curve as a window."""
    begin = max(end - ROWS, 0)
    steps = curve.steps[begin:end]
    columns = {
        "loss": _column(curve.loss[begin:end]),
        "gradient_norm": _column(curve.gradient_norm[begin:end]),
    }
    if curve.learning_rate is not None:
        columns["learning_rate"] = _column(curve.learning_rate[begin:end])
    steadiness = steadiness_of(columns, len(steps), is_whole=begin == 0)
    times = BEGAN_S + 0.25 * steps
    course = {} if begin == 0 else {"loss": _buckets(curve.loss[:end])}
    rank = RankWindow(0, "node", steps, times, columns, *steadiness, is_whole=begin == 0, course=course)
    return Window("run", "s1", (rank,))


def _buckets(values: np.ndarray, width: int = 32) -> Buckets:
    """A series as the store thins it."""
    starts = np.arange(0, len(values), width)
    parts = [values[start : start + width] for start in starts]
    figures = [
        np.array([made(part) for part in parts]) for made in (np.min, np.max, np.mean, lambda part: part[-1])
    ]
    return Buckets(
        width, starts, np.array(list(map(len, parts))), *figures, np.zeros_like(starts), starts * 0.25
    )


def _column(values: np.ndarray) -> Column:
    return Column(values, np.ones(len(values), bool), np.isfinite(values))


def alerts_of(curve: Curve, rows_at_once: int = 10, step_s: float = 0.25) -> set[str]:
    """The default rules that fire at any time while a curve is logged."""
    times_s = step_s * curve.steps
    keys = {"loss": curve.loss, "gradient_norm": curve.gradient_norm}
    return {
        one
        for one, _ in fired(
            watch(), Source("run", "s1", 0, "node", "", "step"), times_s, curve.steps, keys, rows_at_once
        )
    }


def watch() -> RunWatch:
    """The default rules, watching one run."""
    return RunWatch("run", default_rules(), name="healthy")


def fired(
    run: RunWatch,
    source: Source,
    times_s: np.ndarray,
    steps: np.ndarray,
    figures: dict[str, np.ndarray],
    rows_at_once: int,
) -> Iterator[tuple[str, int]]:
    """The rules that fire, and at which row."""
    values = np.column_stack(list(figures.values()))
    times_ns = (BEGAN_S * SECOND + times_s * SECOND).astype(np.int64)
    for begin in range(0, len(steps), rows_at_once):
        rows = slice(begin, begin + rows_at_once)
        run.history.add(source, list(figures), steps[rows], times_ns[rows], values[rows])
        for change in run.changes(int(times_ns[rows][-1])):
            if change.turn == "fires":
                run.fired(change, 1)
                yield change.rule.name, begin
