"""Finds out whether a model that is handed over with a step is really trained in this process."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

MOST_STEPS = 8
"""A model that does not change in so many steps is not trained here."""


class Acquaintance:
    """A model that comes with each step, until it is clear what becomes of it.

    Steps of a watched model end when an optimizer has stepped. A loop that hands one over and never trains
    it, as one that replays a log does, must go on counting its calls.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._version: int | None = None
        self.trains = False
        """Whether somebody has changed a parameter of the model between two steps."""

    def goes_on_with(self, model: Any) -> bool:
        """Takes in a step; whether the next one may tell more."""
        torch = sys.modules.get("torch.nn")
        if torch is None or not isinstance(model, torch.Module) or self._steps >= MOST_STEPS:
            return False
        self._steps += 1
        with contextlib.suppress(Exception):  # a model of the user's own may raise anything
            parameter = next((one for one in model.parameters() if one.requires_grad), None)
            version = None if parameter is None else parameter._version  # noqa: SLF001 - torch's own count
            self.trains = self._version is not None and version != self._version
            self._version = version
        return not self.trains
