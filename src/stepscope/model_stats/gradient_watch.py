"""Looks at gradients between the backward pass and the optimizer step, at steps chosen by chance."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from stepscope.model_stats import clipping
from stepscope.model_stats.gradient_health import WEIGHT_NORM
from stepscope.model_stats.gradient_look import GradientLook, Subjects
from stepscope.model_stats.hooking import Hooks
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

LOOKS, TOTALS, UPDATES = 0.6, 0.2, 0.2
"""What part of the budget goes to looks, to norms that clipping has worked out, and to comparing weights."""

LAYERS_EVERY = 10
"""Of the looks at a model, one in so many is recorded layer by layer; all of them are judged."""

UPDATES_EVERY = 100
"""Weights are compared at one step in so many at most: it takes two passes over a sample of them."""

COMPARISON_NS = 5e6
"""What a comparison is taken to cost until that is known."""

DEVICE_BYTES_PER_SECOND = 1e12
"""How fast a device is taken to read gradients, to count what it spends on them beside the host."""


@dataclass(frozen=True)
class Pace:
    """How often to look."""

    every: int = 1
    """The least number of steps between two looks, on average."""

    budget_ratio: float = 0.001
    """The share of the training's time that looking may take."""

    draw: Callable[[], float] = field(default_factory=own_random)


