"""Makes smaller copies of a model: dynamic int8, half and brain floats."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StepscopeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.profiling.model.inputs import Batch

INT8 = "dynamic_int8"
CASTS = ("float16", "bfloat16")


class CannotMake(StepscopeError):
    """A variant that this machine or this model does not allow, with the reason."""


def check_name(name: str) -> None:
    """Raises ConfigError for a name that no variant has."""
    if name not in (INT8, *CASTS):
        raise ConfigError(f"variants has {name!r}; there are {', '.join((INT8, *CASTS))}.")


def variant_of(torch: Any, model: Any, name: str) -> tuple[Any, Callable[[Batch], Batch]]:
    """A changed copy of a model, and what to do to its inputs; raises CannotMake with the reason."""
    if name == INT8:
        return _int8(torch, copy.deepcopy(model)), lambda batch: batch
    number = getattr(torch, name)

    def cast(tensor: Any) -> Any:
        return tensor.to(number) if tensor.is_floating_point() else tensor

    return copy.deepcopy(model).to(number), lambda batch: batch.changed(cast)


def int8_method(device: Any) -> str:
    """How int8 is made on a device."""
    if device.type == "cpu":
        return "torch.ao.quantization.quantize_dynamic: weights of linear and recurrent layers in int8"
    return "torchao: weights and activations of linear layers in int8"


def _int8(torch: Any, model: Any) -> Any:
    nn = torch.nn
    kinds = {nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell}
    if not any(type(part) in kinds for part in model.modules()):
        raise CannotMake("the model has no linear or recurrent layer")
    if any(one.device.type != "cpu" for one in model.parameters()):
        return _int8_on_device(model)
    if torch.backends.quantized.engine in {"none", ""}:
        raise CannotMake("this build of torch has no engine for int8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends torchao instead, which few have
        from torch.ao.quantization import quantize_dynamic  # lazy: torch is an extra

        return quantize_dynamic(model, kinds, dtype=torch.qint8, inplace=True)  # type: ignore[no-untyped-call]


def _int8_on_device(model: Any) -> Any:
    if importlib.util.find_spec("torchao") is None:
        raise CannotMake("int8 on a GPU needs torchao: pip install torchao")
    from torchao.quantization import (  # type: ignore[import-not-found]  # lazy: seldom installed
        Int8DynamicActivationInt8WeightConfig,
        quantize_,
    )

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model
