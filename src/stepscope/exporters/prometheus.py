"""Serves live runs and their machine to Prometheus, from memory."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError
from stepscope.prometheus.exposition import client_library
from stepscope.prometheus.live_feed import LiveFeed
from stepscope.prometheus.metrics_server import HOST, PORT, release_server, share_server, token_for
from stepscope.prometheus.options import BUCKETS, checked_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.prometheus.live_state import LiveState
    from stepscope.prometheus.metrics_server import MetricsServer

MAX_PORT = 65_535


class Prometheus(LiveFeed):
    """Serves `/metrics` on a port of its own, which all runs of an agent share that name the same port.

    Options: `port`, `host`, `token_file` (needed where `host` is not loopback), `names` (`required`,
    `prefixed` or `both`), `base_units`, `buckets`, `user_metrics`.
    """

    def __init__(  # noqa: PLR0913 - the options of the settings
        self,
        port: int = PORT,
        host: str = HOST,
        token_file: str | None = None,
        names: str = "both",
        *,
        base_units: bool = False,
        buckets: Sequence[float] = BUCKETS,
        user_metrics: Sequence[str] = (),
        _directory: Path = Path(),
        _store: Path | None = None,
    ) -> None:
        if isinstance(port, bool) or not 0 <= port <= MAX_PORT:
            raise ConfigError(f"exporters.prometheus.port is {port}; it must be from 0 to {MAX_PORT}.")
        super().__init__(checked_options(names, base_units, buckets, user_metrics), _store)
        client_library()  # raises where it is not installed
        path = None if token_file is None else _directory / Path(token_file).expanduser()
        self._host, self._port, self._token = host, port, token_for(host, path)

    @functools.cached_property
    def _server(self) -> MetricsServer:
        # Not in the constructor: checking settings must open no port.
        return share_server(self._host, self._port, self._token)

    @property
    def _state(self) -> LiveState:
        return self._server.state

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def trouble(self) -> str:
        """Why the port is not served, such as another program that has it."""
        return self._server.trouble

    def close(self) -> None:
        """Stops serving, unless another run uses the port."""
        super().close()
        if "_server" in vars(self):
            release_server(self._server, self._host, self._port)
