"""Keeps the metrics for Prometheus in memory while they are scraped; reads the store in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.metrics_server import MetricsServer, answer
from stepscope.prometheus.options import options_in
from stepscope.prometheus.store_follower import StoreFollower

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.prometheus.metrics_server import Answer
    from stepscope.web.reader_pool import ReaderPool
    from stepscope.web.server.options import ServerOptions

log = logging.getLogger("stepscope.web")

INTERVAL_S = 1.0
UNSCRAPED_S = 300.0
"""Without a scrape for this long the store is not read any more; the next scrape begins again."""


class MetricsFeed:
    """Reads the store every second while anybody scrapes; a scrape itself reads memory only."""

    def __init__(
        self, readers: ReaderPool, options: ServerOptions, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers, self._options, self._now = readers, options, now
        self._state = LiveState()
        self._follower: StoreFollower | None = None
        self._scraped_at = float("-inf")
        self._version: object = None
        self._logged_error = ""
        self._server: MetricsServer | None = None

    def answer(self, path: str, accept: str) -> Answer:
        """The response to a request; the first one has the store read from then on."""
        if self._server is None and self._now() - self._scraped_at > UNSCRAPED_S:
            self._state = LiveState()
            self._follower, self._version = None, None
        self._scraped_at = self._now()
        return answer(self._state, path, accept)

    async def run(self) -> None:
        """Reads the store until it is cancelled; serves a port of its own where the options name one."""
        port = self._options.prometheus_port
        if port is not None:
            await asyncio.to_thread(self._open_port, port)
        try:
            while True:
                if self._server is not None or self._now() - self._scraped_at <= UNSCRAPED_S:
                    await asyncio.to_thread(self.read)
                await asyncio.sleep(INTERVAL_S)
        finally:
            if self._server is not None:
                self._server.close()

    def read(self) -> None:
        """Takes what is new in the store."""
        try:
            version = self._readers.version()
            if version == self._version and self._state.has_figures:
                return
            if self._follower is None:
                options = options_in(self._options.settings.exporters.get("prometheus", {}))
                self._follower = StoreFollower(self._state, options)
            with self._readers.open() as opened:
                self._follower.read(opened.reader)
            self._version = version
        except (StepscopeError, OSError) as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.warning("The metrics for Prometheus are not up to date: %s", error)

    def _open_port(self, port: int) -> None:
        try:
            token = None if self._options.is_local else self._options.token
            self._server = MetricsServer(self._state, self._options.prometheus_host, port, token)
        except StepscopeError as error:
            log.warning("%s", error)
