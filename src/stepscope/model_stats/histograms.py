"""`Histograms`: distributions of parameters and gradients by layer, at randomly sampled steps.

A recorded array has 71 numbers: 64 counts, then minimum, maximum, mean, standard deviation, share of zeros,
number of non-finite elements, number of all elements. The 64 buckets have equal width and span the range from
the minimum to the maximum of the finite elements; each includes its lower limit, the last one also its upper
limit. If all finite elements are equal, they are in the first bucket. Minimum and maximum are NaN if no
element is finite.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import RecorderError
from stepscope.model_stats.gradient_sample import ParameterLookup
from stepscope.model_stats.gradients import plain, to_device, widest
from stepscope.model_stats.hooking import Hooks, ListedOptimizers, as_list, reference_to
from stepscope.model_stats.layers import Layers
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.random_sampling import NEVER, RandomSampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

BUCKETS = 64
FIGURES = ("minimum", "maximum", "mean", "std", "zeros_ratio", "nonfinite", "elements")
LENGTH = BUCKETS + len(FIGURES)
PIECE = 1 << 22
"""Elements counted at a time: counts are float32, which is exact up to four times this number."""


@dataclass(frozen=True)
class Histogram:
    """The distribution of the elements of a layer."""

    counts: tuple[float, ...]
    minimum: float
    maximum: float
    mean: float
    """Of the finite elements, as is `std`, the standard deviation."""

    std: float
    zeros_ratio: float
    """Share of all elements that are exactly zero."""

    nonfinite: float
    elements: float

    @classmethod
    def read(cls, array: Sequence[float]) -> Histogram:
        """Reads a recorded array."""
        numbers = [float(number) for number in array]
        if len(numbers) != LENGTH:
            raise RecorderError(f"A histogram has {LENGTH} numbers; this array has {len(numbers)}.")
        return cls(tuple(numbers[:BUCKETS]), *numbers[BUCKETS:])

    @property
    def finite(self) -> float:
        """How many elements are in the buckets."""
        return self.elements - self.nonfinite

    @property
    def limits(self) -> tuple[float, ...]:
        """The 65 limits of the buckets; empty if no element is finite."""
        if math.isnan(self.minimum):
            return ()
        positions = (limit / BUCKETS for limit in range(BUCKETS + 1))
        return tuple(self.minimum * (1 - position) + self.maximum * position for position in positions)

    @property
    def total(self) -> float:
        """The sum of the finite elements, which viewers such as TensorBoard need."""
        return self.mean * self.finite

    @property
    def total_of_squares(self) -> float:
        """The sum of squares of the finite elements, which viewers such as TensorBoard need."""
        return (self.std**2 + self.mean**2) * self.finite


class Histograms:
    """Records histograms of the parameters and gradients of each layer before an optimizer step.

    A sample takes several passes over all of them, so it is opt-in: `every_steps` is the average number of
    steps between two samples. With several optimizers, the parameters of each are sampled when it steps.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        every_steps: int = 1000,
        outlets: MetricSink | None = None,
        _draw: Callable[[], float] | None = None,
    ) -> None:
        import torch  # lazy: a caller with a model has loaded it

        self._torch = torch
        self._model = reference_to(model, None if outlets is None else self._forget_model)
        self._sink = outlets or MetricSink()
        self._hooks = Hooks(torch, "The histograms", self._sink.guard, self._sink.optimizer_steps)
        self._chance = RandomSampling(1.0, every_steps, _draw)
        self._optimizers = ListedOptimizers(as_list(optimizer))
        self.due = 1
        """Steps until the next call of `after_step`."""
        if outlets is not None:
            self._hook_or_skip()

    def measure(self) -> dict[str, Histogram]:
        """The current histograms by metric key; waits for the device."""
        with self._torch.no_grad():
            arrays = self._measured(range(len(self._layers.parameters)), None)
            return {key: Histogram.read(array.tolist()) for key, array in arrays.items()}

    def after_step(self, step: int) -> Mapping[str, float]:
        """Adds hooks if the next step is sampled; returns no values, because arrays are not part of a row."""
        self._hook_or_skip()
        return {}

    def close(self) -> None:
        """Removes the hooks."""
        self._hooks.remove()

    @functools.cached_property
    def _layers(self) -> Layers:
        return Layers.of(self._model())

    @functools.cached_property
    def _parameter_lookup(self) -> ParameterLookup:
        return ParameterLookup(self._layers)

    def _forget_model(self) -> None:
        self._hooks.is_off = True
        for name in ("_layers", "_parameter_lookup"):
            vars(self).pop(name, None)

    def _hook_or_skip(self) -> None:
        self._hooks.remove()
        skipped = NEVER if self._hooks.is_off else self._chance.steps_to_skip(None)
        self.due = max(skipped, 1)
        if skipped:
            self._chance.skip(skipped)
        elif self._chance.is_due(None):
            self._hooks.before_step(self._optimizers.existing(), self._optimizer_begins)

    def _optimizer_begins(self, optimizer: Any) -> None:
        indices = self._parameter_lookup.of_optimizer(optimizer)
        for key, array in self._measured(indices, getattr(optimizer, "grad_scale", None)).items():
            self._sink.record_array(key, array)

    def _measured(self, indices: Iterable[int], scale: Any) -> dict[str, Any]:
        layers = self._layers
        parameters: dict[str, list[Any]] = {}
        gradients: dict[str, list[Any]] = {}
        for index in indices:
            name, parameter = layers.names[layers.layer_of[index]], layers.parameters[index]
            parameters.setdefault(name, []).append(parameter)
            if parameter.grad is not None:
                gradients.setdefault(name, []).append(parameter.grad)
        arrays = {
            f"histogram/parameter/{name}": histogram(self._torch, tensors)
            for name, tensors in parameters.items()
        }
        for name, tensors in gradients.items():
            array = histogram(self._torch, tensors)
            if scale is not None and array is not None:
                array[BUCKETS : BUCKETS + 4] /= to_device(scale.reshape(()), array.device)
            arrays[f"histogram/gradient/{name}"] = array
        return {key: array for key, array in arrays.items() if array is not None}


