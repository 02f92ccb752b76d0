"""Follows gradient norms as they arrive, which from a GPU is steps later, and tells when they are unwell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stepscope.model_stats.gradient_health import (
    WEIGHT_NORM,
    GradientFinding,
    GradientHistory,
    Thresholds,
    judge,
)
from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.model_stats.metric_sink import Events

QUIET = 50
"""What is found again is told again only when it was not found in so many looks."""


class Verdicts:
    """What was seen so far, and what was told of it."""

    def __init__(self, tell: Events, thresholds: Thresholds | None = None) -> None:
        self.history = GradientHistory()
        self._tell = tell
        self._thresholds = thresholds or Thresholds()
        self._weights: dict[str, float] = {}
        self._looks = 0
        self._seen_at: dict[str, int] = {}

    def weights(self, figures: Mapping[str, float]) -> None:
        """Takes norms of weights, against which gradients are small or not."""
        self._weights = {key: norm for key, norm in figures.items() if key.startswith(f"{WEIGHT_NORM}/")}

    def arrived(self, keys: Sequence[str], numbers: Sequence[float], step: int, *, thorough: bool) -> None:
        """Takes the figures of a step; layers are gone through if asked, or if the whole is unusual."""
        self._looks += 1
        if thorough or not self._is_usual(numbers[0]):
            figures = dict(zip(keys, numbers, strict=True))
            for finding in judge({**figures, **self._weights}, self.history, self._thresholds):
                self._tell_once(finding, step)
            self.history.add(figures)
        else:
            self.history.add({GRADIENT_NORM: numbers[0]})

    def _is_usual(self, total: float) -> bool:
        limits = self._thresholds
        median = self.history.median(GRADIENT_NORM, limits.least_history)
        limit = limits.explode_norm if median is None else limits.explode_factor * median
        return math.isfinite(total) and total <= limit

    def _tell_once(self, finding: GradientFinding, step: int) -> None:
        before, self._seen_at[finding.kind] = self._seen_at.get(finding.kind), self._looks
        if before is None or self._looks - before > QUIET:
            self._tell(
                f"gradient_{finding.kind}",
                step=step,
                layer=finding.layer,
                layers=len(finding.layers),
                norm=finding.norm,
                limit=finding.limit,
                sentence=finding.sentence,
            )
