"""Finds layers that run in training steps but never get a gradient: something cuts them off from the loss."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.hooking import Hooks
from stepscope.model_stats.layers import plain_paths
from stepscope.steps.evidence.training_setup import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stepscope.guard import Guard

MIN_STEPS = 5
"""Minimum number of steps of its optimizer in which a parameter has no gradient."""

MAX_LAYERS = 16
"""At most this many layers get a hook."""

MAX_NAMES = 5


class _Layer:
    """A layer whose trainable parameters have no gradient."""

    def __init__(self, name: str, module: Any, parameters: Iterable[Any]) -> None:
        self.name, self.module = name, weakref.ref(module)
        self.parameters = [weakref.ref(parameter) for parameter in parameters]
        self.has_run = False
        """Whether it ran such that a gradient could be computed."""
        self.steps = 0

    def have_gradient(self) -> bool:
        """Whether any of its parameters has a gradient, or is gone."""
        existing = [reference() for reference in self.parameters]
        return any(parameter is None or parameter.grad is not None for parameter in existing)


class GradientFlow:
    """Follows the layers without gradients during a few steps of the optimizers that have their parameters.

    Only these layers get a hook, and only until the result is read: a training whose layers all have
    gradients gets none.
    """

    def __init__(self, guard: Guard) -> None:
        self._hooks = Hooks(sys.modules["torch"], "The check of missing gradients", guard)
        self._layers: list[_Layer] = []

    def begin(self, model: Any, optimized: set[int]) -> None:
        """Starts to follow the layers of a model; `optimized` are the ids of all parameters of optimizers."""
        if is_compiled(model) or hasattr(model, "_c"):
            return  # hooks would compile it again; scripted layers take none
        for name, module in _layers_of(model):
            own = [parameter for parameter in module.parameters(recurse=False) if parameter.requires_grad]
            is_without = own and all(p.is_leaf and p.grad is None and id(p) in optimized for p in own)
            if is_without and len(self._layers) < MAX_LAYERS:
                layer = _Layer(name, module, own)
                self._layers.append(layer)
                self._hooks.after_forward(module, _note(layer))

    def follow(self, optimizer: Any) -> None:
        """Counts a step of an optimizer, and forgets layers that have a gradient after all."""
        if not self._layers:
            return
        ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for layer in self._layers:
            layer.steps += any(id(reference()) in ids for reference in layer.parameters)
        self._layers = [layer for layer in self._layers if not layer.have_gradient()]

    def result(self) -> dict[str, Any]:
        """Removes the hooks, and returns the layers that ran and got no gradient."""
        layers = [layer for layer in self._layers if layer.has_run and layer.steps >= MIN_STEPS]
        self.close()
        elements = [
            p.numel() for layer in layers for p in (ref() for ref in layer.parameters) if p is not None
        ]
        names = [layer.name for layer in layers[:MAX_NAMES]]
        return {"cut_off": {"layers": len(layers), "parameters": sum(elements), "names": names}}

    def close(self) -> None:
        """Removes the hooks."""
        self._hooks.remove()
        self._layers = []


def _layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """The modules with parameters of their own, by name, without what wrappers such as DDP have added."""
    named = [
        pair for pair in model.named_modules() if next(pair[1].parameters(recurse=False), None) is not None
    ]
    paths = plain_paths([f"{name}.weight" if name else "weight" for name, _ in named])
    for path, (_, module) in zip(paths, named, strict=True):
        yield ".".join(path[:-1]), module


def _note(layer: _Layer) -> Callable[..., None]:
    def note(_module: Any, _arguments: Any, output: Any) -> None:
        layer.has_run = layer.has_run or _requires_grad(output)

    return note


def _requires_grad(output: Any) -> bool:
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return any(_requires_grad(part) for part in output)
    return bool(getattr(output, "requires_grad", False))