def histogram(torch: ModuleType, tensors: Sequence[Any]) -> Any:
    """A histogram of all elements of these tensors in the recorded format, on their device, without waiting.

    None if there are no elements, as on a rank without a shard of the parameter.
    """
    pieces = [piece for tensor in tensors for piece in _pieces(torch, tensor)]
    if not pieces:
        return None
    device = pieces[0].device
    pieces = [to_device(piece, device) for piece in pieces]
    wide = widest(torch, device)
    minimum, maximum, sums = zip(*(_extent(torch, piece, wide) for piece in pieces), strict=True)
    total, zeros, finite = torch.stack(sums).sum(0)
    low, high, mean = torch.stack(minimum).amin(), torch.stack(maximum).amax(), total / finite
    counts, squares = zip(*(_spread(torch, piece, (low, high, mean)) for piece in pieces), strict=True)
    elements = float(sum(piece.numel() for piece in pieces))
    nothing = torch.full_like(mean, torch.nan)
    figures = [torch.where(finite > 0, limit, nothing) for limit in (low, high)]
    figures += [mean, (torch.stack(squares).sum() / finite).sqrt(), zeros / elements, elements - finite]
    return torch.cat([torch.stack(counts).sum(0), torch.stack(figures), mean.new_full((1,), elements)])


def _pieces(torch: ModuleType, tensor: Any) -> Iterable[Any]:
    """The elements in pieces of limited size: results for all of them at once might not fit into memory."""
    flat = plain(torch, tensor).reshape(-1)
    return (flat[start : start + PIECE] for start in range(0, len(flat), PIECE))


def _extent(torch: ModuleType, piece: Any, wide: Any) -> tuple[Any, Any, Any]:
    """Minimum and maximum of the finite elements, and their sum, the number of zeros and their count."""
    numbers = _floats(torch, piece)
    is_finite = numbers.isfinite()
    minimum = torch.where(is_finite, numbers, torch.inf).amin()
    maximum = torch.where(is_finite, numbers, -torch.inf).amax()
    total = torch.where(is_finite, numbers, 0.0).sum(dtype=wide)
    sums = torch.stack([total, (numbers == 0).sum().to(wide), is_finite.sum().to(wide)])
    return minimum.to(wide), maximum.to(wide), sums


def _spread(torch: ModuleType, piece: Any, extent: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """How many elements are in each bucket, and the sum of their squared distances from the mean."""
    numbers = _floats(torch, piece)
    low, high, mean = (value.to(numbers.dtype) for value in extent)
    # Halves, because the difference of the two largest numbers of a type would overflow.
    width = high * 0.5 - low * 0.5
    positions = (numbers * 0.5 - low * 0.5) / torch.where(width > 0, width, 1.0)
    distances = torch.where(numbers.isfinite(), numbers - mean, 0.0)
    wide = extent[0].dtype
    return _counted(torch, positions).to(wide), distances.to(wide).square().sum()


def _counted(torch: ModuleType, positions: Any) -> Any:
    """The number of positions from 0 to 1 in each of 64 buckets, without non-finite ones."""
    if positions.is_cuda and torch.are_deterministic_algorithms_enabled():
        # With deterministic algorithms, torch has no histogram on a GPU, but can sort.
        return counted_by_sorting(torch, positions)
    return torch.histc(positions, BUCKETS, min=0, max=1)


def counted_by_sorting(torch: ModuleType, positions: Any) -> Any:
    """The same counts, computed deterministically."""
    # Non-finite positions would break the search: they are moved behind the end.
    ordered = torch.where(positions.isfinite(), positions, 2.0).sort().values
    limits = torch.arange(BUCKETS, device=positions.device) / BUCKETS
    below = torch.searchsorted(ordered, limits.to(positions.dtype))
    until = torch.searchsorted(ordered, torch.ones_like(ordered[:1]), right=True)
    return torch.cat([below, until]).diff()


def _floats(torch: ModuleType, piece: Any) -> Any:
    return piece if piece.dtype == torch.float64 else piece.to(torch.float32)
