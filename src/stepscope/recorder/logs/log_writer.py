"""Writes log entries to files in a thread of its own, built on the classes of `logging.handlers`."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from logging import ERROR, LogRecord, makeLogRecord
from logging.handlers import QueueListener, RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.descriptors import open_above_streams
from stepscope.recorder.logs.log_entry import OURS, LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Formatter

MIB = 1 << 20
MAX_ENTRIES = 10_000
MAX_CHARACTERS = 32 * MIB
PAUSE_S = 0.1
LINES_PER_TURN, YIELD_S = 8, 0.0001
"""After this many lines the thread releases the GIL, which the training might otherwise wait 5 ms for."""
LINES_PER_BATCH = 1_000
RETRY_S = 1.0
MAX_WAIT_S = 5.0


@dataclass(frozen=True)
class Rotation:
    """The maximum size and number of files of one category of one process."""

    max_bytes: int = 16 * MIB
    files: int = 5
    """The file being written and the older ones, whose names end in `.1` (the newest) to `.4`; at least 2."""


class EntryQueue(queue.SimpleQueue[Any]):
    """The entries that wait to be written; a full queue raises `queue.Full` at once.

    `queue.Queue` has a limit, too, but its lock is not reentrant: a signal handler that logs would deadlock.
    """

    def __init__(self) -> None:
        self.characters_put = self.characters_taken = 0
        self.dropped = 0
        """Number of entries dropped because the queue was full."""

    def put_nowait(self, item: LogEntry | threading.Event | None) -> None:
        """Adds an entry, or a request of the writer itself. Callers of the former hold the handler's lock."""
        if isinstance(item, LogEntry):
            waiting = self.characters_put - self.characters_taken
            if self.qsize() >= MAX_ENTRIES or waiting > MAX_CHARACTERS:
                raise queue.Full
            self.characters_put += item.size
        super().put_nowait(item)


