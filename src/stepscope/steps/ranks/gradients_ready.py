"""Notes when the last gradient of a rank is ready, to tell its own work from waiting for other ranks."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.steps.phase_timer import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.steps.phase_timer import PhaseTimer

WAIT_SECONDS = "ranks/wait_seconds"
"""What is left of the backward pass after a rank's own last gradient: it waits for the others' to arrive.

Ranks leave that wait together, so the one that comes last waits least. No clocks need to agree for that.
"""


class RankWait(Protocol):
    """Measures how long a rank waits for others, in the steps that are timed phase by phase."""

    def attach(self) -> None:
        """Such a step begins."""

    def detach(self) -> None:
        """Leaves the training alone until the next one."""

    def after_step(self) -> Mapping[str, float]:
        """The waits of the step that has just ended."""


class GradientsReady:
    """Watches the first parameters of a model, whose gradients are the last to be computed.

    A GPU computes them after the host has gone on, and waits for other ranks where the host does not. So it
    is the clock of the GPU that tells, in the steps that are timed by it.
    """

    def __init__(self, model: Any, chain: PhaseTimer) -> None:
        self._chain = chain
        self._ready_ns = 0
        inner = getattr(model, "module", model)
        self._first = [one for one in inner.parameters() if one.requires_grad][:2]
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Puts hooks on the parameters."""
        if not self._handles:
            note = self._mark if any(one.is_cuda for one in self._first) else self._note
            self._handles = [one.register_hook(note) for one in self._first]

    def detach(self) -> None:
        """Takes the hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def after_step(self) -> Mapping[str, float]:
        """How long the backward pass went on after the last gradient was ready."""
        ended_ns, ready_ns, self._ready_ns = self._chain.left_ns(BACKWARD), self._ready_ns, 0
        if not ready_ns or ended_ns < ready_ns:
            return {}
        return {WAIT_SECONDS: (ended_ns - ready_ns) * 1e-9}

    def _note(self, _: Any) -> None:
        self._ready_ns = monotonic_ns()

    def _mark(self, _: Any) -> None:
        device = self._chain.device
        if device is not None:
            device.mark_ready()


def is_distributed(model: Any) -> bool:
    """Whether a model exchanges gradients with other ranks within its backward pass."""
    return type(model).__name__ == "DistributedDataParallel"
