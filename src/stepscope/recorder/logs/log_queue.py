"""Passes log entries from the threads that log to the one that writes; a log call never waits."""

from __future__ import annotations

import atexit
import contextlib
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.recorder.logs.log_entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ENTRIES = 10_000
MAX_CHARACTERS = 32 << 20
PAUSE_S = 0.1
LINES_PER_TURN, YIELD_S = 8, 0.0001
"""After this many lines the thread releases the GIL, which the training might otherwise wait 5 ms for."""
RETRY_S = 1.0
MAX_WAIT_S = 5.0


class Sink(Protocol):
    """Writes entries."""

    def add(self, entries: list[Entry], dropped: int) -> None:
        """Adds entries, and the number of others that were dropped since the last call."""

    def write(self) -> None:
        """Writes the added entries; raises OSError if that fails, and keeps them for the next call."""

    def forget(self) -> int:
        """Discards the lines that could not be written; returns their number."""


class LogQueue:
    """A bounded queue, and the thread that writes its entries.

    A single entry is written immediately. While more follow, the thread pauses between batches, so that it
    rarely holds the GIL; an entry marked urgent ends the pause.
    """

    def __init__(self, sink: Sink, complain: Callable[[str], None], max_entries: int = MAX_ENTRIES) -> None:
        self._sink, self._complain, self._max_entries = sink, complain, max_entries
        self._queue: queue.SimpleQueue[Entry | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._urgent, self._stopping = threading.Event(), threading.Event()
        self._finalizer: Any = None
        self._characters_put = self._characters_taken = 0
        self._dropped_reported = 0
        self.dropped = 0
        """Number of entries dropped because the queue was full."""

    def put(self, entry: Entry, *, urgent: bool) -> None:
        """Adds an entry, or counts it as dropped if the queue is full. Callers hold the handler's lock."""
        waiting = self._characters_put - self._characters_taken
        if self._queue.qsize() >= self._max_entries or waiting > MAX_CHARACTERS:
            self.dropped += 1
            return
        self._characters_put += entry.size
        self._queue.put(entry)
        if self._thread is None:
            self.start()
        if urgent:
            self._urgent.set()

    def start(self) -> None:
        """Starts the thread; a forked child starts it with its first entry."""
        self._thread = threading.Thread(target=self._run, name="stepscope-logs", daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: `flush` writes instead
            self._thread.start()
        atexit.register(self.flush)
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            # Children of `multiprocessing` skip the interpreter's exit handlers.
            self._finalizer = multiprocessing.Finalize(None, self.flush, exitpriority=0)

    def flush(self, max_wait_s: float = MAX_WAIT_S) -> bool:
        """Waits until all entries so far are written; returns False on timeout."""
        if self._thread is None or not self._thread.is_alive():
            self._drain()
            return True
        done = threading.Event()
        self._queue.put(done)
        self._urgent.set()
        return done.wait(max_wait_s)

    def stop(self, max_wait_s: float = MAX_WAIT_S) -> None:
        """Writes the remaining entries and ends the thread; lines that cannot be written are discarded."""
        atexit.unregister(self.flush)
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._stopping.set()
        self._urgent.set()
        self._queue.put(None)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(max_wait_s)
            if self._thread.is_alive():
                self._complain(
                    f"Log lines are still being written after {max_wait_s:.0f} s; not waiting any longer."
                )
                return
        self._drain()
        lost = self._sink.forget()
        if lost:
            self._complain(f"{lost} log lines could not be written.")

    def abandon(self) -> None:
        """Leaves the queued entries to the parent, in a forked child."""
        atexit.unregister(self.flush)

    def _run(self) -> None:
        while True:
            batch = self._take([self._queue.get()])
            try:
                self._handle(batch)
            except Exception as error:  # noqa: BLE001 - an exception must not end the thread
                self._complain(f"Some log lines are lost: {error!r}")
            if None in batch:
                return
            if not self._stopping.is_set():
                self._urgent.wait(PAUSE_S)
                self._urgent.clear()

    def _drain(self) -> None:
        while batch := self._take([]):
            self._handle(batch)

    def _take(self, batch: list[Entry | threading.Event | None]) -> list[Entry | threading.Event | None]:
        with contextlib.suppress(queue.Empty):
            while len(batch) < 1_000:
                batch.append(self._queue.get_nowait())
        return batch

    def _handle(self, batch: list[Entry | threading.Event | None]) -> None:
        """Writes a batch, and notifies the threads that wait for it."""
        entries = [item for item in batch if isinstance(item, Entry)]
        self._characters_taken += sum(entry.size for entry in entries)
        dropped = self.dropped - self._dropped_reported
        self._dropped_reported += dropped
        for start in range(0, len(entries) or 1, LINES_PER_TURN):
            self._sink.add(entries[start : start + LINES_PER_TURN], dropped)
            dropped = 0
            # A busy loop releases the GIL after 5 ms: with many entries waiting, that would be too slow.
            if len(entries) > LINES_PER_TURN and self._queue.qsize() < self._max_entries // 4:
                time.sleep(YIELD_S)
        self._write_until_it_works()
        for item in batch:
            if isinstance(item, threading.Event):
                item.set()

    def _write_until_it_works(self) -> None:
        complained = False
        while True:
            try:
                self._sink.write()
            except OSError as error:
                if not complained:
                    complained = True
                    self._complain(f"Log lines cannot be written ({error}); {self._max_entries} may wait.")
                if self._stopping.wait(RETRY_S):
                    return
            else:
                return
