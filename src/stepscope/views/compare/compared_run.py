"""The steps and sums of a compared run, with or without the warm-up."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from stepscope.analysis.change_points import MAX_WARM_UP_STEPS, warm_up_length
from stepscope.views.metrics.series_summaries import SeriesSummaries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from stepscope.reading import Run
    from stepscope.store.base import SeriesSummary
    from stepscope.views.run_context import RunContext

    Floats = NDArray[np.float64]

MAX_RANKS = 4
"""Maximum number of ranks whose warm-up is read; the other ranks do the same steps."""


class ComparedRun:
    """The steps and series of a run that its figures are computed from."""

    def __init__(self, context: RunContext, *, with_warm_up: bool = False) -> None:
        self.context, self._with_warm_up = context, with_warm_up

    @functools.cached_property
    def left_out(self) -> int:
        """The number of first steps that are left out."""
        first = self.context.first_rank_seconds
        if first is None or self._with_warm_up:
            return 0
        return warm_up_length(first.values)

    @property
    def seconds(self) -> Floats:
        """The step times of the first rank, without the warm-up."""
        first = self.context.first_rank_seconds
        return np.empty(0) if first is None else first.values[self.left_out :]

    @functools.cached_property
    def summaries(self) -> SeriesSummaries:
        """The summaries of its series; their totals leave out the warm-up."""
        first = self.context.first_rank_seconds
        if first is None or not self.left_out:
            return self.context.summaries
        run = self.context.run
        return _WithoutWarmUp(run, run.summaries(), int(first.steps[0]), int(first.steps[self.left_out - 1]))


class _WithoutWarmUp(SeriesSummaries):
    """Summaries whose totals leave out the first steps."""

    def __init__(self, run: Run, summaries: Iterable[SeriesSummary], first: int, last: int) -> None:
        super().__init__(summaries)
        self._run, self._first, self._last = run, first, last
        self._totals: dict[str, tuple[float, int]] = {}

    def total(self, key: str) -> tuple[float, int]:
        if key not in self._totals:
            self._totals[key] = self._total_without_warm_up(key)
        return self._totals[key]

    def _total_without_warm_up(self, key: str) -> tuple[float, int]:
        whole, count = super().total(key)
        ranks = self.ranks(key)
        sampled_ranks = ranks[:MAX_RANKS]
        warm_up_totals = [self._warm_up_total(key, rank) for rank in sampled_ranks]
        scale = len(ranks) / max(len(sampled_ranks), 1)
        remaining = count - round(scale * sum(points for _, points in warm_up_totals))
        return max(whole - scale * sum(total for total, _ in warm_up_totals), 0.0), max(remaining, 0)

    def _warm_up_total(self, key: str, rank: int) -> tuple[float, int]:
        """Returns the sum and number of a rank's finite values in the warm-up."""
        low, high = self._first, self._last
        buckets = self._run.buckets(
            key, MAX_WARM_UP_STEPS, low=low, high=high, rank=rank, device="", axis="step"
        )
        finite = buckets.count - buckets.nonfinite
        return float((buckets.mean[finite > 0] * finite[finite > 0]).sum()), int(finite.sum())
