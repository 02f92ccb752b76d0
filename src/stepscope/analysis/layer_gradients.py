"""Reads the gradient norms of layers, and the norms of the weights they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, Ints, RankWindow

OF_LAYERS = f"{GRADIENT_NORM}/*"

WEIGHT_NORM, WEIGHT_NORMS = "weight_norm", "weight_norm/*"

UPDATE_RATIO = "update_ratio"

CLIP_LIMIT = "gradient_clip_limit"
"""The greatest norm that gradients keep when they are clipped."""

UNCHANGED = 1e-3
"""Weights that all updates together have changed by less than this share have learned nothing."""

FEW_STEPS = 20
"""Layers that begin at zero have no gradient in the first few steps."""


class LayerGradients(NamedTuple):
    """The gradient norms of all layers at the steps where all of them were recorded."""

    names: list[str]
    """In the order of the model."""
    steps: Ints
    norms: Floats
    """One row for each step, one column for each layer."""
    weights: Floats
    """The newest norm of the weights of each layer; NaN where it is not known."""

    @property
    def is_beyond_start(self) -> bool:
        """Whether there are three samples, and the last is not of the first steps."""
        return len(self.steps) >= 3 and int(self.steps[-1]) - int(self.steps[0]) >= FEW_STEPS


def layer_gradients(rank: RankWindow) -> LayerGradients | None:
    """Returns the norms of the window; None without any."""
    columns = rank.below(GRADIENT_NORM)
    if not columns:
        return None
    chosen = np.logical_and.reduce([column.finite for column in columns.values()])
    if not chosen.any():
        return None
    weights = rank.below(WEIGHT_NORM)
    newest = [_newest(weights[name].values) if name in weights else np.nan for name in columns]
    norms = np.array([column.values[chosen] for column in columns.values()]).T
    return LayerGradients(list(columns), rank.steps[chosen], norms, np.array(newest))


def largest_change(rank: RankWindow) -> float | None:
    """Returns the share of the weights that all steps can have changed; None where it is not known."""
    column = rank.columns.get(UPDATE_RATIO)
    if column is None or not column.finite.any() or not rank.is_whole:
        return None
    return float(column.values[column.finite].max()) * (int(rank.steps[-1]) + 1)


def newest_value(rank: RankWindow, key: str) -> float | None:
    """Returns the newest finite value of a key; None without any."""
    column = rank.columns.get(key)
    value = np.nan if column is None else _newest(column.values)
    return value if np.isfinite(value) else None


def quoted(names: list[str], most: int = 3) -> str:
    """Lists layers: `a`, `b`, `c` and 4 more."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _newest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else np.nan
