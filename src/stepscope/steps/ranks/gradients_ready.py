"""Measures when the last gradient of a rank is ready, to separate its work from waiting for other ranks."""

from __future__ import annotations

import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.steps.phase_timer import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.steps.phase_timer import PhaseTimer

WAIT_SECONDS = "ranks/wait_seconds"
"""Time of the backward pass after a rank's own last gradient, when it waits for the gradients of the others.

All ranks end that wait together, so the slowest rank waits least. This needs no synchronised clocks.
"""


EXCHANGES = "ranks/exchanges"
"""How often gradients were exchanged in a step: once, or in each of its micro-batches."""


class RankWait(Protocol):
    """Measures how long a rank waits for others, in the steps that are timed phase by phase."""

    def attach(self) -> None:
        """Starts measuring in a phase-timed step."""

    def detach(self) -> None:
        """Stops measuring until the next phase-timed step."""

    def after_step(self) -> Mapping[str, float]:
        """The waits of the step that has just ended."""


class GradientsReady:
    """Watches the first parameters of a model, whose gradients are the last to be computed.

    A GPU computes them asynchronously, and waits for other ranks while the host continues. So the wait is
    measured by the GPU's clock, in the steps that are timed on the GPU.
    """

    def __init__(self, model: Any, phase_timer: PhaseTimer) -> None:
        self._model, self._phase_timer = weakref.ref(model), phase_timer
        self._ready_ns = self._exchanges = 0
        inner = getattr(model, "module", model)
        trainable = [parameter for parameter in inner.parameters() if parameter.requires_grad]
        self._first_parameters = [weakref.ref(parameter) for parameter in trainable[:2]]
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Registers hooks on the parameters."""
        if not self._handles:
            references = self._first_parameters
            parameters = [parameter for reference in references if (parameter := reference()) is not None]
            on_gpu = any(parameter.is_cuda for parameter in parameters)
            hook = self._mark_on_device if on_gpu else self._mark_on_host
            self._handles = [parameter.register_hook(hook) for parameter in parameters]
            self._handles += [parameter.register_hook(self._count_exchange) for parameter in parameters[:1]]

    def detach(self) -> None:
        """Removes the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def after_step(self) -> Mapping[str, float]:
        """How long the backward pass continued after the last gradient, and the exchanges of the step."""
        ended_ns, ready_ns, self._ready_ns = self._phase_timer.left_ns(BACKWARD), self._ready_ns, 0
        exchanges, self._exchanges = self._exchanges, 0
        values = {EXCHANGES: float(exchanges)} if exchanges else {}
        if ready_ns and ended_ns >= ready_ns:
            values[WAIT_SECONDS] = (ended_ns - ready_ns) * 1e-9
        return values

    def _mark_on_host(self, _: Any) -> None:
        self._ready_ns = monotonic_ns()

    def _count_exchange(self, _: Any) -> None:
        self._exchanges += bool(getattr(self._model(), "require_backward_grad_sync", False))

    def _mark_on_device(self, _: Any) -> None:
        device = self._phase_timer.device
        if device is not None:
            device.mark_ready()


def is_distributed(model: Any) -> bool:
    """Whether a model exchanges gradients with other ranks within its backward pass."""
    return type(model).__name__ == "DistributedDataParallel"
