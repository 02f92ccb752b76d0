"""Hears when optimizers step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Listener = Callable[[Any], None]


class OptimizerSteps:
    """Hooks on optimizers: after each step always, before it only while somebody wants to know.

    An optimizer must not get or lose hooks of a kind while it calls those, and a training step may end in the
    hook after the optimizer step. So that one stays, and the one before comes and goes.
    """

    def __init__(self, begins: Listener, ends: Callable[[Any, bool], None]) -> None:
        self._begins, self._ends = begins, ends
        self._register_before: list[Callable[[Any], Any]] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        self._depth = 0
        self._is_nested = False
        self._last: Any = None

    def add(self, optimizers: Sequence[Any]) -> None:
        """Hears of these; the last of them ends a step of the training."""
        self._last = optimizers[-1]
        for optimizer in optimizers:
            self._after.append(optimizer.register_step_post_hook(self._step_ends))
            self._register_before.append(optimizer.register_step_pre_hook)
        self._renew()

    def add_any(self) -> None:
        """Hears of whichever optimizer steps; each of them ends a step."""
        hooks = sys.modules["torch.optim.optimizer"]
        self._after.append(hooks.register_optimizer_step_post_hook(self._step_ends))
        self._register_before.append(hooks.register_optimizer_step_pre_hook)
        self._renew()

    def hear_beginnings(self, *, wanted: bool) -> None:
        """Whether to hear when an optimizer begins to step."""
        if wanted and not self._before:
            self._before = [register(self._step_begins) for register in self._register_before]
        elif not wanted and self._before and not self._is_nested:
            self._remove(self._before)

    def is_last(self, optimizer: Any) -> bool:
        """Whether the step of this optimizer ends a step of the training."""
        return self._last is None or optimizer is self._last

    def is_watching(self) -> bool:
        """Whether there are hooks."""
        return bool(self._after)

    def forget_depth(self) -> None:
        """A step that raised never said that it ended."""
        self._depth = 0

    def close(self) -> None:
        """Takes all hooks away."""
        self._is_nested = False
        self._remove(self._before)
        self._remove(self._after)
        self._register_before.clear()

    def _renew(self) -> None:
        if self._before:
            self._remove(self._before)
            self.hear_beginnings(wanted=True)

    def _remove(self, handles: list[Any]) -> None:
        while handles:
            handles.pop().remove()

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        # One that is derived from another has its hooks called again by the step of that one. It is then
        # followed from beginning to end for good, or each of its steps would be counted twice.
        self._depth += 1
        if self._depth == 1:
            self._begins(optimizer)
        else:
            self._is_nested = True

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._depth = 0
            self._ends(optimizer, self._last is None or optimizer is self._last)
