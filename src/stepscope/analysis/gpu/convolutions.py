"""Tells how much of a model is convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

CONVOLUTIONS = (
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
)


def convolution_share(setup: Mapping[str, Any], kinds: Collection[str]) -> float:
    """Returns the share of the parameters in layers of these classes, by the recorded setup."""
    layers: Mapping[str, int] = setup.get("layers") or {}
    together = sum(layers.values())
    return sum(layers.get(kind, 0) for kind in kinds) / together if together else 0.0
