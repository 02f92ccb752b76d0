"""Adds up the memory of parameters, gradients and optimizer state, and finds the largest live tensors."""

from __future__ import annotations

import gc
import heapq
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

MAX_NAMED = 10
"""How many of the largest tensors are listed."""

MAX_NAME_LENGTH = 160


@dataclass
class ParameterBytes:
    """The memory of one parameter, its gradient and its optimizer state."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    parameter_bytes: int
    gradient_bytes: int = 0
    optimizer_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The total of all three."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


@dataclass(frozen=True)
class TrainingBytes:
    """The memory of models and optimizers, and the largest parameters."""

    parameters_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    largest: tuple[ParameterBytes, ...] = field(default=())


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that a Python object refers to."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    held_bytes: int


def training_bytes(models: Iterable[Any], optimizers: Iterable[Any]) -> TrainingBytes:
    """The memory of models and optimizers; of a sharded tensor, that of the local shard."""
    by_id: dict[int, ParameterBytes] = {}
    for model in models:
        for name, parameter in model.named_parameters():
            if id(parameter) not in by_id:
                by_id[id(parameter)] = _of_parameter(name, parameter)
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            sizes = by_id.get(id(parameter))
            if sizes is None:
                sizes = by_id[id(parameter)] = _of_parameter("", parameter)
            sizes.optimizer_bytes += sum(map(size_bytes, _tensors_of(state)))
    parameters = list(by_id.values())
    return TrainingBytes(
        parameters_bytes=sum(parameter.parameter_bytes for parameter in parameters),
        gradients_bytes=sum(parameter.gradient_bytes for parameter in parameters),
        optimizer_bytes=sum(parameter.optimizer_bytes for parameter in parameters),
        largest=tuple(heapq.nlargest(MAX_NAMED, parameters, key=lambda parameter: parameter.total_bytes)),
    )


def largest_tensors(torch: ModuleType, device: str) -> list[LiveTensor]:
    """The largest live tensors on a type of device (`cuda`, `cpu`); one of all views of the same storage.

    Tensors that autograd has saved for the backward pass have no Python object and are not included.
    """
    storages: dict[int, LiveTensor] = {}
    for candidate in gc.get_objects():
        kind = type(candidate)
        # Only the type is checked first: accessing an attribute of an unknown object may run its code.
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            continue
        if candidate.device.type != device or candidate.layout is not torch.strided:
            continue
        storage = candidate.untyped_storage()
        address, previous = storage.data_ptr(), storages.get(storage.data_ptr())
        if address and (previous is None or prod(previous.shape) < candidate.numel()):
            shape = tuple(int(size) for size in candidate.shape)
            storages[address] = LiveTensor(
                shape, _short(candidate.dtype), str(candidate.device), storage.nbytes()
            )
    return heapq.nlargest(MAX_NAMED, storages.values(), key=lambda tensor: tensor.held_bytes)


def size_bytes(tensor: Any) -> int:
    """The bytes of a tensor's elements; of a sharded tensor, those of the local shard."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.numel() * local.element_size())


def _of_parameter(name: str, parameter: Any) -> ParameterBytes:
    gradient = parameter.grad if parameter.is_leaf else None
    return ParameterBytes(
        name=name[:MAX_NAME_LENGTH],
        shape=tuple(int(size) for size in parameter.shape),
        dtype=_short(parameter.dtype),
        device=str(parameter.device),
        parameter_bytes=size_bytes(parameter),
        gradient_bytes=0 if gradient is None else size_bytes(gradient),
    )


def _tensors_of(state: Any) -> Iterator[Any]:
    if isinstance(state, dict):
        for part in state.values():
            yield from _tensors_of(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _tensors_of(part)
    elif hasattr(state, "element_size"):
        yield state


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
