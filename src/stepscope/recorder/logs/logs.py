"""`StructuredLogs`: what is logged during a run, in files that tell where each line belongs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.guard import Guard
from stepscope.recorder.logs.log_entry import CATEGORIES, OURS, Entry, capture
from stepscope.recorder.logs.log_file import LogFolder, Rotation
from stepscope.recorder.logs.log_line import JsonForm, TextForm
from stepscope.recorder.logs.log_queue import LogQueue
from stepscope.schema.correlation import Correlation, correlate
from stepscope.schema.privacy import Privacy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.config.sections import Logging
    from stepscope.recorder.logs.log_line import Form
    from stepscope.schema.identity import Identity

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")

_writing: weakref.WeakSet[StructuredLogs] = weakref.WeakSet()
"""Those that write; each begins anew when the process forks."""


class StructuredLogs:
    """The log files of this process, fed by the standard `logging` module.

        logs = StructuredLogs(identity, settings.logging)
        logs.start()
        logs.logger("training").info("epoch done", extra={"epoch": 3})
        logs.attach(logging.getLogger("myproject"))

    A log call never waits for the disk and never raises. Without `logging.directory` nothing is written and
    no logger is touched.
    """

    def __init__(
        self,
        identity: Identity,
        settings: Logging,
        *,
        step: Callable[[], int | None] | None = None,
        privacy: Privacy | None = None,
        rotation: Rotation | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._identity, self._settings, self._environment = identity, settings, environment
        self._privacy, self._rotation = privacy or Privacy(), rotation or Rotation()
        self._handler = _Handler(settings.level.upper(), step)
        self._attached: list[logging.Logger] = [logging.getLogger(OURS)]
        self._set_level = False
        self._sink: _Lines | None = None
        self._queue: LogQueue | None = None
        self._dropped_before = 0

    @property
    def correlation(self) -> Correlation:
        """What every line of this process says about where it belongs."""
        return correlate(self._identity, os.getpid(), self._environment)

    @property
    def dropped(self) -> int:
        """How many lines there was no room for."""
        return self._dropped_before + (0 if self._queue is None else self._queue.dropped)

    def logger(self, category: str) -> logging.Logger:
        """The logger of a category: training, performance, errors or system."""
        if category not in CATEGORIES:
            raise ValueError(f"There is no category {category!r}; there are {', '.join(CATEGORIES)}.")
        return logging.getLogger(f"{OURS}.{category}")

    def start(self, identity: Identity | None = None) -> None:
        """Begins to write; a further segment brings a further identity. Nothing when it writes already."""
        if self._queue is not None or self._settings.directory is None:
            return
        self._identity = identity or self._identity
        self._open()
        self._place_handlers()
        ours = self._attached[0]
        if ours.level == logging.NOTSET:
            ours.setLevel(self._handler.level)
            self._set_level = True
        _writing.add(self)

    def stop(self) -> None:
        """Writes what is still on its way and lets go of all loggers; a further start takes them up again."""
        queue, self._queue, self._handler.queue = self._queue, None, None
        if queue is None:
            return
        _writing.discard(self)
        for logger in self._attached:
            logger.removeHandler(self._handler)
        if self._set_level:
            self._attached[0].setLevel(logging.NOTSET)
            self._set_level = False
        queue.stop()
        self._dropped_before += queue.dropped
        if self._sink is not None:
            self._sink.close()

    def flush(self) -> bool:
        """Waits until everything logged so far is in its file; False where that took more than 5 s."""
        return self._queue is None or self._queue.flush()

    def failed(self, error: BaseException) -> None:
        """Writes that training failed, to the files alone: Python itself tells the console."""
        told = logging.LogRecord(
            f"{OURS}.errors",
            logging.ERROR,
            __file__,
            0,
            "Training failed.",
            None,
            (type(error), error, error.__traceback__),
        )
        self._handler.take(told)

    def attach(self, logger: logging.Logger) -> None:
        """Writes what this logger and those below it log, too; its own level decides what it lets through."""
        if logger not in self._attached:
            self._attached.append(logger)
            if self._queue is not None:
                self._place_handlers()

    def detach(self, logger: logging.Logger) -> None:
        """Undoes `attach`."""
        if logger in self._attached[1:]:
            self._attached.remove(logger)
            logger.removeHandler(self._handler)
            if self._queue is not None:
                self._place_handlers()

    def begin_in_child(self) -> None:
        """Parts from the parent's files after a fork; the first line logged here opens own ones."""
        if self._queue is not None:
            self._queue.abandon()
        if self._sink is not None:
            self._sink.close()
        self._open()

    def _open(self) -> None:
        self._sink = self._lines()
        self._queue = LogQueue(self._sink, Guard(strict=False).tell)
        self._handler.queue = self._queue

    def _lines(self) -> _Lines:
        one, pid, correlation = self._identity, os.getpid(), self.correlation
        privacy = replace(self._privacy, names=(*self._privacy.names, one.host))
        host = privacy.name(one.host)
        form: Form = (
            JsonForm(correlation, host, pid, privacy)
            if self._settings.jsonl
            else TextForm(correlation, privacy)
        )
        parts = (one.run_id, _file_name(one.segment), f"r{one.rank}", _file_name(host), str(pid))
        directory = Path(self._settings.directory or "").expanduser().absolute()
        return _Lines(form, LogFolder(directory, "-".join(parts) + form.suffix, self._rotation))

    def _place_handlers(self) -> None:
        """Puts the handler where each record passes it once."""
        for logger in self._attached:
            if any(above in self._attached for above in _above(logger)):
                logger.removeHandler(self._handler)
            else:
                logger.addHandler(self._handler)


