"""Compares the ranks of a run: which of them the others wait for, and what it is late with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepscope.steps.chain import PHASES, phase_key
from stepscope.steps.gradients_ready import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run

WARM_UP = 3
"""Steps left out at the beginning: each rank warms up in its own time."""


@dataclass(frozen=True)
class RankLateness:
    """The rank that comes last to the exchange of gradients."""

    rank: int
    seconds: float
    """How much later than the median of the others, in a median step."""
    phase: str
    """What takes it longer than it takes them."""
    phase_seconds: float
    """How much longer."""


def phase_medians(run: Run) -> dict[int, dict[str, float]]:
    """The median seconds of each phase, rank by rank; of the backward pass, a rank's own part."""
    ranks = sorted({rank for info in run.keys() if info.key == phase_key("forward") for rank in info.ranks})
    keys = {info.key for info in run.keys()}
    found = {}
    for rank in ranks:
        medians = {
            phase: _median(run, phase_key(phase), rank) for phase in PHASES if phase_key(phase) in keys
        }
        if WAIT_SECONDS in keys:
            medians["wait"] = _median(run, WAIT_SECONDS, rank)
            medians["backward"] -= medians["wait"]
        found[rank] = medians
    return found


def lateness(medians: Mapping[int, Mapping[str, float]]) -> RankLateness | None:
    """The late rank and what it is late with; None for one rank, or ranks that do not wait for each other."""
    waits = {rank: one["wait"] for rank, one in medians.items() if "wait" in one}
    if len(waits) < 2:
        return None
    late = min(waits, key=lambda rank: waits[rank])
    others = [one for rank, one in medians.items() if rank != late]
    seconds = float(np.median([one["wait"] for one in others])) - waits[late]
    excess = {
        phase: medians[late][phase] - float(np.median([one[phase] for one in others]))
        for phase in medians[late]
        if phase != "wait"
    }
    phase = max(excess, key=lambda name: excess[name])
    return RankLateness(late, seconds, phase, excess[phase])


def _median(run: Run, key: str, rank: int) -> float:
    values = run.series(key, rank, device="").values[WARM_UP:]
    return float(np.median(values)) if len(values) else 0.0
