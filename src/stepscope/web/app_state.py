"""The state all routes share: the store, what people have added to it, the live feed."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.silences import Silences
from stepscope.store.open import open_marks
from stepscope.views.runs.run_rows import FigureCache, run_row, run_rows
from stepscope.web.access.keyring import Keyring
from stepscope.web.reader_pool import ReaderPool
from stepscope.web.server.demo_run import Demo
from stepscope.web.server.metrics_feed import MetricsFeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.reading import Run
    from stepscope.views.runs.run_rows import RunRow
    from stepscope.web.live.feed import Feed
    from stepscope.web.reader_pool import OpenStore
    from stepscope.web.server.options import ServerOptions

log = logging.getLogger("stepscope.web")

FRESH_NS = 500_000_000
"""Cached rows up to this old are used again if nothing was written since."""


class AppState:
    """The parts of one server."""

    def __init__(self, options: ServerOptions, now_ns: Callable[[], int] = time.time_ns) -> None:
        from stepscope.web.live.feed import Feed  # here: the feed imports this module

        self.options, self.now_ns = options, now_ns
        self.readers = ReaderPool(options.folder)
        self.marks = open_marks(options.folder)
        self.demo = Demo(options.folder)
        self.silences = Silences(options.folder)
        self.page_rules = PageRules(options.folder)
        self.figures = FigureCache()
        self.keyring = Keyring(options)
        self.feed: Feed = Feed(self)
        self.metrics = MetricsFeed(self.readers, options)
        self._rows: tuple[object, int, list[RunRow]] = (None, 0, [])
        self._rows_lock = threading.Lock()

    def rows(self, opened: OpenStore) -> list[RunRow]:
        """A row for each run, oldest first; requests at the same time share one result."""
        with self._rows_lock:
            version, now_ns = (self.readers.version(), self.marks.changes), self.now_ns()
            cached_version, cached_ns, rows = self._rows
            if version != cached_version or not 0 <= now_ns - cached_ns < FRESH_NS:
                with opened.reader.moment():  # thousands of queries in one read transaction
                    rows = run_rows(opened.runs, self.marks, now_ns, self.figures)
                self._rows = (version, now_ns, rows)
            return rows

    def row(self, run: Run) -> RunRow:
        """The row of one run."""
        self.figures.begin_list()
        return run_row(run, self.marks, self.now_ns(), self.figures)

    def close(self) -> None:
        """Closes all files."""
        self.readers.close()
        self.marks.close()
