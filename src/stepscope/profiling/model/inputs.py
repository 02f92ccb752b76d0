"""Creates batches of any size from an example, or from a shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 0


@dataclass(frozen=True)
class Batch:
    """The arguments of a model call."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    size: int

    def fed_to(self, model: Any) -> Any:
        """Calls a model with the batch."""
        return model(*self.arguments, **self.named)

    def changed(self, change: Callable[[Any], Any]) -> Batch:
        """The same batch with `change` applied to every tensor; it must keep the number of rows."""
        return Batch(
            tuple(_changed(argument, change) for argument in self.arguments),
            {name: _changed(argument, change) for name, argument in self.named.items()},
            self.size,
        )


def example_batch(torch: Any, example: Any, input_shape: Sequence[int] | None, device: Any) -> Batch:
    """The example as a batch on a device, or one row of random numbers of a shape.

    A tensor is the only argument, a list or tuple the positional arguments, a mapping the keyword arguments.
    """
    if (example is None) == (input_shape is None):
        raise ConfigError("Pass either an example batch or input_shape, the shape of one sample.")
    if input_shape is not None:
        # A separate generator: the training's random numbers must not change.
        generator = torch.Generator().manual_seed(SEED)
        example = torch.randn((1, *input_shape), generator=generator)
    if isinstance(example, Mapping):
        arguments, named = (), dict(example)
    else:
        arguments, named = tuple(example) if isinstance(example, list | tuple) else (example,), {}
    size = _rows(torch, (*arguments, *named.values()))
    return Batch(arguments, named, size).changed(lambda tensor: tensor.detach().to(device))


def of_size(torch: Any, batch: Batch, size: int) -> Batch:
    """A batch of another size, made by repeating the rows of the example."""

    def repeat(tensor: Any) -> Any:
        if tensor.ndim == 0 or tensor.shape[0] != batch.size:
            return tensor  # it does not have a row per sample
        rows = torch.arange(size, device=tensor.device) % batch.size
        return tensor.index_select(0, rows)

    other = batch.changed(repeat)
    return Batch(other.arguments, other.named, size)


def _rows(torch: Any, values: tuple[Any, ...]) -> int:
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim > 0:
            if value.shape[0] == 0:
                raise ConfigError("The example batch is empty; pass at least one sample.")
            return int(value.shape[0])
    raise ConfigError("The example batch has no tensor with a row for each sample.")


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    return change(value) if hasattr(value, "index_select") else value
