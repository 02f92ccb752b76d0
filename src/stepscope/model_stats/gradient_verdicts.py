"""Checks gradient norms as they arrive, which may be some steps later, and reports problems as events."""

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
"""A repeated problem is reported again only after this many samples without it."""


class Verdicts:
    """The norms so far, and the problems that were reported."""

    def __init__(self, record_event: Events, thresholds: Thresholds | None = None) -> None:
        self.history = GradientHistory()
        self._record_event = record_event
        self._thresholds = thresholds or Thresholds()
        self._weights: dict[str, float] = {}
        self._samples = 0
        self._last_seen: dict[str, int] = {}

    def weights(self, figures: Mapping[str, float]) -> None:
        """Sets the norms of weights, which gradients are compared with."""
        self._weights = {key: norm for key, norm in figures.items() if key.startswith(f"{WEIGHT_NORM}/")}

    def arrived(self, keys: Sequence[str], numbers: Sequence[float], step: int, *, thorough: bool) -> None:
        """Adds the values of a step; layers are checked if `thorough`, or if the total is unusual."""
        self._samples += 1
        if thorough or not self._is_usual(numbers[0]):
            figures = dict(zip(keys, numbers, strict=True))
            for finding in judge({**figures, **self._weights}, self.history, self._thresholds):
                self._report_once(finding, step)
            self.history.add(figures)
        else:
            self.history.add({GRADIENT_NORM: numbers[0]})

    def _is_usual(self, total: float) -> bool:
        limits = self._thresholds
        median = self.history.median(GRADIENT_NORM, limits.least_history)
        limit = limits.explode_norm if median is None else limits.explode_factor * median
        return math.isfinite(total) and total <= limit

    def _report_once(self, finding: GradientFinding, step: int) -> None:
        before, self._last_seen[finding.kind] = self._last_seen.get(finding.kind), self._samples
        if before is None or self._samples - before > QUIET:
            self._record_event(
                f"gradient_{finding.kind}",
                step=step,
                layer=finding.layer,
                layers=len(finding.layers),
                norm=finding.norm,
                limit=finding.limit,
                sentence=finding.sentence,
            )
