"""Serves the tools over HTTP, with the token and the access rules of the page's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.mcp.server import create_server
from stepscope.mcp.watched_store import WatchedStore
from stepscope.web.access.middleware import AccessMiddleware
from stepscope.web.server.listen_socket import address_of, open_socket
from stepscope.web.server.serving import serve_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver import MCPServer

    from stepscope.web.app_state import AppState
    from stepscope.web.server.options import ServerOptions

PATH = "/mcp"


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
    return AccessMiddleware(app, state.options, state.keyring, is_for_programs=True)


def serve(
    options: ServerOptions, announce: Callable[[str], None], *, allows_writes: bool, exactly: bool
) -> None:
    """Calls `announce` with the address, then serves until it is stopped."""
    store = WatchedStore(options)
    try:
        app = create_app(create_server(store, allows_writes=allows_writes), store.state)
        with open_socket(options, exactly=exactly) as listener:
            announce(f"{address_of(options, listener)}{PATH}")
            serve_app(app, store.state, listener)
    finally:
        store.close()