class GradientWatch:
    """The hooks of a gradient monitor, and the look in hand.

    A look begins with the first clipping or optimizer step of a training step and ends with the last
    optimizer's. Gradients are read before `torch.nn.utils.clip_grad_norm_` clips them.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        read_model: Callable[[], LayerSums],
        outlets: MetricSink,
        verdicts: Verdicts,
        pace: Pace,
        *,
        with_layers: bool,
    ) -> None:
        import torch  # lazy: whoever has a model has it

        self._torch, self._optimizers, self._read_model = torch, optimizers, read_model
        self._outlets, self._verdicts, self._with_layers = outlets, verdicts, with_layers
        self._hooks = Hooks(torch, "The gradient monitor", outlets.guard, outlets.optimizer_steps)
        self._draw = pace.draw
        self._looks = RandomSampling(LOOKS * pace.budget_ratio, pace.every, self._draw)
        self._totals = RandomSampling(TOTALS * pace.budget_ratio, pace.every, self._draw)
        self._comparisons = RandomSampling(
            UPDATES * pace.budget_ratio, max(pace.every, UPDATES_EVERY), self._draw, COMPARISON_NS
        )
        self._step_time = TypicalTime()
        self._last_step_ns = self._spent_ns = self._sampling_ns = 0
        self._is_attending = self._has_begun = self._has_looked = self._compares = False
        self._has_clipped = False
        self._pause = 0
        self._clipped: set[int] = set()
        self._look: GradientLook | None = None
        self._sample: WeightSample | None = None
        self._row: dict[str, float] = {}
        self._attend()

    @property
    def rests(self) -> bool:
        """Whether something of ours has failed, and nothing is looked at any more."""
        return self._hooks.rests

    def after_step(self) -> tuple[Mapping[str, float], int]:
        """How likely this step was to be looked at, if it was; and the number of steps to pass unseen."""
        now_ns, steps = self._outlets.now_ns(), self._pause or 1
        if self._last_step_ns:
            self._step_time.add((now_ns - self._last_step_ns) / steps)
        self._last_step_ns = now_ns
        row, self._row = self._row, {}
        self._rest_for_quiet_steps()
        return row, self._pause

    def close(self) -> None:
        """Takes all hooks away."""
        self._ignore()
        self._look = self._sample = None

    def _rest_for_quiet_steps(self) -> None:
        """Takes the hooks away until the next step to look at: the others should cost nothing."""
        if self.rests:
            self._ignore()
            self._pause = NEVER
            return
        chances = (self._looks, self._comparisons, *([self._totals] if self._has_clipped else []))
        self._pause = min(one.quiet_steps(self._step_time.ns) for one in chances)
        for one in chances:
            one.skip(self._pause)
        if self._pause:
            self._ignore()
        else:
            self._attend()

    def _attend(self) -> None:
        if not self._is_attending:
            self._is_attending = True
            self._hooks.before_step(self._optimizers, self._optimizer_begins, self._is_due)
            self._hooks.after_step(self._optimizers, self._optimizer_ends, self._is_to_compare)
            clipping.listen(self._torch, self._hear_clipping)

    def _ignore(self) -> None:
        self._is_attending = self._has_begun = False
        self._hooks.remove()
        clipping.unlisten(self._hear_clipping)

    @functools.cached_property
    def _sums(self) -> LayerSums:
        return self._read_model()

    @functools.cached_property
    def _subjects(self) -> Subjects:
        return Subjects(self._sums.layers)

    @functools.cached_property
    def _device_ns(self) -> float:
        """What a look takes on devices, roughly: every gradient is read once."""
        learning = (one for one in self._sums.layers.parameters if one.requires_grad and not one.is_cpu)
        read = sum(int(one.element_size() * one.numel()) for one in learning)
        return 1e9 * read / DEVICE_BYTES_PER_SECOND

    def _hear_clipping(self, parameters: Any, total: Any) -> None:
        self._hooks.run(self._clipping, parameters, total, wanted=self._is_due_at_clipping)

    def _is_due_at_clipping(self, parameters: Any, total: Any) -> bool:
        places, is_whole = self._subjects.of_clipping(parameters)
        if not places:
            return False
        self._has_clipped = True
        if places[0] in self._clipped:
            self._has_begun = False  # a step that a loss scaler skipped has ended without its optimizer
        self._begin()
        self._clipped.add(places[0])
        if self._look is not None:
            return True
        return is_whole and not hasattr(total, "to_local") and self._totals.is_due(self._step_time.ns)

    def _clipping(self, parameters: Any, total: Any) -> None:
        began = perf_counter_ns()
        if self._look is not None:
            self._look.add(self._subjects.of_clipping(parameters)[0])
            self._spent_ns += perf_counter_ns() - began
        else:
            total = total.detach().reshape(1)
            self._outlets.record_tensor([GRADIENT_NORM], total)
            self._judge([GRADIENT_NORM], total, thorough=False)
            self._totals.spent(perf_counter_ns() - began)

    def _is_last(self, optimizer: Any) -> bool:
        # One that has taken the place of the last was not given.
        return all(optimizer is not known for known in self._optimizers[:-1])

    def _is_due(self, optimizer: Any) -> bool:
        # Those that were given are ours; whichever steps may be that of another model.
        if not self._optimizers and not self._subjects.of_optimizer(optimizer):
            return False
        self._begin()
        if self._is_last(optimizer):
            self._has_begun = False
        return self._look is not None or self._compares

    def _begin(self) -> None:
        """Decides about this step, at the first sight of its gradients."""
        if not self._has_begun:
            self._has_begun = True
            self._clipped.clear()
            self._look, self._spent_ns = None, 0
            usual_ns = self._step_time.ns
            if self._looks.is_due(usual_ns):
                self._look = GradientLook(self._torch, self._sums)
            self._compares = self._comparisons.is_due(usual_ns)

    def _optimizer_begins(self, optimizer: Any) -> None:
        began = perf_counter_ns()
        if self._compares:
            self._compares = False
            learning = [at for at, one in enumerate(self._sums.layers.parameters) if one.requires_grad]
            self._sample = WeightSample(self._torch, self._sums, learning, self._draw())
            self._sampling_ns = perf_counter_ns() - began
            began = perf_counter_ns()
        look = self._look
        if look is not None:
            look.add(self._subjects.of_optimizer(optimizer), optimizer)
            if self._is_last(optimizer):
                self._look = None
                self._record(look)
            self._spent_ns += perf_counter_ns() - began
            if self._look is None:
                self._looks.spent(self._spent_ns + self._device_ns + EXTRA_COST_NS)

    def _record(self, look: GradientLook) -> None:
        found = look.figures()
        if found is None:
            return
        keys, values = found
        self._row = {SAMPLED: self._looks.rate(self._step_time.ns)}
        thorough = not self._has_looked or self._draw() < 1 / LAYERS_EVERY
        self._has_looked = True
        several = len(keys) if thorough and self._with_layers else _count_of_whole(keys)
        self._outlets.record_tensor(keys[:several], values[:several])
        self._judge(keys, values, thorough=thorough)

    def _is_to_compare(self, optimizer: Any) -> bool:
        if self._sample is None or not self._is_last(optimizer):
            return False
        return bool(self._subjects.of_optimizer(optimizer))

    def _optimizer_ends(self, _optimizer: Any) -> None:
        sample, self._sample = self._sample, None
        if sample is None:
            return
        began = perf_counter_ns()
        updates = sample.compare()
        names = updates.names if self._with_layers else ()
        several = 1 + len(names)
        keys = [*keys_of(UPDATE_RATIO, names), *keys_of(WEIGHT_NORM, names)]
        self._outlets.record_tensor(
            keys, self._torch.cat([updates.ratios[:several], updates.weights[:several]])
        )
        self._outlets.read(
            updates.weights,
            lambda norms: self._verdicts.weights(
                dict(zip(keys_of(WEIGHT_NORM, updates.names), norms, strict=True))
            ),
        )
        self._comparisons.spent(self._sampling_ns + perf_counter_ns() - began)

    def _judge(self, keys: list[str], values: Any, *, thorough: bool) -> None:
        arrived = functools.partial(
            self._verdicts.arrived, keys, step=self._outlets.current_step(), thorough=thorough
        )
        self._outlets.read(values, arrived)


def keys_of(kind: str, names: Iterable[str]) -> list[str]:
    """The key of the whole, then that of each layer."""
    return [kind, *(f"{kind}/{name}" for name in names)]


def _count_of_whole(keys: list[str]) -> int:
    """How many keys come before those of layers."""
    return sum(not key.startswith(f"{GRADIENT_NORM}/") for key in keys)
