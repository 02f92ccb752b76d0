"""Adds up the time of each phase as rows come in, for those who sum it up while a run is live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stepscope.schema.keys import PHASES, SAMPLED_RATIO, STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

BETWEEN_STEPS = ("checkpoint", "eval")
"""Phases that also happen between two steps; then they are rows of their own."""


class PhaseTimes:
    """Divides the time of all steps of a rank among phases, most of which are timed in some steps only."""

    def __init__(self) -> None:
        self._weighted: dict[str, float] = {}
        """Time in the sampled steps, each multiplied by the number of steps it stands for."""
        self._always_timed = set(BETWEEN_STEPS)
        self._undivided_s = 0.0
        """Time of steps before the first sampled one."""

    def added(self, columns: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
        """Returns the seconds of each phase in more rows."""
        is_step = STEP_SECONDS in columns
        self._undivided_s += _sum(columns[STEP_SECONDS]) if is_step else 0.0
        ratios = columns.get(SAMPLED_RATIO)
        seconds: dict[str, float] = {}
        for phase in PHASES:
            if (column := columns.get(phase_key(phase))) is None:
                continue
            if ratios is None:
                self._always_timed.add(phase)
                self._weighted.pop(phase, None)
            if ratios is None or phase in self._always_timed:
                seconds[phase] = _sum(column)
                self._undivided_s -= seconds[phase] if is_step or phase not in BETWEEN_STEPS else 0.0
            else:
                self._weighted[phase] = self._weighted.get(phase, 0.0) + _weighted_sum(column, ratios)
        if (together := sum(self._weighted.values())) > 0 and self._undivided_s > 0:
            # Not the weighted times themselves: few sampled steps may stand for too many or too few others.
            left_s, self._undivided_s = self._undivided_s, 0.0
            seconds |= {phase: left_s * part / together for phase, part in self._weighted.items()}
        return seconds


def _sum(values: NDArray[np.float64]) -> float:
    return float(values[np.isfinite(values)].sum())


def _weighted_sum(values: NDArray[np.float64], ratios: NDArray[np.float64]) -> float:
    is_known = ratios > 0
    return _sum(values[is_known] / ratios[is_known])