class _Lines:
    """Turns entries into lines of their files."""

    def __init__(self, form: Form, folder: LogFolder) -> None:
        self._form, self._folder = form, folder
        self.write, self.forget, self.close = folder.write, folder.forget, folder.close

    def add(self, entries: list[Entry], dropped: int) -> None:
        """Takes entries, and how many others there was no room for."""
        unwritable = 0
        for entry in entries:
            try:
                self._add(entry)
            except Exception:  # noqa: BLE001 - one line nobody foresaw must not cost the others
                unwritable += 1
        if dropped:
            self._add(_notice(f"{dropped} log lines were dropped: more came than could be written.", dropped))
        if unwritable:
            self._add(_notice(f"{unwritable} log lines were dropped: they could not be shown.", unwritable))

    def _add(self, entry: Entry) -> None:
        self._folder.add(entry.category, self._form.line(entry, entry.category))
        if entry.level >= logging.ERROR and entry.category != "errors":
            self._folder.add("errors", self._form.line(entry, "errors"))


class _Handler(logging.Handler):
    """Where `logging` hands records over."""

    def __init__(self, level: str, step: Callable[[], int | None] | None) -> None:
        super().__init__(level)
        self._step = step
        self.queue: LogQueue | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a record, and shows it where nobody else would."""
        self.take(record)
        if record.levelno >= logging.WARNING and self.queue is not None:
            self._keep_on_console(record)

    def take(self, record: logging.LogRecord) -> None:
        """Takes a record, whatever is in it."""
        with self.lock or contextlib.nullcontext():
            queue = self.queue
            if queue is None:
                return
            try:
                queue.put(capture(record, self._step), urgent=record.levelno >= logging.ERROR)
            except Exception:  # noqa: BLE001 - a user's value may raise anything, training goes on
                queue.dropped += 1

    def flush(self) -> None:
        """Waits until what was logged is written; `logging` calls it when the interpreter ends."""
        if self.queue is not None:
            self.queue.flush()

    def _keep_on_console(self, record: logging.LogRecord) -> None:
        """Shows a warning that `logging` would have shown by itself, had this handler not been there."""
        logger = logging.getLogger(record.name)
        handlers = [handler for one in (logger, *_above(logger)) for handler in one.handlers]
        is_alone = all(isinstance(handler, _Handler) for handler in handlers)
        if is_alone and handlers[:1] == [self] and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _notice(message: str, count: int) -> Entry:
    return Entry(
        created=time.time(),
        level=logging.WARNING,
        level_name="WARNING",
        category="system",
        logger=f"{OURS}.logs",
        message=message,
        step=None,
        fields={"dropped": count},
        exception=None,
        stack=None,
        size=0,
    )


def _above(logger: logging.Logger) -> list[logging.Logger]:
    """The loggers a record of this one is handed on to."""
    found = []
    while logger.propagate and logger.parent is not None:
        logger = logger.parent
        found.append(logger)
    return found


def _file_name(text: str) -> str:
    return _UNSAFE.sub("-", text)[:64] or "unknown"


def _begin_in_child() -> None:
    for logs in list(_writing):
        logs.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
