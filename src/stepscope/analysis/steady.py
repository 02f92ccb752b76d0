"""Finds the steady steps of a rank: timed, after the warm-up, without compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.analysis.change_points import warm_up_length
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.window import Column, Flags

SHORTEST_S = 1e-9
"""A step of this length or less was not timed."""

COMPILED = ("compile/seconds", "compile/frames")


class Steadiness(NamedTuple):
    """Which steps are steady, and how many were left out as warm-up or for compilation."""

    steady: Flags
    warm_up: int
    compiled: int


def steadiness_of(columns: Mapping[str, Column], count: int, *, is_whole: bool) -> Steadiness:
    """Finds the steady steps of a window; it has a warm-up only if it holds the beginning of a segment."""
    steady = np.ones(count, bool)
    compiled = np.zeros(count, bool)
    for key in COMPILED:
        if key in columns:
            compiled |= columns[key].finite & (columns[key].values > 0)
    timed = columns.get(STEP_SECONDS)
    warm_up = 0
    if timed is not None:
        steady = timed.finite & (timed.values > SHORTEST_S)
        places = np.flatnonzero(steady & ~compiled)
        if is_whole:
            skipped = warm_up_length(timed.values[places])
            if skipped:
                warm_up = int(places[skipped])
    steady &= ~compiled
    steady[:warm_up] = False
    return Steadiness(steady, warm_up, int(compiled[warm_up:].sum()))
