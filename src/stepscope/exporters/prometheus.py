"""Serves live runs and their machine to Prometheus, from memory."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError
from stepscope.exporters.base import Feed
from stepscope.prometheus.exposition import client_library
from stepscope.prometheus.metrics_server import HOST, PORT, release_server, share_server, token_for
from stepscope.prometheus.options import BUCKETS, checked_options
from stepscope.prometheus.verdict_watch import VerdictWatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.exporters.base import Table
    from stepscope.prometheus.live_state import LiveState
    from stepscope.prometheus.metrics_server import MetricsServer
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts

MAX_PORT = 65_535


class Prometheus(Feed):
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
        self._options = checked_options(names, base_units, buckets, user_metrics)
        client_library()  # raises where it is not installed
        path = None if token_file is None else _directory / Path(token_file).expanduser()
        self._host, self._port, self._token = host, port, token_for(host, path)
        self._store = _store
        self._run_ids: set[str] = set()
        self._verdicts: VerdictWatch | None = None

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

    def begin(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        self._state.add_run(process.run_id, self._options)
        if process.run_id not in self._run_ids:
            self._run_ids.add(process.run_id)
            if self._verdicts is None and self._store is not None:
                self._verdicts = VerdictWatch(self._state, self._store)
            if self._verdicts is not None:
                self._verdicts.add_run(process.run_id)
        self._state.begin(process)

    def take(self, table: Table) -> None:
        """Keeps the newest figures of the rows."""
        self._state.take(table)

    def take_event(self, run_id: str, event: Event) -> None:
        """Keeps what an event says about a run."""
        self._state.take_event(run_id, event)

    def describe(self, facts: DeviceFacts) -> None:
        """Keeps the facts of a device."""
        self._state.describe(facts)

    def close(self) -> None:
        """Stops serving, unless another run uses the port."""
        if self._verdicts is not None:
            self._verdicts.close()
        if "_server" in vars(self):
            release_server(self._server, self._host, self._port)
