"""Serves the tools over HTTP, with the token and the access rules of the page's server."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING

import uvicorn

from stepscope.mcp.server import create_server
from stepscope.mcp.watched_store import WatchedStore
from stepscope.web.access.middleware import AccessMiddleware
from stepscope.web.server.listen_socket import address_of, open_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver import MCPServer

    from stepscope.web.app_state import AppState
    from stepscope.web.server.options import ServerOptions

PATH = "/mcp"
MAX_CONNECTIONS = 100


def create_app(server: MCPServer, state: AppState) -> AccessMiddleware:
    """The application of a server, behind the checks of host, token, origin and limits."""
    from mcp.server.transport_security import TransportSecuritySettings  # lazy: an extra

    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,  # no session that a client could leave behind
        # The access rules check the host, also for the names that --allow-host adds.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return AccessMiddleware(app, state.options, state.keyring)


def serve(
    options: ServerOptions, announce: Callable[[str], None], *, allows_writes: bool, exactly: bool
) -> None:
    """Calls `announce` with the address, then serves until it is stopped."""
    store = WatchedStore(options)
    try:
        app = create_app(create_server(store, allows_writes=allows_writes), store.state)
        listener = open_socket(options, exactly=exactly)
        tls = {"ssl_certfile": options.tls_certificate, "ssl_keyfile": options.tls_key}
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=options.behind_proxy,
            ws="none",
            lifespan="on",
            http="h11",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=options.limits.keep_alive_seconds,
            timeout_graceful_shutdown=3,
            **(tls if options.has_tls else {}),  # type: ignore[arg-type]
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        if threading.current_thread() is threading.main_thread():
            # uvicorn raises the signal again when it has ended; the default handler would skip the clean-up.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with listener:
            announce(f"{address_of(options, listener)}{PATH}")
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        store.close()
