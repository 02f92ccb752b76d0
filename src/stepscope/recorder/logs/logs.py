"""`StructuredLogs`: the log lines of a run, in files whose lines identify their run, rank and step."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import weakref
from dataclasses import replace
from logging.handlers import QueueHandler
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.guard import Guard
from stepscope.recorder.logs.log_entry import CATEGORIES, OURS, LogEntry
from stepscope.recorder.logs.log_line import JsonFormat, TextFormat
from stepscope.recorder.logs.log_writer import EntryQueue, LogFile, LogWriter, Rotation
from stepscope.schema.correlation import Correlation, correlate
from stepscope.schema.privacy import Privacy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope.config.sections import Logging
    from stepscope.schema.identity import Identity

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")

_writing: weakref.WeakSet[StructuredLogs] = weakref.WeakSet()
"""Active logs; each opens new files when the process forks."""


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
        self._handler = _LogHandler(settings.level.upper(), step)
        self._attached: list[logging.Logger] = [logging.getLogger(OURS)]
        self._set_level = False
        self._dropped_before = 0

    @property
    def correlation(self) -> Correlation:
        """The ids that every line of this process carries."""
        return correlate(self._identity, os.getpid(), self._environment)

    @property
    def dropped(self) -> int:
        """Number of dropped lines."""
        return self._dropped_before + self._handler.queue.dropped

    def logger(self, category: str) -> logging.Logger:
        """The logger of a category: training, performance, errors or system."""
        if category not in CATEGORIES:
            raise ValueError(f"There is no category {category!r}; there are {', '.join(CATEGORIES)}.")
        return logging.getLogger(f"{OURS}.{category}")

    def start(self, identity: Identity | None = None) -> None:
        """Starts writing, with a new identity for another segment; does nothing if it is already started."""
        if self._handler.writer is not None or self._settings.directory is None:
            return
        self._identity = identity or self._identity
        self._open()
        self._place_handlers()
        own_logger = self._attached[0]
        if own_logger.level == logging.NOTSET:
            own_logger.setLevel(self._handler.level)
            self._set_level = True
        _writing.add(self)

    def stop(self) -> None:
        """Writes the remaining lines and detaches from all loggers; another start attaches to them again."""
        writer, self._handler.writer = self._handler.writer, None
        if writer is None:
            return
        _writing.discard(self)
        for logger in self._attached:
            logger.removeHandler(self._handler)
        if self._set_level:
            self._attached[0].setLevel(logging.NOTSET)
            self._set_level = False
        writer.stop()

    def flush(self) -> bool:
        """Waits until all lines so far are written; returns False after 5 s."""
        return self._handler.writer is None or self._handler.writer.flush()

    def failed(self, error: BaseException) -> None:
        """Writes the failure of the training to the files only: Python itself prints it on the console."""
        record = logging.LogRecord(
            f"{OURS}.errors",
            logging.ERROR,
            __file__,
            0,
            "Training failed.",
            None,
            (type(error), error, error.__traceback__),
        )
        self._handler.put(record)

    def attach(self, logger: logging.Logger) -> None:
        """Also writes the records of this logger and its children; the logger's own level applies."""
        if logger not in self._attached:
            self._attached.append(logger)
            if self._handler.writer is not None:
                self._place_handlers()

    def detach(self, logger: logging.Logger) -> None:
        """Undoes `attach`."""
        if logger in self._attached[1:]:
            self._attached.remove(logger)
            logger.removeHandler(self._handler)
            if self._handler.writer is not None:
                self._place_handlers()

    def begin_in_child(self) -> None:
        """Separates from the parent's files after a fork; the first line logged here opens new ones."""
        if self._handler.writer is not None:
            self._handler.writer.abandon()
        self._handler.queue = EntryQueue()  # lines that the parent dropped are not counted here
        self._open()

    def _open(self) -> None:
        """Makes a queue and its writer; the writer starts with the first line."""
        self._dropped_before += self._handler.queue.dropped
        self._handler.queue = EntryQueue()
        tell = Guard(strict=False).tell
        self._handler.writer = LogWriter(self._handler.queue, self._files(), tell)

    def _files(self) -> dict[str, LogFile]:
        identity, pid, correlation = self._identity, os.getpid(), self.correlation
        privacy = replace(self._privacy, names=(*self._privacy.names, identity.host))
        host = privacy.name(identity.host)
        segment, rank = _file_name(identity.segment), f"r{identity.rank}"
        name = "-".join((identity.run_id, segment, rank, _file_name(host), str(pid)))
        directory = Path(self._settings.directory or "").expanduser().absolute()
        files = {}
        for category in CATEGORIES:
            formatter = (
                JsonFormat(category, correlation, host, pid, privacy)
                if self._settings.jsonl
                else TextFormat(category, correlation, privacy)
            )
            path = directory / category / f"{name}{formatter.suffix}"
            files[category] = LogFile(path, self._rotation, formatter)
        return files

    def _place_handlers(self) -> None:
        """Adds the handler to the loggers so that each record reaches it once."""
        for logger in self._attached:
            if any(parent in self._attached for parent in _parents(logger)):
                logger.removeHandler(self._handler)
            else:
                logger.addHandler(self._handler)


class _LogHandler(QueueHandler):
    """Queues records as plain data.

    The base class would queue objects of the user, and print what goes wrong.
    """

    queue: EntryQueue

    def __init__(self, level: str, step: Callable[[], int | None] | None) -> None:
        super().__init__(EntryQueue())
        self.setLevel(level)
        self._step = step
        self.writer: LogWriter | None = None
        """None while nothing is written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a record, and prints it if no other handler would."""
        self.put(record)
        if record.levelno >= logging.WARNING and self.writer is not None:
            self._keep_on_console(record)

    def put(self, record: logging.LogRecord) -> None:
        """Queues a record; never raises."""
        with self.lock or contextlib.nullcontext():
            if self.writer is not None:
                super().emit(record)
                if not self.writer.is_started:
                    self.writer.start()
                if record.levelno >= logging.ERROR:
                    self.writer.urgent.set()

    def prepare(self, record: logging.LogRecord) -> LogEntry:
        """Copies what a line needs."""
        return LogEntry(record, self._step)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - a name of `logging`
        """Counts a record that does not fit, or whose values raise when they are read: training goes on."""
        self.queue.dropped += 1

    def flush(self) -> None:
        """Waits until all lines are written, if they can be written."""
        if self.writer is not None and not self.writer.is_failing:
            self.writer.flush()

    def _keep_on_console(self, record: logging.LogRecord) -> None:
        """Prints a warning that `logging` would have printed without this handler."""
        logger = logging.getLogger(record.name)
        handlers = [handler for source in (logger, *_parents(logger)) for handler in source.handlers]
        is_alone = all(isinstance(handler, _LogHandler) for handler in handlers)
        if is_alone and handlers[:1] == [self] and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _parents(logger: logging.Logger) -> list[logging.Logger]:
    """The loggers that records of this one propagate to."""
    parents = []
    while logger.propagate and logger.parent is not None:
        logger = logger.parent
        parents.append(logger)
    return parents


def _file_name(text: str) -> str:
    return _UNSAFE.sub("-", text)[:64] or "unknown"


def _begin_in_child() -> None:
    for logs in list(_writing):
        logs.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
