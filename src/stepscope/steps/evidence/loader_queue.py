"""Reads how many batches are ready when a step has ended, and how the data loader is set up."""

from __future__ import annotations

import multiprocessing
import sys
import weakref
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_LOADERS = 20
"""Maximum number of loaders to describe, for loops that keep creating new ones."""

MIN_OBJECTS = 50_000
"""A collection with fewer Python objects is not described: copies of it are small."""

SAMPLED_OBJECTS, SAMPLED_PARTS = 16, 8
"""How many objects of a collection are measured, and how many parts of each."""

MAX_NESTED = 8
"""How many datasets within each other are read."""

_COLLECTIONS = (list, tuple, dict, set, frozenset)
_OBJECT_BYTES = 64
"""About what an object takes whose size is not known without running its own code."""


class LoaderQueue:
    """Reads the queue of a PyTorch data loader with workers; other loaders have no queue."""

    def __init__(self, record_event: Callable[..., None]) -> None:
        self._record_event = record_event
        self._recorded: list[dict[str, Any]] = []
        self._iterator: Callable[[], Any] = _no_iterator
        self._has_queue = False

    def follow(self, iterator: Any) -> None:
        """Sets the iterator that batches come from; cheap if it is the same one."""
        if self._iterator() is not iterator:
            self._describe(iterator)

    def read(self, steps: int) -> Mapping[str, float]:
        """The number of batches that are ready."""
        iterator = self._iterator() if self._has_queue else None
        if iterator is None:
            return {}
        # Batches in the workers' queue, and batches that arrived out of order and wait in this process.
        early = len(iterator._task_info) - iterator._tasks_outstanding  # noqa: SLF001 - it has no public name
        return {"loader/ready_batches": float(max(iterator._data_queue.qsize() + early, 0))}  # noqa: SLF001 - nor does this

    def close(self) -> None:
        """Drops the iterator."""
        self._iterator, self._has_queue = _no_iterator, False

    def _describe(self, iterator: Any) -> None:
        """Describes a new iterator. Only a weak reference is kept: its workers live as long as it does."""
        self._has_queue = False
        try:
            self._iterator = weakref.ref(iterator)
        except TypeError:  # such as that of a list
            self._iterator = _no_iterator
            return
        setup = describe_loader(iterator)
        if setup is None:
            return
        self._has_queue = _can_be_counted(iterator)
        if setup not in self._recorded and len(self._recorded) < MAX_LOADERS:
            self._recorded.append(setup)
            self._record_event("loader", **setup)


def describe_loader(iterator: Any) -> dict[str, Any] | None:
    """The setup of an iterator's data loader; None if it is not PyTorch's."""
    workers = getattr(iterator, "_num_workers", None)
    if workers is None or not hasattr(iterator, "_index_sampler"):
        return None
    batches = iterator._index_sampler  # noqa: SLF001 - an iterator has no public way back to its loader
    start_method = _start_method(iterator)
    setup: dict[str, Any] = {
        "num_workers": workers,
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "batch_size": getattr(batches, "batch_size", None),
        "drop_last": bool(getattr(iterator, "_drop_last", False)),
        "in_order": getattr(iterator, "_in_order", None),
        "start_method": start_method,
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
        "sampler": type(getattr(batches, "sampler", batches)).__name__,
    }
    objects = python_objects(getattr(iterator, "_dataset", None)) if start_method == "fork" else None
    return setup if objects is None else {**setup, "python_objects": objects}


def python_objects(dataset: Any) -> dict[str, Any] | None:
    """The largest collection of Python objects in a dataset: workers copy its pages by counting references.

    Count and size are estimates with two digits. Nothing of the user's own is called: attributes are read
    from the dictionary of the dataset, and only collections of built-in types count.
    """
    collections: list[dict[str, Any]] = []
    for name, values in _attributes(dataset):
        if type(values) in _COLLECTIONS and len(values) >= MIN_OBJECTS:
            with suppress(RuntimeError):  # another thread changes it
                size = _rounded(sys.getsizeof(values) + len(values) * _mean_bytes(values))
                kind = type(values).__name__
                collections.append(
                    {"place": name, "kind": kind, "count": _rounded(len(values)), "bytes": size}
                )
    return max(collections, key=lambda described: described["bytes"], default=None)


def _attributes(dataset: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a dataset and of those inside it, such as that of a subset."""
    datasets = [dataset]
    for number, current in enumerate(datasets):
        own = _own_attributes(current)
        yield from own.items()
        inner: Any = own.get("datasets")
        nested = [own.get("dataset"), *(inner[:MAX_NESTED] if type(inner) in (list, tuple) else ())]
        if number < MAX_NESTED:
            datasets += [each for each in nested if each is not None]


def _own_attributes(value: Any) -> dict[str, Any]:
    with suppress(AttributeError):
        own = object.__getattribute__(value, "__dict__")
        return dict(own) if type(own) is dict else {}
    return {}


def _mean_bytes(values: Any) -> float:
    count = len(values)
    if type(values) in (list, tuple):
        sampled = [_bytes_of(values[place]) for place in range(0, count, -(-count // SAMPLED_OBJECTS))]
    elif type(values) is dict:
        pairs = islice(values.items(), SAMPLED_OBJECTS)
        sampled = [_bytes_of(key) + _bytes_of(value) for key, value in pairs]
    else:
        sampled = [_bytes_of(value) for value in islice(values, SAMPLED_OBJECTS)]
    return sum(sampled) / max(len(sampled), 1)


def _bytes_of(value: Any, depth: int = 2) -> int:
    """About how much memory an object takes that has a reference count, without the data of arrays."""
    kind = type(value)
    if kind in (str, bytes, int, float):
        return sys.getsizeof(value)
    if kind in _COLLECTIONS:
        pairs = value.items() if kind is dict else ()
        parts = islice((part for pair in pairs for part in pair) if pairs else value, 2 * SAMPLED_PARTS)
        return sys.getsizeof(value) + (sum(_bytes_of(part, depth - 1) for part in parts) if depth else 0)
    inside = sum(_bytes_of(part, 0) for part in islice(_own_attributes(value).values(), SAMPLED_PARTS))
    return _OBJECT_BYTES + inside


def _rounded(count: float) -> int:
    return int(float(f"{count:.2g}"))


def _start_method(iterator: Any) -> str | None:
    """How its workers were started: fork, spawn or forkserver; None without workers."""
    workers = getattr(iterator, "_workers", None)
    if not workers:
        return None
    return getattr(workers[0], "_start_method", None) or multiprocessing.get_start_method(allow_none=True)


def _can_be_counted(iterator: Any) -> bool:
    try:
        iterator._data_queue.qsize()  # noqa: SLF001 - it has no public name
    except (AttributeError, NotImplementedError):  # no workers, or a system whose semaphores have no value
        return False
    return hasattr(iterator, "_task_info") and hasattr(iterator, "_tasks_outstanding")


def _no_iterator() -> None:
    """Stands for a weak reference when there is no iterator."""
