"""Compares the ranks of a run: which rank the others wait for, and which phase makes it late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.change_points import warm_up_length
from stepscope.schema.keys import PHASES, STEP_SECONDS, device_key, phase_key
from stepscope.steps.ranks.gradients_ready import WAIT_SECONDS
from stepscope.steps.ranks.sharded import wait_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run


@dataclass(frozen=True)
class RankLateness:
    """The rank that arrives last where ranks synchronize."""

    rank: int
    seconds: float
    """How much later than the median of the others it is, in a median step."""
    phase: str
    """The phase that takes this rank longer than the others."""
    phase_seconds: float
    """How much longer it takes."""


def phase_medians(run: Run) -> dict[int, dict[str, float]]:
    """Returns the median seconds of each phase by rank, without the time it waits for other ranks.

    GPU times are used where they were recorded, because the host runs ahead of the GPU. The warm-up of each
    rank is left out.
    """
    infos = {info.key: info for info in run.keys()}
    key_of = device_key if device_key("forward") in infos else phase_key
    waits = {phase: wait_key(phase) for phase in PHASES if wait_key(phase) in infos}
    if WAIT_SECONDS in infos and not waits:
        waits = {"backward": WAIT_SECONDS}
    medians: dict[int, dict[str, float]] = {}
    for rank in sorted(infos[key_of("forward")].ranks) if key_of("forward") in infos else ():
        times = _RankTimes(run, rank)
        medians[rank] = {
            phase: times.median(key_of(phase), waits.get(phase)) for phase in PHASES if key_of(phase) in infos
        }
        if WAIT_SECONDS in infos:
            medians[rank]["wait"] = times.median(WAIT_SECONDS)
    return medians


def lateness(medians: Mapping[int, Mapping[str, float]]) -> RankLateness | None:
    """Returns the late rank and its slow phase; None for one rank, or for ranks that do not wait."""
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


class _RankTimes:
    """Reads the times of one rank, without its warm-up."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run, self._rank = run, rank
        steps = run.series(STEP_SECONDS, rank, device="")
        skipped = warm_up_length(steps.values)
        self._begin = steps.steps[skipped] if len(steps) > skipped else 0

    def median(self, key: str, wait_key: str | None = None) -> float:
        """Returns the median of a key, minus the time that the rank waits within it."""
        points = self._run.series(key, self._rank, device="")
        values = points.values
        if wait_key is not None:
            waited = self._run.series(wait_key, self._rank, device="")
            by_step = dict(zip(waited.steps.tolist(), waited.values.tolist(), strict=True))
            values = values - [by_step.get(step, 0.0) for step in points.steps.tolist()]
        steady = values[points.steps >= self._begin]
        return float(np.median(steady)) if len(steady) else 0.0
