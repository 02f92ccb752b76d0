"""Reads how many batches lie ready when a step has ended, and how the data loader is set up."""

from __future__ import annotations

import multiprocessing
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_LOADERS = 20
"""Loaders that are described: a loop that makes ever new ones is not told of for ever."""


class LoaderQueue:
    """Looks at the iterator of a PyTorch data loader that has workers; others have no queue."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._told: list[dict[str, Any]] = []
        self._met: Callable[[], Any] = _nobody
        self._has_queue = False

    def meet(self, iterator: Any) -> None:
        """Batches come from this iterator from now on; telling it again costs little."""
        if self._met() is not iterator:
            self._meet(iterator)

    def look(self, steps: int) -> Mapping[str, float]:
        """Batches that lie ready."""
        iterator = self._met() if self._has_queue else None
        if iterator is None:
            return {}
        # What workers have put there, and what came before its turn and lies in this process.
        early = len(iterator._task_info) - iterator._tasks_outstanding  # noqa: SLF001 - it has no public name
        return {"loader/ready_batches": float(max(iterator._data_queue.qsize() + early, 0))}  # noqa: SLF001 - nor has this

    def close(self) -> None:
        """Forgets the iterator."""
        self._met, self._has_queue = _nobody, False

    def _meet(self, iterator: Any) -> None:
        """Looks at an iterator for the first time. It is not kept alive: its workers live as long as it."""
        self._has_queue = False
        try:
            self._met = weakref.ref(iterator)
        except TypeError:  # such as that of a list
            self._met = _nobody
            return
        described = describe_loader(iterator)
        if described is None:
            return
        self._has_queue = _can_be_counted(iterator)
        if described not in self._told and len(self._told) < MAX_LOADERS:
            self._told.append(described)
            self._note("loader", **described)


def describe_loader(iterator: Any) -> dict[str, Any] | None:
    """How the loader of an iterator is set up; None for one that is not PyTorch's."""
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
    except (AttributeError, NotImplementedError):  # no workers; a system whose semaphores tell no number
        return False
    return hasattr(iterator, "_task_info") and hasattr(iterator, "_tasks_outstanding")


def _nobody() -> None:
    """Stands for the iterator that has not been met."""
