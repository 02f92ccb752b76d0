"""`Histograms`: how parameters and gradients are spread, layer by layer, at steps chosen by chance."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.gradient_look import Subjects
from stepscope.model_stats.gradients import plain, to_device, widest
from stepscope.model_stats.histogram_format import BUCKETS, Histogram
from stepscope.model_stats.hooking import Hooks, as_list
from stepscope.model_stats.layers import Layers
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.random_sampling import NEVER, RandomSampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

PIECE = 1 << 22
"""So many elements are counted at a time: counts come as float32, which is exact up to four times that."""


class Histograms:
    """Records a histogram for each layer, of its parameters and of their gradients, before an optimizer step.

    It costs several passes over all of them, so nobody gets it without asking: `every_steps` is the number of
    steps between two looks on average. With several optimizers each is looked at when it steps.
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
        import torch  # lazy: whoever has a model has it

        self._torch, self._model = torch, model
        self._outlets = outlets or MetricSink()
        self._hooks = Hooks(torch, "The histograms", self._outlets.guard, self._outlets.optimizer_steps)
        self._chance = RandomSampling(1.0, every_steps, _draw)
        self._optimizers = as_list(optimizer)
        self.due = 1
        """After so many further steps it is to be asked by `after_step`."""
        if outlets is not None:
            self._attend_or_pause()

    def measure(self) -> dict[str, Histogram]:
        """Histograms as of now, under the keys they are recorded by; waits for the device to have them."""
        with self._torch.no_grad():
            found = self._taken(range(len(self._layers.parameters)), None)
            return {key: Histogram.read(array.tolist()) for key, array in found.items()}

    def after_step(self, step: int) -> Mapping[str, float]:
        """Nothing: arrays are no figures of a row. Gets ready for the next step, or waits for a later one."""
        self._attend_or_pause()
        return {}

    def close(self) -> None:
        """Takes the hooks away."""
        self._hooks.remove()

    @functools.cached_property
    def _layers(self) -> Layers:
        return Layers.of(self._model)

    @functools.cached_property
    def _subjects(self) -> Subjects:
        return Subjects(self._layers)

    def _attend_or_pause(self) -> None:
        self._hooks.remove()
        quiet = NEVER if self._hooks.rests else self._chance.quiet_steps(None)
        self.due = max(quiet, 1)
        if quiet:
            self._chance.skip(quiet)
        elif self._chance.is_due(None):
            self._hooks.before_step(self._optimizers, self._optimizer_begins)

    def _optimizer_begins(self, optimizer: Any) -> None:
        places = self._subjects.of_optimizer(optimizer)
        for key, array in self._taken(places, getattr(optimizer, "grad_scale", None)).items():
            self._outlets.record_array(key, array)

    def _taken(self, places: Iterable[int], scale: Any) -> dict[str, Any]:
        layers = self._layers
        parameters: dict[str, list[Any]] = {}
        gradients: dict[str, list[Any]] = {}
        for place in places:
            name, one = layers.names[layers.layer_of[place]], layers.parameters[place]
            parameters.setdefault(name, []).append(one)
            if one.grad is not None:
                gradients.setdefault(name, []).append(one.grad)
        found = {
            f"histogram/parameter/{name}": histogram(self._torch, some) for name, some in parameters.items()
        }
        for name, some in gradients.items():
            array = histogram(self._torch, some)
            if scale is not None and array is not None:
                array[BUCKETS : BUCKETS + 4] /= to_device(scale.reshape(()), array.device)
            found[f"histogram/gradient/{name}"] = array
        return {key: array for key, array in found.items() if array is not None}


def histogram(torch: ModuleType, tensors: Sequence[Any]) -> Any:
    """A histogram of all elements of these tensors, as it is recorded; where they lie, without waiting.

    None when there are no elements, as in a rank that holds no part of a sharded parameter.
    """
    pieces = [piece for tensor in tensors for piece in _pieces(torch, tensor)]
    if not pieces:
        return None
    device = pieces[0].device
    pieces = [to_device(piece, device) for piece in pieces]
    wide = widest(torch, device)
    least, greatest, sums = zip(*(_extent(torch, piece, wide) for piece in pieces), strict=True)
    total, zeros, finite = torch.stack(sums).sum(0)
    low, high, mean = torch.stack(least).amin(), torch.stack(greatest).amax(), total / finite
    counts, squares = zip(*(_spread(torch, piece, (low, high, mean)) for piece in pieces), strict=True)
    elements = float(sum(piece.numel() for piece in pieces))
    nothing = torch.full_like(mean, torch.nan)
    figures = [torch.where(finite > 0, one, nothing) for one in (low, high)]
    figures += [mean, (torch.stack(squares).sum() / finite).sqrt(), zeros / elements, elements - finite]
    return torch.cat([torch.stack(counts).sum(0), torch.stack(figures), mean.new_full((1,), elements)])


def _pieces(torch: ModuleType, tensor: Any) -> Iterable[Any]:
    """The elements, a bounded number at a time: what is computed from all of them at once might not fit."""
    flat = plain(torch, tensor).reshape(-1)
    return (flat[start : start + PIECE] for start in range(0, len(flat), PIECE))


def _extent(torch: ModuleType, piece: Any, wide: Any) -> tuple[Any, Any, Any]:
    """Least and greatest of the finite elements; their sum, the number of zeros and their own number."""
    numbers = _floats(torch, piece)
    is_finite = numbers.isfinite()
    least = torch.where(is_finite, numbers, torch.inf).amin()
    greatest = torch.where(is_finite, numbers, -torch.inf).amax()
    total = torch.where(is_finite, numbers, 0.0).sum(dtype=wide)
    sums = torch.stack([total, (numbers == 0).sum().to(wide), is_finite.sum().to(wide)])
    return least.to(wide), greatest.to(wide), sums


def _spread(torch: ModuleType, piece: Any, extent: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """How many elements are in each bucket, and the sum of their squared distances from the mean."""
    numbers = _floats(torch, piece)
    low, high, mean = (one.to(numbers.dtype) for one in extent)
    # Halves, because the difference of the two largest numbers of a type is no number of it.
    width = high * 0.5 - low * 0.5
    positions = (numbers * 0.5 - low * 0.5) / torch.where(width > 0, width, 1.0)
    distances = torch.where(numbers.isfinite(), numbers - mean, 0.0)
    wide = extent[0].dtype
    return _counted(torch, positions).to(wide), distances.to(wide).square().sum()


def _counted(torch: ModuleType, positions: Any) -> Any:
    """How many positions from 0 to 1 lie in each of 64 buckets; what is not finite lies in none."""
    if positions.is_cuda and torch.are_deterministic_algorithms_enabled():
        # Asked for determinism, torch refuses to count on a GPU; it still sorts.
        return counted_by_sorting(torch, positions)
    return torch.histc(positions, BUCKETS, min=0, max=1)


def counted_by_sorting(torch: ModuleType, positions: Any) -> Any:
    """The same counts, worked out in a way that is the same every time."""
    # Nothing that is not finite may take part in a search: it is put behind the end.
    ordered = torch.where(positions.isfinite(), positions, 2.0).sort().values
    limits = torch.arange(BUCKETS, device=positions.device) / BUCKETS
    below = torch.searchsorted(ordered, limits.to(positions.dtype))
    until = torch.searchsorted(ordered, torch.ones_like(ordered[:1]), right=True)
    return torch.cat([below, until]).diff()


def _floats(torch: ModuleType, piece: Any) -> Any:
    return piece if piece.dtype == torch.float64 else piece.to(torch.float32)
