"""Measures the effect of smaller number types: size, latency, and difference of the outputs."""

from __future__ import annotations

import copy
import importlib.util
import io
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StepscopeError
from stepscope.profiling.model.inputs import Batch, example_batch
from stepscope.profiling.model.outputs import Difference, are_identical, difference
from stepscope.profiling.model.timings import Repeats, Timings, device_clock, repeated, timings_of
from stepscope.profiling.plain_data import Described
from stepscope.profiling.preserved_state import device_of, inference_mode
from stepscope.profiling.torch_library import torch_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.profiling.model.inputs import Batch
    from stepscope.profiling.model.timings import Clock

ORIGINAL = "original"
METHOD = (
    "size is that of the saved state; latency of a forward pass over all inputs, in evaluation mode without "
    "gradients; differences against the original's outputs for the same inputs"
)
INT8 = "dynamic_int8"
CASTS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Variant(Described):
    """A model with another number type; one that cannot be run has only a reason."""

    name: str
    reason: str | None = None
    """Why it could not be run; None if it was."""
    size_bytes: int | None = None
    size_ratio: float | None = None
    """Relative to the original."""
    latency: Timings | None = None
    speedup_ratio: float | None = None
    """Speed relative to the original, by the median."""
    difference: Difference | None = None
    """Difference of its outputs from the original's; None for the original itself."""
    is_consistent: bool | None = None
    """Whether the same input had the same output, bit for bit."""
    method: str = ""


@dataclass(frozen=True)
class QuantisationImpact(Described):
    """A model and its smaller variants."""

    original: Variant
    variants: tuple[Variant, ...]
    samples: int
    """Number of inputs whose outputs were compared."""
    device: str
    method: str = METHOD


def quantisation_impact(
    model: Any,
    inputs: Any,
    variants: Sequence[str] = (INT8, *CASTS),
    repeats: Repeats | None = None,
    clock: Clock = time.perf_counter,
) -> QuantisationImpact:
    """Measures copies of a model; the model itself is not changed.

    `inputs` is a tensor, a list or tuple of arguments or a mapping of keyword arguments; use real samples to
    get meaningful differences. A variant that cannot be created or run is reported with the reason.
    """
    torch = torch_for("Quantisation impact")
    for name in variants:
        check_name(name)
    device = device_of(torch, model)
    trial = _Trial(torch, example_batch(torch, inputs, None, device), repeats or Repeats(30, 3), clock)
    original, answer = trial.original(model)
    return QuantisationImpact(
        original,
        tuple(trial.variant(model, name, original, answer) for name in variants),
        trial.samples,
        str(device),
    )


class _Trial:
    """Measures the original and each variant in the same way."""

    def __init__(self, torch: Any, batch: Batch, repeats: Repeats, clock: Clock) -> None:
        self._torch, self._batch = torch, batch
        self._repeats, self._clock = repeats, clock
        self.samples = batch.size

    def original(self, model: Any) -> tuple[Variant, Any]:
        """The unchanged model, and its output."""
        timings, answer, is_consistent = self._run(model, self._batch)
        size_bytes = saved_bytes(self._torch, model)
        return (
            Variant(
                ORIGINAL,
                size_bytes=size_bytes,
                size_ratio=1.0,
                latency=timings,
                speedup_ratio=1.0,
                is_consistent=is_consistent,
                method="as it is",
            ),
            answer,
        )

    def variant(self, model: Any, name: str, original: Variant, answer: Any) -> Variant:
        """A variant, or why there is none."""
        try:
            return self._measured(model, name, original, answer)
        except Exception as error:  # noqa: BLE001 - a model may raise anything with another number type
            return Variant(name, reason=str(error).splitlines()[0] if str(error) else repr(error))

    def _measured(self, model: Any, name: str, original: Variant, answer: Any) -> Variant:
        changed, prepare = variant_of(self._torch, model, name)
        timings, other, is_consistent = self._run(changed, prepare(self._batch))
        size_bytes = saved_bytes(self._torch, changed)
        before = original.latency
        return Variant(
            name,
            size_bytes=size_bytes,
            size_ratio=size_bytes / original.size_bytes if original.size_bytes else None,
            latency=timings,
            speedup_ratio=before.p50_seconds / timings.p50_seconds
            if before and timings.p50_seconds
            else None,
            difference=difference(self._torch, answer, other),
            is_consistent=is_consistent,
            method=int8_method(device_of(self._torch, model))
            if name == INT8
            else f"model and inputs cast to {name}",
        )

    def _run(self, model: Any, batch: Batch) -> tuple[Timings, Any, bool]:
        clock = device_clock(self._torch, device_of(self._torch, model), self._clock)
        with inference_mode(self._torch, model):
            answer = batch.fed_to(model)
            is_consistent = are_identical(self._torch, answer, batch.fed_to(model))
            taken = repeated(lambda: batch.fed_to(model), self._repeats, clock)
        return timings_of(taken), answer, is_consistent


def saved_bytes(torch: Any, model: Any) -> int:
    """The size of a model's state as saved by torch.save; nothing is written."""
    counter = _Counter()
    torch.save(model.state_dict(), counter)
    return counter.count_bytes


class _Counter(io.RawIOBase):
    """A file that only counts the bytes written to it."""

    count_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        length = memoryview(data).nbytes
        self.count_bytes += length
        return length


class CannotConvert(StepscopeError):
    """A variant that is not possible for this model or machine, with the reason."""


def check_name(name: str) -> None:
    """Raises ConfigError for an unknown variant."""
    if name not in (INT8, *CASTS):
        raise ConfigError(f"variants has {name!r}; there are {', '.join((INT8, *CASTS))}.")


def variant_of(torch: Any, model: Any, name: str) -> tuple[Any, Callable[[Batch], Batch]]:
    """A converted copy of a model, and a function that converts its inputs; raises CannotConvert."""
    if name == INT8:
        return _int8(torch, copy.deepcopy(model)), lambda batch: batch
    number = getattr(torch, name)

    def cast(tensor: Any) -> Any:
        return tensor.to(number) if tensor.is_floating_point() else tensor

    return copy.deepcopy(model).to(number), lambda batch: batch.changed(cast)


def int8_method(device: Any) -> str:
    """How a model is converted to int8 on a device."""
    if device.type == "cpu":
        return "torch.ao.quantization.quantize_dynamic: weights of linear and recurrent layers in int8"
    return "torchao: weights and activations of linear layers in int8"


def _int8(torch: Any, model: Any) -> Any:
    nn = torch.nn
    kinds = {nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell}
    if not any(type(part) in kinds for part in model.modules()):
        raise CannotConvert("the model has no linear or recurrent layer")
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return _int8_on_device(model)
    if torch.backends.quantized.engine in {"none", ""}:
        raise CannotConvert("this build of torch has no engine for int8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends torchao instead, which is rarely installed
        from torch.ao.quantization import quantize_dynamic  # lazy: torch is an extra

        return quantize_dynamic(model, kinds, dtype=torch.qint8, inplace=True)  # type: ignore[no-untyped-call]


def _int8_on_device(model: Any) -> Any:
    if importlib.util.find_spec("torchao") is None:
        raise CannotConvert("int8 on a GPU needs torchao: pip install torchao")
    from torchao.quantization import (  # type: ignore[import-not-found]  # lazy: rarely installed
        Int8DynamicActivationInt8WeightConfig,
        quantize_,
    )

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model
