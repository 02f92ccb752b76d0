"""Runs a server until it is stopped, or has been idle for long enough."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from stepscope.config.sections import from_dict
from stepscope.errors import StepscopeError
from stepscope.recorder.page_server import LOG_NAME, Served, find_server
from stepscope.schema.run import LIVE
from stepscope.web.access import tokens
from stepscope.web.access.connections import Connection, ConnectionTable
from stepscope.web.app import create_app
from stepscope.web.app_state import AppState
from stepscope.web.server.acceptor import Acceptor
from stepscope.web.server.listen_socket import address_of, open_socket
from stepscope.web.server.options import ServerOptions
from stepscope.web.server.server_lock import ServerLock

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from stepscope.web.access.middleware import AccessMiddleware

log = logging.getLogger("stepscope.web")

MAX_LOG_BYTES = 1 << 20
ADDRESS_WAIT_S = 5.0
"""How long to wait for the address of a server that is just starting."""
IDLE_CHECK_TICKS = 300
"""Every 30 seconds: the server ticks ten times a second."""
CONNECTION_CHECK_TICKS = 5
IDLE_LIMIT_S = 900.0
"""How long the server stays after the last run has ended and the last request."""


def serve(
    options: ServerOptions,
    token_file: Path | None,
    announce: Callable[[str], None],
    *,
    exactly: bool,
) -> Served | None:
    """Calls `announce` with the address, then serves until it is stopped.

    Where another server has the store already, returns that one at once.
    """
    options.check()
    lock = ServerLock(options.folder)
    if not lock.acquire():
        return _running_server(options.folder)
    try:
        listener = open_socket(options, exactly=exactly)
        try:
            address = address_of(options, listener)
            lock.write_address(address, token_file)
            announce(address)
            state = AppState(options)
            serve_app(create_app(options, state), state, listener)
        finally:
            listener.close()
            if options.unix_socket is not None:
                with contextlib.suppress(OSError):
                    options.unix_socket.unlink()
    finally:
        lock.release()
    return None


def log_to_file(folder: Path) -> None:
    """Logs to a file in the store folder that only this user can read; to standard error where that fails."""
    handler: logging.Handler
    try:
        path = folder / LOG_NAME
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.ftruncate(descriptor, 0)
        handler = logging.StreamHandler(os.fdopen(descriptor, "a", encoding="utf-8"))
    except OSError:
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)


def main() -> int:
    """Serves a folder while a training runs; folder and settings come as JSON on standard input."""
    arguments = json.load(sys.stdin)
    folder, settings = Path(arguments["folder"]), from_dict(arguments["settings"])
    os.nice(5)
    log_to_file(folder)
    dashboard = settings.dashboard
    try:
        path = tokens.path_of(folder, dashboard.token_file)
        options = ServerOptions(
            folder=folder,
            settings=settings,
            host=dashboard.host,
            port=dashboard.port,
            token=tokens.token_of(path),
            ends_when_idle=True,
        )
        warning = options.warning()
        if warning is not None:
            log.warning(warning)
        serve(options, path, lambda address: log.info("Serving at %s", address), exactly=False)
    except StepscopeError as error:
        log.error("The page is not served: %s", error)  # noqa: TRY400 - the message says all there is
        return 1
    return 0


class IdleTimer:
    """Measures how long a server has been idle: no run is live, and nobody sends requests."""

    def __init__(
        self, state: AppState, last_request_at: Callable[[], float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._state, self._last_request_at, self._now = state, last_request_at, now
        self._busy_at = now()

    def is_over(self) -> bool:
        """Whether the server has been idle for long enough to end."""
        now = self._now()
        if self._state.feed.client_count or self._is_training():
            self._busy_at = now
        return now - max(self._busy_at, self._last_request_at()) > IDLE_LIMIT_S

    def _is_training(self) -> bool:
        try:
            with self._state.readers.open() as opened:
                return any(run.status in LIVE for run in opened.runs.runs())
        except StepscopeError:  # an unreadable store is no reason to stay
            return False


class _Server(uvicorn.Server):
    """A uvicorn server that ends streams before it waits for connections, and stops when idle.

    It accepts connections itself: uvicorn never closes one that has not sent a whole request.
    """

    def __init__(
        self, config: uvicorn.Config, state: AppState, listener: socket.socket, idleness: IdleTimer | None
    ) -> None:
        super().__init__(config)
        self._state, self._listener, self._idleness = state, listener, idleness
        self._connections = ConnectionTable(state.options.limits)
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, then accepts connections."""
        await super().startup(sockets)
        options = self._state.options
        self._acceptor = Acceptor(
            self._listener,
            self._connections,
            lambda: Connection(self.config, self.server_state, self.lifespan.state, self._connections),
            self.config.ssl,
            # Behind a proxy all clients have the proxy's address.
            by_address=options.unix_socket is None and not options.behind_proxy,
        )
        self._acceptor.start()

    async def on_tick(self, counter: int) -> bool:
        """Closes connections that have waited too long, and checks whether the server is idle."""
        if counter % CONNECTION_CHECK_TICKS == 0:
            self._connections.close_expired()
        if self._idleness is not None and counter and counter % IDLE_CHECK_TICKS == 0:
            self.should_exit |= await asyncio.to_thread(self._idleness.is_over)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting connections, ends streams, then stops the application."""
        if self._acceptor is not None:
            self._acceptor.stop()
        self._state.feed.close()
        await super().shutdown(sockets)


def serve_app(gate: AccessMiddleware, state: AppState, listener: socket.socket) -> None:
    """Serves an application on a listening socket until it is stopped, within the limits on connections."""
    options = state.options
    tls_options: dict[str, Any] = {}
    if options.has_tls:
        tls_options = {"ssl_certfile": options.tls_certificate, "ssl_keyfile": options.tls_key}
    config = uvicorn.Config(
        gate,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=options.behind_proxy,
        ws="none",
        lifespan="on",
        http="h11",
        timeout_keep_alive=options.limits.keep_alive_seconds,
        timeout_graceful_shutdown=3,
        **tls_options,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    idleness = IdleTimer(state, lambda: gate.last_request_at) if options.ends_when_idle else None
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again when it has ended; the default handler would skip the clean-up.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _Server(config, state, listener, idleness).run(sockets=[])


def _running_server(folder: Path) -> Served:
    """The server that has the store's lock, as soon as it has written its address."""
    deadline = time.monotonic() + ADDRESS_WAIT_S
    while (server := find_server(folder)) is None:
        if time.monotonic() > deadline:
            raise StepscopeError(
                f"The store {folder} is being served by a process that has not written its address. "
                "Wait until it ends, or stop it."
            )
        time.sleep(0.05)
    return server
