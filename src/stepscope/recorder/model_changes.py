"""Detects whether a model that is passed with each step is trained in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stepscope.errors import RecorderError
from stepscope.guard import shown

if TYPE_CHECKING:
    from stepscope.guard import Guard

MAX_STEPS = 8
"""A model that does not change in this many steps is not trained here."""

PLAIN = (int, float, complex, str, bytes, list, tuple, dict, set)
"""Types that are not models of any library."""


class ModelChanges:
    """Compares a model from step to step until a parameter has changed.

    Steps of a watched model end when an optimizer has stepped. For a loop that passes a model but does not
    train it, such as one that replays a log, steps must still be counted by its log calls.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._steps = 0
        self._version: int | None = None
        self.has_changed = False
        """Whether a parameter has changed between two steps."""
        self.optimizer: Any = None
        """The optimizer that was passed with the model, if it has a `step` method."""

    def follow(self, model: Any, optimizer: Any) -> bool:
        """Compares the model with the last step; returns False if no further step has to be compared."""
        try:
            return self._follow(model, optimizer)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of the user's own may raise anything
            self._guard.complain("watch", f"The model is not watched: {shown(error)}", error)
            return False

    def _follow(self, model: Any, optimizer: Any) -> bool:
        if isinstance(model, PLAIN):
            message = f"model is {shown(model)}; expected a torch.nn.Module. It is not watched."
            self._guard.complain("watch", message)
            return False
        torch = sys.modules.get("torch.nn")
        # A model of another library is not a mistake.
        if torch is None or not isinstance(model, torch.Module) or self._steps >= MAX_STEPS:
            return False
        self._steps += 1
        trainable = (parameter for parameter in model.parameters() if parameter.requires_grad)
        parameter = next(trainable, None)
        version = None if parameter is None else parameter._version  # noqa: SLF001 - PyTorch's version counter
        self.has_changed = self._version is not None and version != self._version
        self._version = version
        self.optimizer = optimizer if hasattr(optimizer, "step") else None
        return not self.has_changed
