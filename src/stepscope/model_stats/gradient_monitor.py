"""`GradientMonitor`: gradient norms as a whole and layer by layer, and what is wrong with them."""

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
from stepscope.model_stats.gradient_look import NOT_FINITE
from stepscope.model_stats.gradient_verdicts import Verdicts
from stepscope.model_stats.gradient_watch import GradientWatch, Pace, keys_of
from stepscope.model_stats.gradients import LayerSums, plain, tensor_norms
from stepscope.model_stats.hooking import as_list
from stepscope.model_stats.layers import Layers
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

NOT_FINITE_ELEMENTS = "gradient_nonfinite_elements"


class GradientMonitor:
    """Watches the gradients of a model.

    By itself it measures when it is asked to:

        gradients = GradientMonitor(model)
        loss.backward()
        print(gradients.measure()["gradient_norm"], gradients.findings)

    With `outlets`, as `TrainingMonitor.watch` makes it, it looks at steps chosen by chance, before the
    optimizer steps and before gradients are clipped, and never waits for a device. `pace` says how often.
    With `layers=False` only the whole is recorded. Without an optimizer, whichever steps is followed.
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
        import torch  # lazy: whoever has a model has it

        self._torch, self._model, self._scaler = torch, model, scaler
        self._optimizers = as_list(optimizer)
        self._verdicts = Verdicts((outlets or MetricSink()).event)
        self.findings: list[GradientFinding] = []
        """What was wrong with the gradients at the last call of `measure`."""

        self.due = 1
        """After so many further steps it is to be asked by `after_step`."""

        self._watch: GradientWatch | None = None
        if outlets is not None:
            self._watch = GradientWatch(
                self._optimizers,
                lambda: self._sums,
                outlets,
                self._verdicts,
                pace or Pace(),
                with_layers=layers,
            )

    @property
    def history(self) -> GradientHistory:
        """The norms seen so far."""
        return self._verdicts.history

    @property
    def rests(self) -> bool:
        """Whether something of ours has failed, and steps are no longer looked at."""
        return self._watch is not None and self._watch.rests

    def measure(self) -> dict[str, float]:
        """Norms of the gradients as they are now, and of the weights; waits for the device to have them.

        Call it between the backward pass and the optimizer step. Gradients that a loss scaler has scaled are
        divided by its scale if the scaler was given. Empty when there are no gradients.
        """
        sums, torch = self._sums, self._torch
        parameters = sums.layers.parameters
        gradients = {at: one.grad for at, one in enumerate(parameters) if one.grad is not None}
        self.findings = []
        if not gradients:
            return {}
        with torch.no_grad():
            norms = sums.of(tensor_norms(torch, gradients))
            weights = sums.of(tensor_norms(torch, {at: parameters[at] for at in gradients}))
            total, bad, *of_layers = norms.values.tolist()
            weight, _, *of_weights = weights.values.tolist()
            elements = _not_finite_elements(torch, gradients) if bad else 0
        scale = self._scale()
        unscaled = [one / scale for one in (total, *of_layers)]
        figures = {NOT_FINITE: bad, NOT_FINITE_ELEMENTS: float(elements)}
        figures.update(zip(keys_of(GRADIENT_NORM, norms.names), unscaled, strict=True))
        figures.update(zip(keys_of(WEIGHT_NORM, weights.names), (weight, *of_weights), strict=True))
        # What is asked for now is judged by now: nobody promised to ask again.
        self.findings = judge(figures, self.history, Thresholds(persistence=1))
        self.history.add(figures)
        return figures

    def after_step(self, step: int) -> Mapping[str, float]:
        """How likely this step was to be looked at, if it was."""
        if self._watch is None:
            return {}
        row, pause = self._watch.after_step()
        self.due = max(pause, 1)
        return row

    def close(self) -> None:
        """Takes all hooks away."""
        if self._watch is not None:
            self._watch.close()

    @functools.cached_property
    def _sums(self) -> LayerSums:
        # Read when first needed: by then a model is where it will be, sharded and wrapped.
        return LayerSums(self._torch, Layers.of(self._model))

    def _scale(self) -> float:
        """By what a loss scaler has multiplied the gradients, and not yet divided them."""
        scaler = self._scaler
        if scaler is None or not scaler.is_enabled():
            return 1.0
        states = scaler._per_optimizer_states  # noqa: SLF001 - nothing public tells whether they were divided
        if any(states[id(one)]["stage"].value for one in self._optimizers if id(one) in states):
            return 1.0
        return float(scaler.get_scale())


def _not_finite_elements(torch: ModuleType, gradients: Mapping[int, Any]) -> int:
    counts = (plain(torch, one).isfinite().logical_not().sum() for one in gradients.values())
    return sum(int(count) for count in counts)