class LogFile(RotatingFileHandler):
    """The file of a category and its rotated files; only one thread of one process writes to it.

    The base class formats each line twice, leaves half a line on a full disk, hides errors, and holds a
    descriptor that a training may close and use for its own file. Here `emit` does without these: the file is
    open only while there are lines to write, and `stream` stays unused.
    """

    def __init__(self, path: Path, rotation: Rotation, formatter: Formatter) -> None:
        super().__init__(path, maxBytes=rotation.max_bytes, backupCount=rotation.files - 1, delay=True)
        self.setFormatter(formatter)
        self.namer = _numbered
        self._descriptor: int | None = None
        self._size = 0

    def emit(self, record: LogRecord) -> None:
        """Writes a whole line or nothing; raises OSError on disk errors."""
        line = self.format(record).encode("utf-8", "backslashreplace")
        try:
            descriptor = self._opened()
            if self._size and self._size + len(line) > self.maxBytes:
                self.release_file()
                self.doRollover()
                descriptor = self._opened()
            _write(descriptor, self._size, line)
            self._size += len(line)
        except OSError:
            self.release_file()  # the descriptor may be the problem, as after a remount
            raise

    def release_file(self) -> None:
        """Closes the file; the next line opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _opened(self) -> int:
        if self._descriptor is None:
            path = Path(self.baseFilename)
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._descriptor = open_above_streams(path, flags)
            self._size = os.fstat(self._descriptor).st_size
        return self._descriptor


class LogWriter(QueueListener):
    """The thread that writes the entries of a queue to the files of their categories.

    A single entry is written immediately. While more follow, the thread pauses between batches, so that it
    rarely holds the GIL; an entry marked urgent ends the pause. The base class has no flush, waits in `stop`
    without a limit, and gives each entry to each handler.
    """

    queue: EntryQueue

    def __init__(
        self, entries: EntryQueue, files: dict[str, LogFile], complain: Callable[[str], None]
    ) -> None:
        super().__init__(entries)
        self._files, self._complain = files, complain
        self.urgent = threading.Event()
        """Set to end the pause."""
        self._stopping = threading.Event()
        self._finalizer: Any = None
        self.is_failing = False
        """Whether the last line could not be written."""
        self._lines = self._lost = self._unreadable = self._drops_reported = 0

    @property
    def is_started(self) -> bool:
        """Whether there is a thread; a forked child starts one with its first entry."""
        return self._thread is not None

    def start(self) -> None:
        """Starts the thread, which is flushed when the process ends."""
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: `flush` writes instead
            super().start()
        # `logging.shutdown` flushes, too, but holds the lock that a warning about a full disk needs.
        atexit.register(self.flush)
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            # Children of `multiprocessing` skip the interpreter's exit handlers.
            self._finalizer = multiprocessing.Finalize(None, self.flush, exitpriority=0)

    def flush(self, max_wait_s: float = MAX_WAIT_S) -> bool:
        """Waits until all entries so far are written; returns False on timeout."""
        done = threading.Event()
        self.queue.put_nowait(done)
        if self._thread is not None and self._thread.is_alive():
            self.urgent.set()
            return done.wait(max_wait_s)
        with contextlib.suppress(queue.Empty):
            while True:
                self.handle(self.queue.get_nowait())
        return True

    def stop(self, max_wait_s: float = MAX_WAIT_S) -> None:
        """Writes the remaining entries and ends the thread; lines that cannot be written are discarded."""
        atexit.unregister(self.flush)
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._stopping.set()
        if not self.flush(max_wait_s):
            self._complain(
                f"Log lines are still being written after {max_wait_s:.0f} s; not waiting any longer."
            )
            return
        if self._thread is not None and self._thread.is_alive():
            self.enqueue_sentinel()
            self._thread.join()
        if self._lost:
            self._complain(f"{self._lost} log lines could not be written.")

    def abandon(self) -> None:
        """Leaves files and queued entries to the parent, in a forked child."""
        atexit.unregister(self.flush)
        self.release_files()

    def release_files(self) -> None:
        """Closes all files; the next line opens its file again."""
        for file in self._files.values():
            file.release_file()

    def dequeue(self, block: bool) -> Any:  # noqa: FBT001 - the signature of the base class
        """Returns the next entry; after a batch pauses, and when there is none closes the files and waits."""
        if self._lines < LINES_PER_BATCH:
            with contextlib.suppress(queue.Empty):
                return self.queue.get_nowait()
            self.release_files()
        self._lines = 0
        self._report_drops()
        if not self._stopping.is_set():
            self.urgent.wait(PAUSE_S)
            self.urgent.clear()
        return self.queue.get(block)

    def handle(self, record: Any) -> None:
        """Writes an entry, and an error also to the file of errors; or answers a call of `flush`."""
        if isinstance(record, threading.Event):
            self._report_drops()
            self.release_files()
            record.set()
            return
        self.queue.characters_taken += record.size
        self._lines += 1
        self._write(record)
        # A busy loop releases the GIL after 5 ms: with many entries waiting, that would be too slow.
        if self._lines % LINES_PER_TURN == 0 and self.queue.qsize() < MAX_ENTRIES // 4:
            time.sleep(YIELD_S)

    def _write(self, entry: LogEntry) -> None:
        try:
            self._write_until_it_works(self._files[entry.category], entry)
            if entry.levelno >= ERROR and entry.category != "errors":
                self._write_until_it_works(self._files["errors"], entry)
        except Exception:  # noqa: BLE001 - one line that fails must not affect the others
            self._unreadable += 1

    def _write_until_it_works(self, file: LogFile, entry: LogEntry) -> None:
        while True:
            try:
                file.emit(entry)
            except OSError as error:
                if not self.is_failing:
                    self.is_failing = True
                    self._complain(f"Log lines cannot be written ({error}); {MAX_ENTRIES} may wait.")
                if self._stopping.wait(RETRY_S):
                    self._lost += 1
                    return
            else:
                self.is_failing = False
                return

    def _report_drops(self) -> None:
        """Writes how many entries were dropped since the last report."""
        dropped = self.queue.dropped - self._drops_reported
        unreadable, self._unreadable = self._unreadable, 0
        self._drops_reported += dropped
        if dropped:
            self._write(
                _notice(f"{dropped} log lines were dropped: more came than could be written.", dropped)
            )
        if unreadable:
            self._write(_notice(f"{unreadable} log lines were dropped: they could not be shown.", unreadable))


def _notice(message: str, count: int) -> LogEntry:
    described = {"name": f"{OURS}.logs", "levelno": 30, "levelname": "WARNING", "msg": message}
    return LogEntry(makeLogRecord({**described, "dropped": count}), None)


def _numbered(name: str) -> str:
    """The name of a rotated file: `x.1.jsonl` instead of `x.jsonl.1`."""
    path = Path(name)
    return str(path.with_name(f"{Path(path.stem).stem}{path.suffix}{Path(path.stem).suffix}"))


def _write(descriptor: int, size: int, line: bytes) -> None:
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)  # half a line would corrupt the next one, too
        raise
