"""Counts how many earlier losses still exist with their graphs, which a loop keeps by mistake."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.steps.phase_timer import PhaseTimer

MAX_NOTED = 16
"""Maximum number of losses that are remembered; then every other one is forgotten."""

OLD_STEPS = 20
"""A loss that exists for so many steps is kept: loops average over a few."""

MIN_OLD = 4


class KeptLosses:
    """A probe that holds weak references to the losses of phase-timed steps, all along the training."""

    def __init__(self, phase_timer: PhaseTimer) -> None:
        self._timer = phase_timer.timer
        phase_timer.on_backward = self.note
        self._noted: list[tuple[int, weakref.ref[Any]]] = []
        self._every = 1

    @never_compiled
    def note(self, tensors: Any) -> None:
        """Remembers what a backward pass begins with; called in phase-timed steps."""
        made = self._timer.steps_made
        if self._noted and made - self._noted[-1][0] < self._every:
            return
        tensor = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
        if getattr(tensor, "grad_fn", None) is None:
            return
        self._noted.append((made, weakref.ref(tensor)))
        if len(self._noted) > MAX_NOTED:
            self._noted = self._noted[::2]
            self._every *= 2

    def read(self, steps: int) -> Mapping[str, float]:
        """The share of the remembered losses that still exist with their graphs, after the first steps."""
        made = self._timer.steps_made
        old = [reference for noted_at, reference in self._noted if made - noted_at >= OLD_STEPS]
        if len(old) < MIN_OLD:
            return {}
        kept = sum(getattr(reference(), "grad_fn", None) is not None for reference in old)
        return {"losses/kept_ratio": kept / len(old)}

    def close(self) -> None:
        """Forgets all."""
        self._noted = []
