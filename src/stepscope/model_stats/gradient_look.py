"""One look at the gradients of a step, put together from the optimizers and clippings that show them."""

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


class GradientLook:
    """Norms of gradients, each taken when it was first to be seen: before it is clipped, if it is."""

    def __init__(self, torch: ModuleType, sums: LayerSums) -> None:
        self._torch, self._sums = torch, sums
        self._norms: dict[int, Any] = {}
        self._skipped: Any = None

    def add(self, places: Sequence[int], optimizer: Any = None) -> None:
        """Takes the gradients of parameters at these places, but for those that are taken already.

        An optimizer that undoes the scale of a loss scaler itself holds that scale while it steps.
        """
        parameters, taken = self._sums.layers.parameters, self._norms
        fresh: dict[int, Any] = {}
        for place in places:
            if place not in taken and (gradient := parameters[place].grad) is not None:
                fresh[place] = gradient
        if fresh:
            norms = tensor_norms(self._torch, fresh)
            scale = getattr(optimizer, "grad_scale", None)
            taken.update(norms if scale is None else self._unscaled(norms, scale))
        skipped = getattr(optimizer, "found_inf", None)
        if skipped is not None:
            self._skipped = skipped if self._skipped is None else self._skipped + skipped

    def figures(self) -> tuple[list[str], Any] | None:
        """Keys and a tensor of their values, those of layers last; None when there were no gradients."""
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
        for place, norm in norms.items():
            by_device.setdefault(norm.device, []).append(place)
        found: dict[int, Any] = {}
        for device, places in by_device.items():
            here = to_device(scale.reshape(()), device)
            divided = self._torch._foreach_div([norms[place] for place in places], here)  # noqa: SLF001 - one call for all
            found.update(zip(places, divided, strict=True))
        return found


class Subjects:
    """Which parameters of a model an optimizer or a clipping is about; worked out once for each."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[int, list[int]]] = (
            weakref.WeakKeyDictionary()
        )
        self._of_clipping: dict[tuple[int, int, int], tuple[list[int], bool]] = {}

    def of_optimizer(self, optimizer: Any) -> list[int]:
        """Places of the parameters an optimizer steps."""
        groups = [group["params"] for group in optimizer.param_groups]
        count = sum(map(len, groups))
        known = self._of_optimizer.get(optimizer)
        if known is None or known[0] != count:
            known = count, self._layers.places(one for group in groups for one in group)
            self._of_optimizer[optimizer] = known
        return known[1]

    def of_clipping(self, parameters: Sequence[Any]) -> tuple[list[int], bool]:
        """Places of the parameters whose gradients are clipped together, and whether no other one learns."""
        if not parameters:
            return [], False
        key = (len(parameters), id(parameters[0]), id(parameters[-1]))
        if key not in self._of_clipping:
            places = self._layers.places(parameters)
            given = set(places)
            others = (one for at, one in enumerate(self._layers.parameters) if at not in given)
            self._of_clipping[key] = places, not any(one.requires_grad for one in others)
        return self._of_clipping[key]
