"""Lets a trainer that owns its loop train block by block, in a thread of its own."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from itertools import cycle
from typing import Any

import torch  # noqa: TID253 - what is watched

from benchmarks.step_contenders import Took, Work

JOIN_S = 60.0


class TrainerThread:
    """Feeds a trainer with endless data, and stops it after each block until it is its turn again.

    The clocks are read in the thread that trains, when it asks for the first batch of a block and when it
    asks for the first one after it.
    """

    def __init__(self, work: Work, resume: Callable[[Took], None]) -> None:
        self._work = work
        self._resume = resume
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Whether to train another block, or to end."""
        self._results: queue.SimpleQueue[Took | BaseException] = queue.SimpleQueue()

    def data(self) -> Iterator[Any]:
        """The batches, for the trainer to pass over once."""
        if not self._turns.get():
            return
        done, began = 0, Took.now()
        for batch in cycle(self._work.data):
            if done == self._work.steps:
                if self._work.device == "cuda":
                    torch.cuda.synchronize()
                stopped = Took.now()
                self._results.put(stopped - began)
                if not self._turns.get():
                    return
                done = 0
                self._resume(Took.now() - stopped)
                began = Took.now()
            done += 1
            yield batch

    def blocks(self, fit: Callable[[], object]) -> Generator[Took, None, None]:
        """Trains on and on by `fit`, which passes over `data`; tells what each block took."""

        def train() -> None:
            torch.set_num_threads(1)
            try:
                fit()
            except BaseException as error:
                self._results.put(error)

        thread = threading.Thread(target=train, name="trainer", daemon=True)
        thread.start()
        try:
            while True:
                self._turns.put(True)
                result = self._results.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            self._turns.put(False)
            thread.join(JOIN_S)
