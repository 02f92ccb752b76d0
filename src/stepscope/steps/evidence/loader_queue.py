"""Reads how many batches are ready when a step has ended, and how the data loader is set up."""

from __future__ import annotations

import multiprocessing
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_LOADERS = 20
"""Maximum number of loaders to describe, for loops that keep creating new ones."""


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
    return {
        "num_workers": workers,
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "batch_size": getattr(batches, "batch_size", None),
        "drop_last": bool(getattr(iterator, "_drop_last", False)),
        "in_order": getattr(iterator, "_in_order", None),
        "start_method": _start_method(iterator),
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
        "sampler": type(getattr(batches, "sampler", batches)).__name__,
    }


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
