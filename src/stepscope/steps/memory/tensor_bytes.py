"""Adds up what tensors take: parameters with their gradients and optimizer state, and the largest alive."""

from __future__ import annotations

import gc
import heapq
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

NAMED = 10
"""How many of the largest are named."""

LONGEST_NAME = 160


@dataclass
class ParameterBytes:
    """What one parameter takes, with what belongs to it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    parameter_bytes: int
    gradient_bytes: int = 0
    optimizer_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it together."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


@dataclass(frozen=True)
class TrainingBytes:
    """What models and optimizers take, and the parameters that take most."""

    parameters_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    largest: tuple[ParameterBytes, ...] = field(default=())


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that Python holds."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    held_bytes: int


def training_bytes(models: Iterable[Any], optimizers: Iterable[Any]) -> TrainingBytes:
    """What models and optimizers take; of a sharded tensor, the shard that lies here."""
    found: dict[int, ParameterBytes] = {}
    for model in models:
        for name, parameter in model.named_parameters():
            if id(parameter) not in found:
                found[id(parameter)] = _of_parameter(name, parameter)
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            known = found.get(id(parameter))
            if known is None:
                known = found[id(parameter)] = _of_parameter("", parameter)
            known.optimizer_bytes += sum(map(size_bytes, _tensors_of(state)))
    every = list(found.values())
    return TrainingBytes(
        parameters_bytes=sum(one.parameter_bytes for one in every),
        gradients_bytes=sum(one.gradient_bytes for one in every),
        optimizer_bytes=sum(one.optimizer_bytes for one in every),
        largest=tuple(heapq.nlargest(NAMED, every, key=lambda one: one.total_bytes)),
    )


def largest_tensors(torch: ModuleType, device: str) -> list[LiveTensor]:
    """The largest tensors on a kind of device (`cuda`, `cpu`) that Python holds; of views of one memory, one.

    What autograd has saved for the backward pass is held by no Python object and is not among them.
    """
    storages: dict[int, LiveTensor] = {}
    for thing in gc.get_objects():
        kind = type(thing)
        # Nothing but the type is looked at: asking an object of unknown make anything can set it in motion.
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            continue
        if thing.device.type != device or thing.layout is not torch.strided:
            continue
        storage = thing.untyped_storage()
        address, known = storage.data_ptr(), storages.get(storage.data_ptr())
        if address and (known is None or prod(known.shape) < thing.numel()):
            shape = tuple(int(size) for size in thing.shape)
            storages[address] = LiveTensor(shape, _short(thing.dtype), str(thing.device), storage.nbytes())
    return heapq.nlargest(NAMED, storages.values(), key=lambda one: one.held_bytes)


def size_bytes(tensor: Any) -> int:
    """The bytes of a tensor's elements, or of those that lie here where it is spread over ranks."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.numel() * local.element_size())


def _of_parameter(name: str, parameter: Any) -> ParameterBytes:
    gradient = parameter.grad if parameter.is_leaf else None
    return ParameterBytes(
        name=name[:LONGEST_NAME],
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
