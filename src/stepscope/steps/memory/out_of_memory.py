"""Describes what used the memory when a training ran out of memory, on the GPU or on the host."""

from __future__ import annotations

import re
import sys
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stepscope.steps.evidence.batch_contents import CurrentBatch
from stepscope.steps.memory import oom_snapshot
from stepscope.steps.memory.tensor_bytes import largest_tensors, training_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    Section = tuple[str, Callable[[], Mapping[str, Any]]]

MAX_CAUSES = 8
"""Maximum number of chained exceptions to check: frameworks wrap what they catch."""

OUT_OF_MEMORY_CODE = 2
"""CUDA's error code for a failed allocation outside PyTorch's allocator."""

_ASKED = re.compile(r"ried to allocate ([\d.]+) ?(bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class WatchedObjects:
    """Weak references to the watched models and optimizers, and the current batch."""

    def __init__(self, batch: CurrentBatch | None = None) -> None:
        self.batch = batch or CurrentBatch()
        self._models: list[Callable[[], Any]] = []
        self._optimizers: list[Callable[[], Any]] = []
        self.on_added: Callable[[], None] = lambda: None
        """Called when a model has been added."""

    def add_model(self, model: Any, optimizers: Iterable[Any] = ()) -> None:
        """Adds a model and its optimizers."""
        self._models.append(weakref.ref(model))
        self._optimizers += [weakref.ref(optimizer) for optimizer in optimizers]
        self.on_added()

    @property
    def models(self) -> list[Any]:
        """The models that still exist."""
        return [model for reference in self._models if (model := reference()) is not None]

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that still exist."""
        return [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]


def describe_out_of_memory(
    error: BaseException, watched_objects: WatchedObjects | None = None
) -> dict[str, Any] | None:
    """The fields of the event `out_of_memory`; None for any other error.

    It never raises. What cannot be read is left out, and `not_told` says why.
    """
    torch = sys.modules.get("torch")
    for cause in _causes(error):
        if torch is not None and is_device_error(cause, torch):
            return _collected(_on_device(cause, torch, watched_objects or WatchedObjects()))
        if is_host_error(cause):
            return _collected(_on_host(cause, torch, watched_objects or WatchedObjects()))
    return None


def is_device_error(error: BaseException, torch: ModuleType) -> bool:
    """Whether a GPU ran out of memory."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    accelerator = getattr(torch, "AcceleratorError", None)
    return (
        accelerator is not None
        and isinstance(error, accelerator)
        and getattr(error, "error_code", None) == OUT_OF_MEMORY_CODE
    )


def is_host_error(error: BaseException) -> bool:
    """Whether the host ran out of memory."""
    # PyTorch has no exception type for it: only the allocator's name in the message identifies it.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in _text(error)
    )


def _on_device(error: BaseException, torch: ModuleType, watched_objects: WatchedObjects) -> Iterator[Section]:
    # Only PyTorch's own allocator reports failures; the last one is then this one.
    failure = oom_snapshot.last_failure() if isinstance(error, torch.cuda.OutOfMemoryError) else None
    device = failure.device if failure is not None else oom_snapshot.current_device(torch)
    yield "error", lambda: {"where": f"cuda:{device}", **_described(error)}
    yield (
        "allocator",
        lambda: dict(failure.fields) if failure is not None else oom_snapshot.device_fields(torch, device),
    )
    yield "tensors", lambda: _tensor_fields(torch, "cuda")
    yield "sites", lambda: oom_snapshot.allocation_sites(torch)
    yield from _training(watched_objects)


def _on_host(
    error: BaseException, torch: ModuleType | None, watched_objects: WatchedObjects
) -> Iterator[Section]:
    yield "error", lambda: {"where": "host", **_described(error)}
    yield "host", oom_snapshot.host_fields
    if torch is not None:
        yield "tensors", lambda: _tensor_fields(torch, "cpu")
    yield from _training(watched_objects)


def _training(watched_objects: WatchedObjects) -> Iterator[Section]:
    yield "batch", lambda: {"batch": [asdict(tensor) for tensor in watched_objects.batch.described()]}
    yield "training", lambda: _model_fields(watched_objects)


def _model_fields(watched_objects: WatchedObjects) -> dict[str, Any]:
    models = watched_objects.models
    if not models:
        return {}
    fields = asdict(training_bytes(models, watched_objects.optimizers))
    fields["largest_parameters"] = fields.pop("largest")
    return fields


def _tensor_fields(torch: ModuleType, device: str) -> dict[str, Any]:
    return {"largest_tensors": [asdict(tensor) for tensor in largest_tensors(torch, device)]}


def _collected(sections: Iterable[Section]) -> dict[str, Any]:
    """Collects the fields of each section separately: any of them may itself run out of memory."""
    fields: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, read in sections:
        try:
            fields.update(read())
        except Exception as error:  # noqa: BLE001 - the training's own error is the one to report
            missing[name] = type(error).__name__
    if missing:
        fields["not_told"] = missing
    return fields


def _described(error: BaseException) -> dict[str, Any]:
    asked = _asked_bytes(error)
    place = oom_snapshot.raised_at(error.__traceback__)
    fields: dict[str, Any] = {"error": type(error).__name__}
    if asked is not None:
        fields["asked_bytes"] = asked
    if place is not None:
        fields["raised_at"] = place
    return fields


def _asked_bytes(error: BaseException) -> int | None:
    """The size of the failed allocation: from NumPy's exception, else from the message, which is rounded."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is not None and dtype is not None:
        total = int(dtype.itemsize)
        for size in shape:
            total *= int(size)
        return total
    size = _ASKED.search(_text(error))
    return None if size is None else int(float(size[1]) * _UNITS[size[2]])


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _text(error: BaseException) -> str:
    return str(error.args[0]) if error.args else ""
