"""Compares the ranks of a run: which of them the others wait for, and what it is late with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import PHASES, device_key, phase_key
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS
from stepscope.steps.ranks.sharded import wait_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run

WARM_UP = 3
"""Steps left out at the beginning: each rank warms up in its own time."""


@dataclass(frozen=True)
class RankLateness:
    """The rank that comes last to where ranks exchange something."""

    rank: int
    seconds: float
    """How much later than the median of the others, in a median step."""
    phase: str
    """What takes it longer than it takes them."""
    phase_seconds: float
    """How much longer."""


def phase_medians(run: Run) -> dict[int, dict[str, float]]:
    """The median seconds of each phase, rank by rank, less what a rank waits for others within it.

    Where steps were timed on GPUs, it is their clock that counts: the host is ahead of them.
    """
    infos = {info.key: info for info in run.keys()}
    key_of = device_key if device_key("forward") in infos else phase_key
    waits = {phase: wait_key(phase) for phase in PHASES if wait_key(phase) in infos}
    if WAIT_SECONDS in infos and not waits:
        waits = {"backward": WAIT_SECONDS}
    medians: dict[int, dict[str, float]] = {}
    for rank in sorted(infos[key_of("forward")].ranks) if key_of("forward") in infos else ():
        medians[rank] = {
            phase: _median(run, rank, key_of(phase), waits.get(phase))
            for phase in PHASES
            if key_of(phase) in infos
        }
        if WAIT_SECONDS in infos:
            medians[rank]["wait"] = _median(run, rank, WAIT_SECONDS)
    return medians


def lateness(medians: Mapping[int, Mapping[str, float]]) -> RankLateness | None:
    """The late rank and what it is late with; None for one rank, or ranks that do not wait for each other."""
    waits = {rank: phases["wait"] for rank, phases in medians.items() if "wait" in phases}
    if len(waits) < 2:
        return None
    late = min(waits, key=lambda rank: waits[rank])
    others = [phases for rank, phases in medians.items() if rank != late]
    seconds = float(np.median([phases["wait"] for phases in others])) - waits[late]
    excess = {
        phase: medians[late][phase] - float(np.median([phases[phase] for phases in others]))
        for phase in medians[late]
        if phase != "wait"
    }
    phase = max(excess, key=lambda name: excess[name])
    return RankLateness(late, seconds, phase, excess[phase])


def _median(run: Run, rank: int, key: str, wait: str | None = None) -> float:
    """The median of a key; where a rank waits in it, of what is left of each step without that."""
    points = run.series(key, rank, device="")
    values = points.values
    if wait is not None:
        waited = run.series(wait, rank, device="")
        by_step = dict(zip(waited.steps.tolist(), waited.values.tolist(), strict=True))
        values = values - [by_step.get(step, 0.0) for step in points.steps.tolist()]
    return float(np.median(values[WARM_UP:])) if len(points) > WARM_UP else 0.0
