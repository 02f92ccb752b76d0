"""Judges recorded gradient norms: not finite, exploding or vanishing, and in which layers.

- not_finite: a norm is NaN or infinite.
- exploding: more than 100 times the median of the last 100 norms of the same layer, or of the whole; while
  there are fewer than ten to compare with, more than 1e4.
- vanishing: less than 1e-7 times the norm of the layer's weights, three times running; less than 1e-7 where
  that norm is not known.

Plain numbers in, plain findings out: this runs wherever the numbers are at hand.
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
    """Where the normal ends."""

    explode_factor: float = 100.0
    """Exploding: so many times the median of what the layer had before."""

    explode_norm: float = 1e4
    """Exploding while there is too little to compare with: above this norm."""

    least_history: int = 10
    """So many earlier norms are enough to compare with."""

    vanish_ratio: float = 1e-7
    """Vanishing: below this share of the norm of the layer's weights."""

    persistence: int = 3
    """Vanishing: so many times running. Layers that start at zero have no gradient at first."""


@dataclass(frozen=True)
class GradientFinding:
    """One thing that is wrong with the gradients."""

    kind: Literal["not_finite", "exploding", "vanishing"]
    layer: str | None
    """The layer to look at first; None when only the model as a whole is concerned.

    Of those not finite the first in the order of registration, else the one that is furthest off.
    """

    layers: tuple[str, ...]
    """All layers concerned, in the order of registration."""

    norm: float
    limit: float | None
    """The bound that `norm` is beyond; None where there is none, as for what is not finite."""

    sentence: str


class GradientHistory:
    """The norms seen so far, the newest hundred of each layer; those that are not finite are left out."""

    def __init__(self, length: int = 100) -> None:
        self._length = length
        self._in_order: dict[str, deque[float]] = {}
        self._by_size: dict[str, list[float]] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """Takes the norms among these figures."""
        for key, norm in figures.items():
            if (key == GRADIENT_NORM or key.startswith(_LAYER)) and math.isfinite(norm):
                self._add(key, norm)

    def median(self, key: str, least: int) -> float | None:
        """The median of the norms under a key; None when there are fewer than `least`."""
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
    """Says what is wrong with the gradients of one step, given those before it.

    `figures` are named as they are recorded: `gradient_norm`, `gradient_norm/<layer>`, and, where known,
    `weight_norm/<layer>`. A step that a loss scaler left out (`gradient_step_skipped`) has nothing wrong: an
    overflow is how the scaler finds its scale. `history` is left as it is; add the figures to it afterwards.
    """
    if figures.get(SKIPPED, 0.0) > 0:
        return []
    limits = thresholds or Thresholds()
    found = _not_finite(figures) or _exploding(figures, history, limits)
    vanishing = _vanishing(figures, history, limits)
    return [one for one in (found, vanishing) if one is not None]


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
    if len(bad) == 1:
        said = f"The gradient of {bad[0]} is not finite."
    elif len(bad) == len(norms):
        said = "The gradients of all layers are not finite: the loss itself is the first to look at."
    else:
        # Backward passes come from the end: what goes wrong there spreads towards the first layer.
        said = (
            f"The gradients of {len(bad)} of {len(norms)} layers are not finite, from {bad[0]} to {bad[-1]}; "
            f"a backward pass reaches {bad[-1]} first."
        )
    return GradientFinding("not_finite", bad[0], bad, norms[bad[0]], None, said)


def _exploding(
    figures: Mapping[str, float], history: GradientHistory, limits: Thresholds
) -> GradientFinding | None:
    beyond: dict[str, tuple[float, float]] = {}
    for key, norm in figures.items():
        if key == GRADIENT_NORM or key.startswith(_LAYER):
            median = history.median(key, limits.least_history)
            limit = limits.explode_norm if median is None else limits.explode_factor * median
            # A layer that had no gradient at all begins to learn: from nothing, any factor is passed.
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
    said = f"The gradient norm of {layer or 'the model'} is {norm:.3g}, beyond {limit:.3g}."
    return GradientFinding("exploding", layer, layers, norm, limit, said)


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
        said = f"No layer gets a gradient to speak of; that of {worst} has the norm {norm:.3g}."
    else:
        said = (
            f"The gradient norm of {worst} is {norm:.3g}, below {limit:.3g}"
            f"{f', and {len(below) - 1} more layers are alike' if len(below) > 1 else ''}."
        )
    return GradientFinding("vanishing", worst, tuple(below), norm, limit, said)
