"""Measures gradients between the backward pass and the optimizer step, at randomly sampled steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from stepscope.model_stats import clipping
from stepscope.model_stats.gradient_health import WEIGHT_NORM
from stepscope.model_stats.gradient_sample import GradientSample, ParameterLookup
from stepscope.model_stats.hooking import Hooks, ListedOptimizers
from stepscope.model_stats.layers import has_values
from stepscope.model_stats.random_sampling import (
    EXTRA_COST_NS,
    NEVER,
    RandomSampling,
    TypicalTime,
    own_random,
)
from stepscope.model_stats.weight_updates import WeightSample
from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stepscope.model_stats.gradient_verdicts import Verdicts
    from stepscope.model_stats.gradients import LayerSums
    from stepscope.model_stats.metric_sink import MetricSink

UPDATE_RATIO = "update_ratio"
SAMPLED = "gradient_sampled_ratio"
CLIP_LIMIT = "gradient_clip_limit"
DENORMAL_RATIO = "weight_denormal_ratio"

GRADIENT_SHARE, TOTAL_SHARE, UPDATE_SHARE = 0.6, 0.2, 0.2
"""Shares of the budget for gradient samples, for norms that clipping has computed, and for weight updates."""

LAYERS_FIRST, LAYERS_EVERY = 10, 10
"""So many gradient samples, then one in so many, are recorded layer by layer; all of them are checked."""

UPDATES_EVERY = 100
"""Weights are compared in at most one of this many steps: it takes two passes over a sample of them."""

COMPARISON_NS = 5e6
"""Assumed cost of a comparison until it is measured."""

DEVICE_BYTES_PER_SECOND = 1e12
"""Assumed read bandwidth of a device, to estimate the device time of a gradient sample."""


@dataclass(frozen=True)
class Pace:
    """How often to sample."""

    every: int = 1
    """The minimum average number of steps between two samples."""

    budget_ratio: float = 0.001
    """The share of the training's time that sampling may take."""

    draw: Callable[[], float] = field(default_factory=own_random)


