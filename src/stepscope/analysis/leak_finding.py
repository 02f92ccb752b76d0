"""Turns memory that grows into a finding: how fast, until when, and how much that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.memory_growth import MIN_READINGS, growth_of, horizon_s, leak_verdict, limit_of
from stepscope.analysis.trends import Slope
from stepscope.analysis.wording import percent
from stepscope.detectors.base import TooLittleEvidence
from stepscope.number_format import duration, size
from stepscope.schema.finding import Chart, Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.analysis.memory_growth import LeakVerdict
    from stepscope.detectors.base import Detector
    from stepscope.schema.finding import Remedy, Severity
    from stepscope.schema.window import Floats, MachineFigures, Window

SOON_S = 3600.0
"""A leak that fills the memory within this time is critical."""

CERTAIN_AFTER_S = 300.0
"""Growth observed for a shorter time may be a cache that fills in the first epoch."""

ENOUGH_SHARE = 0.01
"""Growth of this share of the limit is always enough."""

SPANS = 3
"""Growth is first judged by the medians of the first and the last third, which costs little."""


class Readings(NamedTuple):
    """The memory of a process or a GPU over time."""

    figures: MachineFigures
    """Whose memory it is."""
    times: Floats
    values: Floats
    steps: Floats | None
    name: str
    """How texts call this memory."""
    totals: Mapping[str, float]
    """Sizes of the memory that limits it, by key."""
    remedies: tuple[Remedy, ...]


def examine_growth(
    detector: Detector, window: Window, all_readings: Sequence[Readings], least_bytes: float
) -> Finding | str:
    """Returns a finding for the memory that will be full first, or a sentence that says why there is none."""
    enough = [readings for readings in all_readings if len(readings.times) >= MIN_READINGS]
    if not enough:
        most = max((len(readings.times) for readings in all_readings), default=0)
        return TooLittleEvidence(f"Needs at least {MIN_READINGS} readings of memory; {most} recorded.")
    verdicts = []
    for readings in enough:
        if _has_grown(readings, least_bytes):
            limit = limit_of(readings.figures.key, readings.totals)
            growth = growth_of(readings.times, readings.values, readings.steps)
            age_s = float(readings.times[-1] - readings.times[0])
            # One that has ended may be started again, for longer.
            horizon = horizon_s(age_s, window.remaining_s or None)
            verdict = leak_verdict(readings.figures, growth, limit, horizon)
            if growth.goes_on:
                verdicts.append((readings, verdict))
    if not verdicts:
        return (
            f"Memory does not grow steadily ({sum(len(part.times) for part in enough):,} readings checked)."
        )
    readings, verdict = min(verdicts, key=lambda pair: _urgency(pair[1]))
    return _finding(detector, window, readings, verdict)


def _has_grown(readings: Readings, least_bytes: float) -> bool:
    limit = limit_of(readings.figures.key, readings.totals)
    least = least_bytes if limit is None else min(least_bytes, ENOUGH_SHARE * limit.limit_bytes)
    values = readings.values[np.isfinite(readings.values)]
    first, *_, last = (np.median(part) for part in np.array_split(values, SPANS))
    # Between the middles of these thirds, a line rises by two thirds of its growth.
    return bool(last - first >= least * (SPANS - 1) / SPANS)


def _urgency(verdict: LeakVerdict) -> tuple[bool, float]:
    left_s = verdict.seconds_to_limit
    return not verdict.is_leak, np.inf if left_s is None else left_s


def _severity(verdict: LeakVerdict, observed_s: float) -> Severity:
    if verdict.is_leak is None:
        return "notice"
    if not verdict.is_leak:
        return "info"
    left_s = np.inf if verdict.seconds_to_limit is None else verdict.seconds_to_limit
    if observed_s < CERTAIN_AFTER_S:
        return "warning" if left_s <= CERTAIN_AFTER_S else "notice"
    return "critical" if left_s <= SOON_S else "warning"


def _finding(detector: Detector, window: Window, readings: Readings, verdict: LeakVerdict) -> Finding:
    growth, limit = verdict.growth, verdict.limit
    has_ended = window.remaining_s == 0
    severity = _severity(verdict, float(readings.times[-1] - readings.times[0]))
    per_hour = growth.per_hour or Slope(0.0, 0.0, 0.0)
    pace = f"{readings.name} grows by {size(per_hour.value)} per hour"
    left_s = verdict.seconds_to_limit
    if limit is None or left_s is None:
        outcome = "; no limit is known"
    elif verdict.is_leak and has_ended:
        outcome = f"; a longer run would have filled it after {duration(left_s)} more"
    elif verdict.is_leak:
        outcome = f" and will be full in {duration(left_s)}"
    else:
        outcome = f", and {percent(verdict.projected_ratio or 0.0)} of it will be in use at the end"
    interval = f"{size(per_hour.low)} to {size(per_hour.high)} at 99%"
    evidence = [
        Evidence("growth per hour", size(per_hour.value), interval),
        Evidence("in use", size(growth.level_bytes), f"after {growth.readings} readings"),
    ]
    if growth.per_thousand_steps is not None:
        evidence.append(Evidence("growth in 1,000 steps", size(growth.per_thousand_steps.value)))
    if limit is not None:
        evidence.append(Evidence("limit", size(limit.limit_bytes), f"memory of the {limit.whose}"))
    return Finding(
        id=detector.id,
        title=detector.title,
        headline=f"{pace}{outcome}.",
        detail="Memory that is never freed ends in an out of memory error, or the kernel kills the process.",
        # Memory was enough for a run that has ended.
        severity="notice" if has_ended and severity != "info" else severity,
        confidence=0.95,
        first_time=float(readings.times[0]),
        last_time=float(readings.times[-1]),
        rank=verdict.rank if len(window.ranks) > 1 else None,
        device=verdict.device,
        evidence=tuple(evidence),
        chart=Chart((verdict.key,)),
        ruled_out=(
            "Caches that fill: growth does not slow down.",
            "Jumps, as when a new phase begins: a line fits the readings better.",
        ),
        remedies=readings.remedies,
        tries=("look for what is kept between steps",),
        how="Theil-Sen line through the lower quartiles of blocks of readings, compared with the size of the "
        "memory and the time that the run will still take.",
    )
