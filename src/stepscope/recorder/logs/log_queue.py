"""Carries log entries from the threads that log to the one that writes, and never makes the former wait."""

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
GULP, BREATH_S = 8, 0.0001
"""After so many lines the thread lets go of the interpreter, for which training might else wait 5 ms."""
RETRY_S = 1.0
PATIENCE_S = 5.0


class Sink(Protocol):
    """Where entries end."""

    def add(self, entries: list[Entry], dropped: int) -> None:
        """Takes entries, and how many others there was no room for since the last time."""

    def write(self) -> None:
        """Writes what was taken; raises OSError where it cannot, and keeps it for the next time."""

    def forget(self) -> int:
        """Gives up what could not be written, and says how many lines that were."""


class LogQueue:
    """A bounded queue and the thread at its end.

    A single entry is written at once. While more follow, the thread pauses between two batches, so that it
    seldom takes the interpreter from training; an entry marked urgent ends the pause.
    """

    def __init__(self, sink: Sink, complain: Callable[[str], None], most_entries: int = MAX_ENTRIES) -> None:
        self._sink, self._complain, self._most_entries = sink, complain, most_entries
        self._queue: queue.SimpleQueue[Entry | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._urgent, self._stopping = threading.Event(), threading.Event()
        self._finalizer: Any = None
        self._characters_put = self._characters_taken = 0
        self._dropped_told = 0
        self.dropped = 0
        """How many entries there was no room for."""

    def put(self, entry: Entry, *, urgent: bool) -> None:
        """Takes an entry, or counts it where there is no room. Callers take turns: the handler has a lock."""
        waiting = self._characters_put - self._characters_taken
        if self._queue.qsize() >= self._most_entries or waiting > MAX_CHARACTERS:
            self.dropped += 1
            return
        self._characters_put += entry.size
        self._queue.put(entry)
        if self._thread is None:
            self.start()
        if urgent:
            self._urgent.set()

    def start(self) -> None:
        """Starts the thread; a forked child does so with its first entry."""
        self._thread = threading.Thread(target=self._run, name="stepscope-logs", daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: `flush` writes instead
            self._thread.start()
        atexit.register(self.flush)
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            # Its children leave without the interpreter's own exit.
            self._finalizer = multiprocessing.Finalize(None, self.flush, exitpriority=0)

    def flush(self, patience_s: float = PATIENCE_S) -> bool:
        """Waits until everything put so far is written; False where that took too long."""
        if self._thread is None or not self._thread.is_alive():
            self._drain()
            return True
        done = threading.Event()
        self._queue.put(done)
        self._urgent.set()
        return done.wait(patience_s)

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """Writes what is there and ends the thread; what a disk still refuses is given up."""
        atexit.unregister(self.flush)
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._stopping.set()
        self._urgent.set()
        self._queue.put(None)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(patience_s)
            if self._thread.is_alive():
                self._complain(
                    f"Log lines are still being written after {patience_s:.0f} s; going on without."
                )
                return
        self._drain()
        lost = self._sink.forget()
        if lost:
            self._complain(f"{lost} log lines could not be written.")

    def abandon(self) -> None:
        """Leaves everything to the parent, in a forked child that has a copy of it."""
        atexit.unregister(self.flush)

    def _run(self) -> None:
        while True:
            batch = self._taken([self._queue.get()])
            try:
                self._handle(batch)
            except Exception as error:  # noqa: BLE001 - a thread of ours must not die in somebody's training
                self._complain(f"Some log lines are lost: {error!r}")
            if None in batch:
                return
            if not self._stopping.is_set():
                self._urgent.wait(PAUSE_S)
                self._urgent.clear()

    def _drain(self) -> None:
        while batch := self._taken([]):
            self._handle(batch)

    def _taken(self, batch: list[Entry | threading.Event | None]) -> list[Entry | threading.Event | None]:
        with contextlib.suppress(queue.Empty):
            while len(batch) < 1_000:
                batch.append(self._queue.get_nowait())
        return batch

    def _handle(self, batch: list[Entry | threading.Event | None]) -> None:
        """Writes a batch and says so to those who wait for it."""
        entries = [one for one in batch if isinstance(one, Entry)]
        self._characters_taken += sum(entry.size for entry in entries)
        dropped = self.dropped - self._dropped_told
        self._dropped_told += dropped
        for start in range(0, len(entries) or 1, GULP):
            self._sink.add(entries[start : start + GULP], dropped)
            dropped = 0
            # A busy loop gives the interpreter back after 5 ms: with many waiting, that would be too slow.
            if len(entries) > GULP and self._queue.qsize() < self._most_entries // 4:
                time.sleep(BREATH_S)
        self._write_until_it_works()
        for one in batch:
            if isinstance(one, threading.Event):
                one.set()

    def _write_until_it_works(self) -> None:
        complained = False
        while True:
            try:
                self._sink.write()
            except OSError as error:
                if not complained:
                    complained = True
                    self._complain(f"Log lines cannot be written ({error}); {self._most_entries} may wait.")
                if self._stopping.wait(RETRY_S):
                    return
            else:
                return