class GradientWatch:
    """The hooks of a gradient monitor, and the current sample.

    A sample begins with the first clipping or optimizer step of a training step, and ends with the last
    optimizer step. Gradients are read before `torch.nn.utils.clip_grad_norm_` clips them.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        read_model: Callable[[], LayerSums],
        sink: MetricSink,
        verdicts: Verdicts,
        pace: Pace,
        *,
        with_layers: bool,
    ) -> None:
        import torch  # lazy: a caller with a model has loaded it

        self._torch, self._read_model = torch, read_model
        self._optimizers = ListedOptimizers(optimizers)
        self._sink, self._verdicts, self._with_layers = sink, verdicts, with_layers
        self._hooks = Hooks(torch, "The gradient monitor", sink.guard, sink.optimizer_steps)
        self._draw = pace.draw
        self._gradient_sampling = RandomSampling(GRADIENT_SHARE * pace.budget_ratio, pace.every, self._draw)
        self._total_sampling = RandomSampling(TOTAL_SHARE * pace.budget_ratio, pace.every, self._draw)
        self._update_sampling = RandomSampling(
            UPDATE_SHARE * pace.budget_ratio, max(pace.every, UPDATES_EVERY), self._draw, COMPARISON_NS
        )
        self._step_time = TypicalTime()
        self._last_step_ns = self._spent_ns = self._sampling_ns = 0
        self._has_hooks = self._has_begun = self._has_clipped = self._compares_weights = False
        self._skipped_steps = self._samples = 0
        self._clipped: set[int] = set()
        self._gradient_sample: GradientSample | None = None
        self._weight_sample: WeightSample | None = None
        self._row: dict[str, float] = {}
        self._add_hooks()

    @property
    def is_off(self) -> bool:
        """Whether it was switched off, after a failure or because the model was deleted."""
        return self._hooks.is_off

    def after_step(self) -> tuple[Mapping[str, float], int]:
        """The sampling probability of this step, if it was sampled, and the number of steps to skip."""
        now_ns, steps = self._sink.now_ns(), self._skipped_steps or 1
        if self._last_step_ns:
            self._step_time.add((now_ns - self._last_step_ns) / steps)
        self._last_step_ns = now_ns
        row, self._row = self._row, {}
        self._skip_steps()
        return row, self._skipped_steps

    def close(self) -> None:
        """Removes all hooks."""
        self._remove_hooks()
        self._gradient_sample = self._weight_sample = None

    def forget_model(self) -> None:
        """Lets go of the parameters of a model that was deleted; nothing is measured from then on."""
        self._hooks.is_off = True
        self._gradient_sample = self._weight_sample = None
        for name in ("_sums", "_parameter_lookup"):
            vars(self).pop(name, None)

    def _skip_steps(self) -> None:
        """Removes the hooks until the next step to sample: other steps should cost nothing."""
        if self.is_off:
            self._remove_hooks()
            self._skipped_steps = NEVER
            return
        samplings = (
            self._gradient_sampling,
            self._update_sampling,
            *([self._total_sampling] if self._has_clipped else []),
        )
        step_ns = self._step_time.ns
        self._skipped_steps = min(sampling.steps_to_skip(step_ns) for sampling in samplings)
        for sampling in samplings:
            sampling.skip(self._skipped_steps)
        if self._skipped_steps:
            self._remove_hooks()
        else:
            self._add_hooks()

    def _add_hooks(self) -> None:
        if not self._has_hooks:
            self._has_hooks = True
            optimizers = self._optimizers.existing()
            self._hooks.before_step(optimizers, self._optimizer_begins, self._is_due)
            self._hooks.after_step(optimizers, self._optimizer_ends, self._is_to_compare)
            clipping.add_listener(self._torch, self._on_clipping)

    def _remove_hooks(self) -> None:
        self._has_hooks = self._has_begun = False
        self._hooks.remove()
        clipping.remove_listener(self._on_clipping)

    @functools.cached_property
    def _sums(self) -> LayerSums:
        return self._read_model()

    @functools.cached_property
    def _parameter_lookup(self) -> ParameterLookup:
        return ParameterLookup(self._sums.layers)

    @functools.cached_property
    def _device_ns(self) -> float:
        """The estimated device time of a gradient sample, which reads every gradient once."""
        on_device = (
            parameter
            for parameter in self._sums.layers.parameters
            if parameter.requires_grad and not parameter.is_cpu and has_values(parameter)
        )
        read_bytes = sum(int(parameter.element_size() * parameter.numel()) for parameter in on_device)
        return 1e9 * read_bytes / DEVICE_BYTES_PER_SECOND

    def _on_clipping(self, parameters: Any, total: Any, limit: Any) -> None:
        self._hooks.run(self._sample_at_clipping, parameters, total, limit, is_due=self._is_due_at_clipping)

    def _is_due_at_clipping(self, parameters: Any, total: Any, _limit: Any) -> bool:
        indices, is_whole = self._parameter_lookup.of_clipping(parameters)
        if not indices:
            return False
        self._has_clipped = True
        if indices[0] in self._clipped:
            self._has_begun = False  # a loss scaler skipped the optimizer step before
        self._begin()
        self._clipped.add(indices[0])
        if self._gradient_sample is not None:
            return True
        return is_whole and not hasattr(total, "to_local") and self._total_sampling.is_due(self._step_time.ns)

    def _sample_at_clipping(self, parameters: Any, total: Any, limit: Any) -> None:
        began = perf_counter_ns()
        if isinstance(limit, int | float) and self._parameter_lookup.of_clipping(parameters)[1]:
            self._row[CLIP_LIMIT] = float(limit)
        if self._gradient_sample is not None:
            self._gradient_sample.add(self._parameter_lookup.of_clipping(parameters)[0])
            self._spent_ns += perf_counter_ns() - began
        else:
            total = total.detach().reshape(1)
            self._sink.record_tensor([GRADIENT_NORM], total)
            self._judge([GRADIENT_NORM], total, thorough=False)
            self._total_sampling.spent(perf_counter_ns() - began)

    def _is_last(self, optimizer: Any) -> bool:
        # An optimizer that has replaced the last one is not in the list.
        return all(optimizer is not listed for listed in self._optimizers.existing()[:-1])

    def _is_due(self, optimizer: Any) -> bool:
        # Without a list of optimizers, one that steps may belong to another model.
        if not self._optimizers.existing() and not self._parameter_lookup.of_optimizer(optimizer):
            return False
        self._begin()
        if self._is_last(optimizer):
            self._has_begun = False
        return self._gradient_sample is not None or self._compares_weights

    def _begin(self) -> None:
        """Decides whether to sample this step, when its gradients are first available."""
        if not self._has_begun:
            self._has_begun = True
            self._clipped.clear()
            self._gradient_sample, self._spent_ns = None, 0
            usual_ns = self._step_time.ns
            if self._gradient_sampling.is_due(usual_ns):
                self._gradient_sample = GradientSample(self._torch, self._sums)
            self._compares_weights = self._update_sampling.is_due(usual_ns)

    def _optimizer_begins(self, optimizer: Any) -> None:
        began = perf_counter_ns()
        if self._compares_weights:
            self._compares_weights = False
            parameters = enumerate(self._sums.layers.parameters)
            trainable = [
                index for index, parameter in parameters if parameter.requires_grad and has_values(parameter)
            ]
            self._weight_sample = WeightSample(self._torch, self._sums, trainable, self._draw())
            self._sampling_ns = perf_counter_ns() - began
            began = perf_counter_ns()
        gradient_sample = self._gradient_sample
        if gradient_sample is not None:
            gradient_sample.add(self._parameter_lookup.of_optimizer(optimizer), optimizer)
            if self._is_last(optimizer):
                self._gradient_sample = None
                self._record(gradient_sample)
            self._spent_ns += perf_counter_ns() - began
            if self._gradient_sample is None:
                self._gradient_sampling.spent(self._spent_ns + self._device_ns + EXTRA_COST_NS)

    def _record(self, gradient_sample: GradientSample) -> None:
        figures = gradient_sample.figures()
        if figures is None:
            return
        keys, values = figures
        self._row[SAMPLED] = self._gradient_sampling.rate(self._step_time.ns)
        thorough = not self._samples or self._draw() < 1 / LAYERS_EVERY
        has_layers = self._with_layers and (thorough or self._samples < LAYERS_FIRST)
        self._samples += 1
        recorded = len(keys) if has_layers else _count_before_layers(keys)
        self._sink.record_tensor(keys[:recorded], values[:recorded])
        self._judge(keys, values, thorough=thorough)

    def _is_to_compare(self, optimizer: Any) -> bool:
        if self._weight_sample is None or not self._is_last(optimizer):
            return False
        return bool(self._parameter_lookup.of_optimizer(optimizer))

    def _optimizer_ends(self, _optimizer: Any) -> None:
        weight_sample, self._weight_sample = self._weight_sample, None
        if weight_sample is None:
            return
        began = perf_counter_ns()
        updates = weight_sample.compare()
        names = updates.names if self._with_layers else ()
        recorded = 1 + len(names)
        keys = [*keys_of(UPDATE_RATIO, names), *keys_of(WEIGHT_NORM, names)]
        values = [updates.ratios[:recorded], updates.weights[:recorded]]
        if updates.denormals is not None:
            keys.append(DENORMAL_RATIO)
            values.append(updates.denormals[None].to(values[0]))
        self._sink.record_tensor(keys, self._torch.cat(values))
        self._sink.read(
            updates.weights,
            lambda norms: self._verdicts.weights(
                dict(zip(keys_of(WEIGHT_NORM, updates.names), norms, strict=True))
            ),
        )
        self._update_sampling.spent(self._sampling_ns + perf_counter_ns() - began)

    def _judge(self, keys: list[str], values: Any, *, thorough: bool) -> None:
        arrived = functools.partial(
            self._verdicts.arrived, keys, step=self._sink.current_step(), thorough=thorough
        )
        self._sink.read(values, arrived)


def keys_of(kind: str, names: Iterable[str]) -> list[str]:
    """The key of the total, then that of each layer."""
    return [kind, *(f"{kind}/{name}" for name in names)]


def _count_before_layers(keys: list[str]) -> int:
    """The number of keys before those of layers."""
    return sum(not key.startswith(f"{GRADIENT_NORM}/") for key in keys)
