"""`GradientMonitor`: gradient norms of the model and of each layer, and problems with them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradient_health import (
    WEIGHT_NORM,
    GradientFinding,
    GradientHistory,
    Thresholds,
    judge,
)
from stepscope.model_stats.gradient_sample import NOT_FINITE
from stepscope.model_stats.gradient_verdicts import Verdicts
from stepscope.model_stats.gradient_watch import GradientWatch, Pace, keys_of
from stepscope.model_stats.gradients import LayerSums, plain, tensor_norms
from stepscope.model_stats.hooking import as_list, reference_to
from stepscope.model_stats.layers import Layers
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

NOT_FINITE_ELEMENTS = "gradient_nonfinite_elements"


class GradientMonitor:
    """Watches the gradients of a model.

    On its own it measures when called:

        gradients = GradientMonitor(model)
        loss.backward()
        print(gradients.measure()["gradient_norm"], gradients.findings)

    With `outlets`, as `TrainingMonitor.watch` creates it, it measures at randomly sampled steps, before the
    optimizer steps and before gradients are clipped, and never waits for a device. `pace` sets how often.
    With `layers=False` only the total is recorded. Without an optimizer, it follows any optimizer that steps.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        layers: bool = True,
        scaler: Any = None,
        pace: Pace | None = None,
        outlets: MetricSink | None = None,
    ) -> None:
        import torch  # lazy: a caller with a model has loaded it

        self._torch, self._scaler = torch, scaler
        self._model = reference_to(model, None if outlets is None else self._forget_model)
        self._optimizers = as_list(optimizer) if outlets is None else []
        self._verdicts = Verdicts((outlets or MetricSink()).event)
        self.findings: list[GradientFinding] = []
        """The problems found at the last call of `measure`."""

        self.due = 1
        """Steps until the next call of `after_step`."""

        self._watch: GradientWatch | None = None
        if outlets is not None:
            self._watch = GradientWatch(
                as_list(optimizer),
                lambda: self._sums,
                outlets,
                self._verdicts,
                pace or Pace(),
                with_layers=layers,
            )

    @property
    def history(self) -> GradientHistory:
        """The norms measured so far."""
        return self._verdicts.history

    @property
    def is_off(self) -> bool:
        """Whether it was switched off, after a failure or because the model was deleted."""
        return self._watch is not None and self._watch.is_off

    def measure(self) -> dict[str, float]:
        """The current norms of gradients and weights; waits for the device.

        Call it between the backward pass and the optimizer step. Gradients scaled by a loss scaler are
        unscaled if the scaler was passed. Empty if there are no gradients.
        """
        sums, torch = self._sums, self._torch
        parameters = sums.layers.parameters
        gradients = {
            index: parameter.grad for index, parameter in enumerate(parameters) if parameter.grad is not None
        }
        self.findings = []
        if not gradients:
            return {}
        with torch.no_grad():
            norms = sums.of(tensor_norms(torch, gradients))
            weights = sums.of(tensor_norms(torch, {index: parameters[index] for index in gradients}))
            total, bad, *of_layers = norms.values.tolist()
            weight, _, *of_weights = weights.values.tolist()
            elements = _not_finite_elements(torch, gradients) if bad else 0
        scale = self._scale()
        unscaled = [norm / scale for norm in (total, *of_layers)]
        figures = {NOT_FINITE: bad, NOT_FINITE_ELEMENTS: float(elements)}
        figures.update(zip(keys_of(GRADIENT_NORM, norms.names), unscaled, strict=True))
        figures.update(zip(keys_of(WEIGHT_NORM, weights.names), (weight, *of_weights), strict=True))
        # Each call is judged on its own: it may be the only one.
        self.findings = judge(figures, self.history, Thresholds(persistence=1))
        self.history.add(figures)
        return figures

    def after_step(self, step: int) -> Mapping[str, float]:
        """The sampling probability of this step, if it was sampled."""
        if self._watch is None:
            return {}
        row, pause = self._watch.after_step()
        self.due = max(pause, 1)
        return row

    def close(self) -> None:
        """Removes all hooks."""
        if self._watch is not None:
            self._watch.close()

    @functools.cached_property
    def _sums(self) -> LayerSums:
        # Read when first needed: by then the model is on its device, sharded and wrapped.
        return LayerSums(self._torch, Layers.of(self._model()))

    def _forget_model(self) -> None:
        vars(self).pop("_sums", None)
        if self._watch is not None:
            self._watch.forget_model()

    def _scale(self) -> float:
        """The loss scale that gradients still contain; 1 if they were unscaled."""
        scaler = self._scaler
        if scaler is None or not scaler.is_enabled():
            return 1.0
        states = scaler._per_optimizer_states  # noqa: SLF001 - there is no public way to see whether they were unscaled
        for optimizer in self._optimizers:
            if id(optimizer) in states and states[id(optimizer)]["stage"].value:
                return 1.0
        return float(scaler.get_scale())


def _not_finite_elements(torch: ModuleType, gradients: Mapping[int, Any]) -> int:
    counts = (plain(torch, gradient).isfinite().logical_not().sum() for gradient in gradients.values())
    return sum(int(count) for count in counts)
