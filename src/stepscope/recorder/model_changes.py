"""Finds out whether a model that is passed with each step is trained in this process."""

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
"""What no library's model is."""


class ModelChanges:
    """Compares a model from step to step until a parameter has changed.

    Steps of a watched model end when an optimizer has stepped. A loop that passes a model and never trains
    it, as one that replays a log does, must go on counting its calls.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._steps = 0
        self._version: int | None = None
        self.found = False
        """Whether a parameter has changed between two steps."""
        self.optimizer: Any = None
        """What was passed with the model, if it can step."""

    def follow(self, model: Any, optimizer: Any) -> bool:
        """Compares the model with the last step; False when no further step has to be compared."""
        try:
            return self._follow(model, optimizer)
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - a model of the user's own may raise anything
            self._guard.complain("watch", f"The model is not watched: {shown(error)}", error)
            return False

    def _follow(self, model: Any, optimizer: Any) -> bool:
        if isinstance(model, PLAIN):
            wrong = f"model is {shown(model)}; expected a torch.nn.Module. It is not watched."
            self._guard.complain("watch", wrong)
            return False
        torch = sys.modules.get("torch.nn")
        # A model of another library is nobody's mistake.
        if torch is None or not isinstance(model, torch.Module) or self._steps >= MAX_STEPS:
            return False
        self._steps += 1
        parameter = next((each for each in model.parameters() if each.requires_grad), None)
        version = None if parameter is None else parameter._version  # noqa: SLF001 - PyTorch's own count
        self.found = self._version is not None and version != self._version
        self._version = version
        self.optimizer = optimizer if hasattr(optimizer, "step") else None
        return not self.found
