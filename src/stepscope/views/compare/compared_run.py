"""The steps and sums of a run as they are shown and compared, without the warm-up or with it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.change_points import warm_up_length
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.steps.step_values import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.store.base import SeriesSummary
    from stepscope.views.run_context import RunContext

    Floats = NDArray[np.float64]

MAX_SHARE = 5
"""The warm-up is looked for in such a part of a run, and is at most half of that: a loader that was mended
half-way was no warm-up."""

MAX_LOOKED_AT = 20_000
MAX_RANKS = 4
"""Ranks whose warm-up is added up step by step; the others do the same steps."""


class ComparedRun:
    """What figures are made of."""

    def __init__(self, context: RunContext, *, with_warm_up: bool = False) -> None:
        self.context, self._with_warm_up = context, with_warm_up

    @functools.cached_property
    def left_out(self) -> int:
        """How many of its first steps do not count."""
        first = self.context.of_first_rank
        if first is None or self._with_warm_up:
            return 0
        head = first.values[: min(len(first) // MAX_SHARE, MAX_LOOKED_AT)]
        return max(warm_up(len(first)), warm_up_length(head))

    @property
    def seconds(self) -> Floats:
        """How long the steps of its first rank took, those that count."""
        first = self.context.of_first_rank
        return np.empty(0) if first is None else first.values[self.left_out :]

    @functools.cached_property
    def summaries(self) -> SeriesSummaries:
        """Its series in a few numbers each; sums are of the steps that count."""
        first = self.context.of_first_rank
        if first is None or not self.left_out:
            return self.context.summaries
        run = self.context.run
        return _Steady(run, run.summaries(), int(first.steps[0]), int(first.steps[self.left_out - 1]))


class _Steady(SeriesSummaries):
    """Sums without some of the first steps."""

    def __init__(self, run: Run, summaries: Iterable[SeriesSummary], first: int, last: int) -> None:
        super().__init__(summaries)
        self._run, self._first, self._last = run, first, last
        self._totals: dict[str, tuple[float, int]] = {}

    def total(self, key: str) -> tuple[float, int]:
        if key not in self._totals:
            self._totals[key] = self._counted(key)
        return self._totals[key]

    def _counted(self, key: str) -> tuple[float, int]:
        whole, count = super().total(key)
        ranks = self.ranks(key)
        asked = ranks[:MAX_RANKS]
        early = [self._early(key, rank) for rank in asked]
        for_all = len(ranks) / max(len(asked), 1)
        left = count - round(for_all * sum(points for _, points in early))
        return max(whole - for_all * sum(total for total, _ in early), 0.0), max(left, 0)

    def _early(self, key: str, rank: int) -> tuple[float, int]:
        """The sum of a rank's finite values at the steps that do not count, and their number."""
        low, high = self._first, self._last
        found = self._run.buckets(key, MAX_LOOKED_AT, low=low, high=high, rank=rank, device="", axis="step")
        finite = found.count - found.nonfinite
        return float((found.mean[finite > 0] * finite[finite > 0]).sum()), int(finite.sum())
