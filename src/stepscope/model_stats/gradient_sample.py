"""The gradient norms of one sampled step, collected at optimizer steps and at gradient clipping."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradient_health import SKIPPED
from stepscope.model_stats.gradients import LayerSums, tensor_norms, to_device
from stepscope.schema.keys import GRADIENT_NORM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from stepscope.model_stats.layers import Layers

NOT_FINITE = "gradient_nonfinite_parameters"


class GradientSample:
    """Norms of gradients, each read when it is first available: before clipping, if it is clipped."""

    def __init__(self, torch: ModuleType, sums: LayerSums) -> None:
        self._torch, self._sums = torch, sums
        self._norms: dict[int, Any] = {}
        self._skipped: Any = None

    def add(self, indices: Sequence[int], optimizer: Any = None) -> None:
        """Adds the gradients of the parameters with these indices, unless they were added before.

        An optimizer that unscales gradients itself holds the scale of the loss scaler while it steps.
        """
        parameters, taken = self._sums.layers.parameters, self._norms
        fresh: dict[int, Any] = {}
        for index in indices:
            if index not in taken and (gradient := parameters[index].grad) is not None:
                fresh[index] = gradient
        if fresh:
            norms = tensor_norms(self._torch, fresh)
            scale = getattr(optimizer, "grad_scale", None)
            taken.update(norms if scale is None else self._unscaled(norms, scale))
        skipped = getattr(optimizer, "found_inf", None)
        if skipped is not None:
            self._skipped = skipped if self._skipped is None else self._skipped + skipped

    def figures(self) -> tuple[list[str], Any] | None:
        """Keys and a tensor of their values, those of layers last; None if there were no gradients."""
        if not self._norms:
            return None
        norms = self._sums.of(self._norms)
        keys = [GRADIENT_NORM, NOT_FINITE]
        values = norms.values
        if self._skipped is not None:
            keys.append(SKIPPED)
            skipped = to_device(self._skipped.reshape(1).to(values.dtype), values.device)
            values = self._torch.cat([values[:2], skipped, values[2:]])
        return [*keys, *(f"{GRADIENT_NORM}/{name}" for name in norms.names)], values

    def _unscaled(self, norms: dict[int, Any], scale: Any) -> dict[int, Any]:
        by_device: dict[Any, list[int]] = {}
        for index, norm in norms.items():
            by_device.setdefault(norm.device, []).append(index)
        unscaled: dict[int, Any] = {}
        for device, indices in by_device.items():
            here = to_device(scale.reshape(()), device)
            divided = self._torch._foreach_div([norms[index] for index in indices], here)  # noqa: SLF001 - one call for all
            unscaled.update(zip(indices, divided, strict=True))
        return unscaled


class ParameterLookup:
    """Finds the parameters of a model that an optimizer steps or a clipping call clips; cached."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[int, list[int]]] = (
            weakref.WeakKeyDictionary()
        )
        self._of_clipping: dict[tuple[int, int, int], tuple[list[int], bool]] = {}

    def of_optimizer(self, optimizer: Any) -> list[int]:
        """Indices of the parameters that an optimizer steps."""
        groups = [group["params"] for group in optimizer.param_groups]
        count = sum(map(len, groups))
        cached = self._of_optimizer.get(optimizer)
        if cached is None or cached[0] != count:
            cached = count, self._layers.indices(parameter for group in groups for parameter in group)
            self._of_optimizer[optimizer] = cached
        return cached[1]

    def of_clipping(self, parameters: Sequence[Any]) -> tuple[list[int], bool]:
        """Indices of the parameters that are clipped together, and whether they are all trainable ones."""
        if not parameters:
            return [], False
        key = (len(parameters), id(parameters[0]), id(parameters[-1]))
        if key not in self._of_clipping:
            indices = self._layers.indices(parameters)
            clipped = set(indices)
            parameters_of_model = enumerate(self._layers.parameters)
            others = (parameter for index, parameter in parameters_of_model if index not in clipped)
            self._of_clipping[key] = indices, not any(parameter.requires_grad for parameter in others)
        return self._of_clipping[key]
