"""Writes down what held the memory when a training ran out of it, on the GPU or on the host."""

from __future__ import annotations

import re
import sys
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stepscope.steps.evidence.batch_contents import BatchInHand
from stepscope.steps.memory import oom_snapshot
from stepscope.steps.memory.tensor_bytes import largest_tensors, training_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    Section = tuple[str, Callable[[], Mapping[str, Any]]]

MAX_CAUSES = 8
"""Errors that are looked at behind the one that arrived: frameworks wrap what they catch."""

OUT_OF_MEMORY_CODE = 2
"""What CUDA calls the failure of an allocation outside PyTorch's allocator."""

_ASKED = re.compile(r"ried to allocate ([\d.]+) ?(bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Witness:
    """Knows what a post-mortem asks for: models, optimizers, and the batch in hand. None is kept alive."""

    def __init__(self, batch: BatchInHand | None = None) -> None:
        self.batch = batch or BatchInHand()
        self._models: list[Callable[[], Any]] = []
        self._optimizers: list[Callable[[], Any]] = []

    def know(self, model: Any, optimizers: Iterable[Any] = ()) -> None:
        """Takes in a model and its optimizers."""
        self._models.append(weakref.ref(model))
        self._optimizers += [weakref.ref(one) for one in optimizers]

    @property
    def models(self) -> list[Any]:
        """Those that are still there."""
        return [one for known in self._models if (one := known()) is not None]

    @property
    def optimizers(self) -> list[Any]:
        """Those that are still there."""
        return [one for known in self._optimizers if (one := known()) is not None]


def describe_out_of_memory(error: BaseException, witness: Witness | None = None) -> dict[str, Any] | None:
    """The fields of the event `out_of_memory`; None for an error that is something else.

    It never raises. What cannot be found out is left out, and `not_told` says why.
    """
    torch = sys.modules.get("torch")
    for cause in _causes(error):
        if torch is not None and is_device_error(cause, torch):
            return _told(_on_device(cause, torch, witness or Witness()))
        if is_host_error(cause):
            return _told(_on_host(cause, torch, witness or Witness()))
    return None


def is_device_error(error: BaseException, torch: ModuleType) -> bool:
    """Whether a GPU had no room."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    accelerator = getattr(torch, "AcceleratorError", None)
    return (
        accelerator is not None
        and isinstance(error, accelerator)
        and getattr(error, "error_code", None) == OUT_OF_MEMORY_CODE
    )


def is_host_error(error: BaseException) -> bool:
    """Whether the host had no room."""
    # PyTorch has no type of its own for it: the name of its allocator is all there is.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in _text(error)
    )


def _on_device(error: BaseException, torch: ModuleType, witness: Witness) -> Iterator[Section]:
    # Only PyTorch's own allocator tells of its refusals; the last one is then this one.
    said = oom_snapshot.last_refusal() if isinstance(error, torch.cuda.OutOfMemoryError) else None
    device = said.device if said is not None else oom_snapshot.current_device(torch)
    yield "error", lambda: {"where": f"cuda:{device}", **_described(error)}
    yield (
        "allocator",
        lambda: dict(said.fields) if said is not None else oom_snapshot.device_fields(torch, device),
    )
    yield "tensors", lambda: {"largest_tensors": [asdict(one) for one in largest_tensors(torch, "cuda")]}
    yield "sites", lambda: oom_snapshot.allocation_sites(torch)
    yield from _training(witness)


def _on_host(error: BaseException, torch: ModuleType | None, witness: Witness) -> Iterator[Section]:
    yield "error", lambda: {"where": "host", **_described(error)}
    yield "host", oom_snapshot.host_fields
    if torch is not None:
        yield "tensors", lambda: {"largest_tensors": [asdict(one) for one in largest_tensors(torch, "cpu")]}
    yield from _training(witness)


def _training(witness: Witness) -> Iterator[Section]:
    yield "batch", lambda: {"batch": [asdict(one) for one in witness.batch.described()]}
    yield "training", lambda: _model_fields(witness)


def _model_fields(witness: Witness) -> dict[str, Any]:
    models = witness.models
    if not models:
        return {}
    found = asdict(training_bytes(models, witness.optimizers))
    found["largest_parameters"] = found.pop("largest")
    return found


def _told(sections: Iterable[Section]) -> dict[str, Any]:
    """Each part by itself: where memory has run out, any of them may fail for want of it."""
    fields: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, find in sections:
        try:
            fields.update(find())
        except Exception as error:  # noqa: BLE001 - the training is dying already, and of something else
            missing[name] = type(error).__name__
    if missing:
        fields["not_told"] = missing
    return fields


def _described(error: BaseException) -> dict[str, Any]:
    asked = _asked_bytes(error)
    place = oom_snapshot.raised_at(error.__traceback__)
    found: dict[str, Any] = {"error": type(error).__name__}
    if asked is not None:
        found["asked_bytes"] = asked
    if place is not None:
        found["raised_at"] = place
    return found


def _asked_bytes(error: BaseException) -> int | None:
    """How much was asked for: as NumPy's error knows it, else as the text says it, rounded there."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is not None and dtype is not None:
        total = int(dtype.itemsize)
        for size in shape:
            total *= int(size)
        return total
    found = _ASKED.search(_text(error))
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__


def _text(error: BaseException) -> str:
    return str(error.args[0]) if error.args else ""
