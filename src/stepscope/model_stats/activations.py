"""`Activations`: statistics of the output of each layer, at randomly sampled steps."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import plain
from stepscope.model_stats.sampled_hooks import SampledHooks, concatenated, eager_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

MAX_LAYERS = 64
"""Layers measured in one sample; a model with more is covered over several samples."""

MAX_ELEMENTS = 1 << 20
"""Elements of an output that are used; the maximum uses all."""

SATURATED = 0.99
"""An output this close to the limit of its activation function has almost no gradient."""

_SKIPPED_LAYERS = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", "Identity", "Flatten", "Unflatten")
"""Layers whose output has the same statistics as their input."""

_FIGURES = ("mean", "std", "zeros_ratio", "max")


class Activations(SampledHooks):
    """Records statistics of the output of every module without submodules.

    The keys are `activation_<statistic>/<layer>`: `mean`, `std`, `zeros_ratio`, `max` (of the absolute
    values), for functions known to saturate `saturated_ratio`, and for ReLU also `dead_ratio`, the share of
    units that were zero for all inputs. Only the first call of each module in a sampled step is used.
    """

    name = "Watching activations"

    def __init__(self, model: Any, *, every_steps: int = 1000, **options: Any) -> None:
        super().__init__(model, every_steps=every_steps, **options)
        self._next = 0
        self._summaries: dict[str, dict[str, Any]] = {}

    def _attach(self) -> None:
        modules = [
            (name, module) for name, module in eager_modules(self._model()) if self._is_sampled(module)
        ]
        if len(modules) > MAX_LAYERS and not self._is_measuring:
            start, self._next = self._next, (self._next + MAX_LAYERS) % len(modules)
            modules = (modules[start:] + modules[:start])[:MAX_LAYERS]
        for name, module in modules:
            self._hooks.after_forward(module, functools.partial(self._summarise, name))

    def _detach(self) -> None:
        self._summaries.clear()

    def _figures(self) -> tuple[list[str], Any]:
        summaries = self._summaries
        keys = [f"activation_{figure}/{name}" for name, summary in summaries.items() for figure in summary]
        parts = [value.reshape(1) for summary in summaries.values() for value in summary.values()]
        return keys, concatenated(self._torch, parts) if parts else None

    def _is_sampled(self, module: Any) -> bool:
        is_leaf = next(module.children(), None) is None or isinstance(
            module, self._torch.nn.MultiheadAttention
        )
        return is_leaf and not type(module).__name__.startswith(_SKIPPED_LAYERS)

    def _summarise(self, name: str, module: Any, _arguments: Any, output: Any) -> None:
        if name in self._summaries or not (module.training or self._is_measuring):
            return
        tensor = _first_tensor(self._torch, output)
        if tensor is not None:
            self._summaries[name] = self._summary(module, plain(self._torch, tensor))

    def _summary(self, module: Any, output: Any) -> dict[str, Any]:
        torch = self._torch
        units = 1 if output.dim() >= 4 else output.dim() - 1
        sample = _floats(torch, thinned(output, units))
        minimum, maximum = output.aminmax()
        spread, mean = torch.var_mean(sample, correction=0)
        is_zero = sample == 0
        maximum = torch.maximum(-minimum, maximum).to(torch.float32)
        figures = (mean, spread.sqrt(), is_zero.mean(dtype=torch.float32), maximum)
        summary = dict(zip(_FIGURES, figures, strict=True))
        is_saturated = _SATURATION.get(type(module).__name__)
        if is_saturated is not None:
            summary["saturated_ratio"] = is_saturated(module, sample).mean(dtype=torch.float32)
        if type(module).__name__ in _RECTIFIERS:
            others = [dimension for dimension in range(sample.dim()) if dimension != units]
            is_dead = is_zero.all(dim=others) if others else is_zero
            summary["dead_ratio"] = is_dead.mean(dtype=torch.float32)
        return summary


def thinned(tensor: Any, units: int) -> Any:
    """At most about a million elements of a tensor, as a view: all units, fewer of the other dimensions."""
    for dimension in [*(other for other in range(tensor.dim()) if other != units), units]:
        spacing = min(math.ceil(tensor.numel() / MAX_ELEMENTS), tensor.shape[dimension])
        if spacing > 1:
            tensor = tensor[(slice(None),) * dimension + (slice(None, None, spacing),)]
    return tensor


def _first_tensor(torch: ModuleType, output: Any) -> Any:
    """The first floating-point tensor of a module's output; None if there is none."""
    if isinstance(output, torch.Tensor):
        is_plain = output.layout == torch.strided and not output.is_nested and output.numel() > 0
        return output if is_plain and (output.is_floating_point() or output.is_complex()) else None
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, list | tuple):
        tensors = (_first_tensor(torch, part) for part in output)
        return next((tensor for tensor in tensors if tensor is not None), None)
    return None


def _floats(torch: ModuleType, tensor: Any) -> Any:
    return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)


def _near_zero_or_one(_module: Any, output: Any) -> Any:
    return (output < 1 - SATURATED) | (output > SATURATED)


def _near_either_one(_module: Any, output: Any) -> Any:
    return output.abs() > SATURATED


def _at_either_bound(module: Any, output: Any) -> Any:
    return (output <= module.min_val) | (output >= module.max_val)


_SATURATION: Mapping[str, Callable[[Any, Any], Any]] = {
    "Sigmoid": _near_zero_or_one,
    "Tanh": _near_either_one,
    "Softsign": _near_either_one,
    "Hardtanh": _at_either_bound,
    "ReLU6": _at_either_bound,
    "Hardsigmoid": lambda _, output: (output <= 0) | (output >= 1),
    "ReLU": lambda _, output: output == 0,
}
_RECTIFIERS = frozenset({"ReLU", "ReLU6"})
