"""`Activations`: what comes out of each layer, at steps chosen by chance: how large, how spread, how dead."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradients import plain
from stepscope.model_stats.sampled_hooks import SampledHooks, eager_modules, together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

MAX_LAYERS = 64
"""So many layers are looked at in a burst; a model with more is gone through burst by burst."""

MAX_ELEMENTS = 1 << 20
"""Of an output so many elements are looked at; for the greatest, all are."""

SATURATED = 0.99
"""An output this near to the end of what its function can give hardly lets a gradient through."""

_UNTOUCHED = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", "Identity", "Flatten", "Unflatten")
"""Layers whose output says nothing that the one before has not said."""

_FIGURES = ("mean", "std", "zeros_ratio", "max")


class Activations(SampledHooks):
    """Records figures of the output of every module that has no modules inside.

    Under `activation_<figure>/<layer>`: `mean`, `std`, `zeros_ratio`, `max` (of the absolute values), and for
    functions known to saturate `saturated_ratio`, for ReLU also `dead_ratio`: the share of units that were
    zero throughout. Each module's first call in a burst counts.
    """

    name = "Watching activations"

    def __init__(self, model: Any, *, every_steps: int = 1000, **options: Any) -> None:
        super().__init__(model, every_steps=every_steps, **options)
        self._next = 0
        self._seen: dict[str, dict[str, Any]] = {}

    def _attach(self) -> None:
        modules = [(name, one) for name, one in eager_modules(self._model) if self._speaks(one)]
        if len(modules) > MAX_LAYERS and not self._is_measuring:
            start, self._next = self._next, (self._next + MAX_LAYERS) % len(modules)
            modules = (modules[start:] + modules[:start])[:MAX_LAYERS]
        for name, module in modules:
            self._hooks.after_forward(module, functools.partial(self._called, name))

    def _detach(self) -> None:
        self._seen.clear()

    def _figures(self) -> tuple[list[str], Any]:
        keys = [f"activation_{figure}/{name}" for name, found in self._seen.items() for figure in found]
        parts = [one.reshape(1) for found in self._seen.values() for one in found.values()]
        return keys, together(self._torch, parts) if parts else None

    def _speaks(self, module: Any) -> bool:
        is_leaf = next(module.children(), None) is None or isinstance(
            module, self._torch.nn.MultiheadAttention
        )
        return is_leaf and not type(module).__name__.startswith(_UNTOUCHED)

    def _called(self, name: str, module: Any, _arguments: Any, output: Any) -> None:
        if name in self._seen or not (module.training or self._is_measuring):
            return
        tensor = _first_tensor(self._torch, output)
        if tensor is not None:
            self._seen[name] = self._summary(module, plain(self._torch, tensor))

    def _summary(self, module: Any, output: Any) -> dict[str, Any]:
        torch = self._torch
        units = 1 if output.dim() >= 4 else output.dim() - 1
        sample = _floats(torch, thinned(output, units))
        least, greatest = output.aminmax()
        spread, mean = torch.var_mean(sample, correction=0)
        is_zero = sample == 0
        greatest = torch.maximum(-least, greatest).to(torch.float32)
        figures = (mean, spread.sqrt(), is_zero.mean(dtype=torch.float32), greatest)
        found = dict(zip(_FIGURES, figures, strict=True))
        is_saturated = _SATURATION.get(type(module).__name__)
        if is_saturated is not None:
            found["saturated_ratio"] = is_saturated(module, sample).mean(dtype=torch.float32)
        if type(module).__name__ in _RECTIFIERS:
            others = [dimension for dimension in range(sample.dim()) if dimension != units]
            is_dead = is_zero.all(dim=others) if others else is_zero
            found["dead_ratio"] = is_dead.mean(dtype=torch.float32)
        return found


def thinned(tensor: Any, units: int) -> Any:
    """About a million elements of a tensor at most, as a view: all units, but only some of the rest."""
    for dimension in [one for one in range(tensor.dim()) if one != units] + [units]:
        spacing = min(math.ceil(tensor.numel() / MAX_ELEMENTS), tensor.shape[dimension])
        if spacing > 1:
            tensor = tensor[(slice(None),) * dimension + (slice(None, None, spacing),)]
    return tensor


def _first_tensor(torch: ModuleType, output: Any) -> Any:
    """The tensor of numbers a module gives, or the first of several; None where there is none."""
    if isinstance(output, torch.Tensor):
        is_plain = output.layout == torch.strided and not output.is_nested and output.numel() > 0
        return output if is_plain and (output.is_floating_point() or output.is_complex()) else None
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, list | tuple):
        return next((found for one in output if (found := _first_tensor(torch, one)) is not None), None)
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
