"""Checks recorded gradient norms: whether they are non-finite, exploding or vanishing, and in which layers.

- not_finite: a norm is NaN or infinite.
- exploding: more than 100 times the median of the last 100 norms of the same layer or model; above 1e4 while
  there are fewer than ten norms to compare with.
- vanishing: less than 1e-7 times the norm of the layer's weights, three times in a row; less than 1e-7 if
  that norm is not known.

It needs only numbers, so it can also be applied to recorded runs.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHT_NORM = "weight_norm"
SKIPPED = "gradient_step_skipped"

_LAYER = f"{GRADIENT_NORM}/"


@dataclass(frozen=True)
class Thresholds:
    """The limits of normal gradients."""

    explode_factor: float = 100.0
    """Exploding: above this multiple of the median of the layer's earlier norms."""

    explode_norm: float = 1e4
    """Exploding while the history is too short: above this norm."""

    least_history: int = 10
    """Minimum number of earlier norms to compare with."""

    vanish_ratio: float = 1e-7
    """Vanishing: below this share of the norm of the layer's weights."""

    persistence: int = 3
    """Vanishing: this many times in a row. Layers initialised to zero have no gradient in the first steps."""


@dataclass(frozen=True)
class GradientFinding:
    """One problem with the gradients."""

    kind: Literal["not_finite", "exploding", "vanishing"]
    layer: str | None
    """The layer to check first; None if only the model as a whole is affected.

    For non-finite norms it is the first in registration order, unless all are affected; else the one furthest
    beyond its limit.
    """

    layers: tuple[str, ...]
    """All affected layers, in registration order."""

    norm: float
    limit: float | None
    """The limit that `norm` exceeds or falls below; None for non-finite norms."""

    sentence: str


class GradientHistory:
    """The newest hundred norms of each layer, without non-finite ones."""

    def __init__(self, length: int = 100) -> None:
        self._length = length
        self._in_order: dict[str, deque[float]] = {}
        self._by_size: dict[str, list[float]] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """Adds the norms among these values."""
        for key, norm in figures.items():
            if (key == GRADIENT_NORM or key.startswith(_LAYER)) and math.isfinite(norm):
                self._add(key, norm)

    def median(self, key: str, least: int) -> float | None:
        """The median of the norms of a key; None if there are fewer than `least`."""
        sizes = self._by_size.get(key, ())
        return sizes[len(sizes) // 2] if len(sizes) >= max(least, 1) else None

    def stayed_below(self, key: str, limit: float, times: int) -> bool:
        """Whether the newest `times` norms were all below a limit."""
        norms = self._in_order.get(key, ())
        newest = list(norms)[-times:] if times else []
        return len(newest) == times and all(norm < limit for norm in newest)

    def _add(self, key: str, norm: float) -> None:
        in_order = self._in_order.setdefault(key, deque())
        by_size = self._by_size.setdefault(key, [])
        if len(in_order) == self._length:
            del by_size[bisect.bisect_left(by_size, in_order.popleft())]
        in_order.append(norm)
        bisect.insort(by_size, norm)


def judge(
    figures: Mapping[str, float],
    history: GradientHistory,
    thresholds: Thresholds | None = None,
) -> list[GradientFinding]:
    """Finds the problems with the gradients of one step, given the earlier ones.

    `figures` uses the recorded keys: `gradient_norm`, `gradient_norm/<layer>` and, if known,
    `weight_norm/<layer>`. A step that a loss scaler skipped (`gradient_step_skipped`) has no problems:
    overflows are how the scaler finds its scale. `history` is not changed; add the values to it afterwards.
    """
    if figures.get(SKIPPED, 0.0) > 0:
        return []
    limits = thresholds or Thresholds()
    too_large = _not_finite(figures) or _exploding(figures, history, limits)
    vanishing = _vanishing(figures, history, limits)
    return [finding for finding in (too_large, vanishing) if finding is not None]


def _layers(figures: Mapping[str, float]) -> dict[str, float]:
    return {key.removeprefix(_LAYER): norm for key, norm in figures.items() if key.startswith(_LAYER)}


def _not_finite(figures: Mapping[str, float]) -> GradientFinding | None:
    norms = _layers(figures)
    bad = tuple(layer for layer, norm in norms.items() if not math.isfinite(norm))
    total = figures.get(GRADIENT_NORM, 0.0)
    if not bad and math.isfinite(total):
        return None
    if not bad:
        return GradientFinding("not_finite", None, (), total, None, f"The gradient norm is {total}.")
    if 1 < len(bad) == len(norms):
        sentence = "The gradients of all layers are not finite. Check the loss first."
        return GradientFinding("not_finite", None, bad, total, None, sentence)
    if len(bad) == 1:
        sentence = f"The gradient of {bad[0]} is not finite."
    else:
        # Backward passes start at the last layer: errors there spread towards the first layer.
        sentence = (
            f"The gradients of {len(bad)} of {len(norms)} layers are not finite, from {bad[0]} to {bad[-1]}; "
            f"a backward pass reaches {bad[-1]} first."
        )
    return GradientFinding("not_finite", bad[0], bad, norms[bad[0]], None, sentence)


def _exploding(
    figures: Mapping[str, float], history: GradientHistory, limits: Thresholds
) -> GradientFinding | None:
    beyond: dict[str, tuple[float, float]] = {}
    for key, norm in figures.items():
        if key == GRADIENT_NORM or key.startswith(_LAYER):
            median = history.median(key, limits.least_history)
            limit = limits.explode_norm if median is None else limits.explode_factor * median
            # A layer without gradients so far starts to learn: any norm is a large multiple of zero.
            if norm > limit > 0:
                beyond[key] = (norm, limit)
    if not beyond:
        return None
    layers = tuple(key.removeprefix(_LAYER) for key in beyond if key != GRADIENT_NORM)
    worst = max(
        (key for key in beyond if key != GRADIENT_NORM or not layers),
        key=lambda key: beyond[key][0] / beyond[key][1],
    )
    norm, limit = beyond[worst]
    layer = worst.removeprefix(_LAYER) if layers else None
    sentence = f"The gradient norm of {layer or 'the model'} is {norm:.3g}, above the limit of {limit:.3g}."
    return GradientFinding("exploding", layer, layers, norm, limit, sentence)


def _vanishing(
    figures: Mapping[str, float], history: GradientHistory, limits: Thresholds
) -> GradientFinding | None:
    below: dict[str, tuple[float, float]] = {}
    norms = _layers(figures)
    for layer, norm in norms.items():
        weight = figures.get(f"{WEIGHT_NORM}/{layer}")
        limit = limits.vanish_ratio * (weight if weight else 1.0)
        if norm < limit and history.stayed_below(f"{_LAYER}{layer}", limit, limits.persistence - 1):
            below[layer] = (norm, limit)
    if not below:
        return None
    worst = min(below, key=lambda layer: below[layer][0] / below[layer][1])
    norm, limit = below[worst]
    if len(below) == len(norms):
        sentence = f"The gradients of all layers have vanished; the gradient norm of {worst} is {norm:.3g}."
    else:
        sentence = (
            f"The gradient norm of {worst} is {norm:.3g}, below the limit of {limit:.3g}"
            f"{f'; so are {len(below) - 1} more layers' if len(below) > 1 else ''}."
        )
    return GradientFinding("vanishing", worst, tuple(below), norm, limit, sentence)
