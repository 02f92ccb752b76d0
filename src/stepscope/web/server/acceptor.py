"""Accepts connections, a few at a time, and continues when the process runs out of file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from stepscope.web.access.connections import Connection, ConnectionTable

log = logging.getLogger("stepscope.web")

MAX_ACCEPTED = 16
"""Connections accepted before other tasks run: a dropped connection frees its descriptor only then."""
RETRY_S = 0.1
HANDSHAKE_S = 10.0
DEAD_PEER_MS = 60_000
"""A peer that acknowledges nothing for so long is dead; TCP itself would retry for longer."""

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections from a listening socket while the server runs."""

    def __init__(
        self,
        listening: socket.socket,
        table: ConnectionTable,
        make_connection: Callable[[], Connection],
        tls: ssl.SSLContext | None,
        *,
        by_address: bool,
    ) -> None:
        self._listening, self._table, self._tls = listening, table, tls
        self._make_connection = make_connection
        self._by_address = by_address
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begins to accept."""
        self._listening.settimeout(0)
        self._loop.add_reader(self._listening, self._accept_some)

    def stop(self) -> None:
        """Accepts no more; open connections stay."""
        self._loop.remove_reader(self._listening)
        if self._retry is not None:
            self._retry.cancel()
        self._table.close_opening()

    def _accept_some(self) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._wait_for_descriptors(error)
                return
            self._add(accepted, str(peer[0]) if self._by_address else None)

    def _wait_for_descriptors(self, error: OSError) -> None:
        """Frees a descriptor and retries after a pause; the socket stays readable meanwhile."""
        self._table.drop_one(f"A connection cannot be accepted: {error.strerror}")
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(RETRY_S, self.start)

    def _add(self, accepted: socket.socket, address: str | None) -> None:
        if not self._table.make_room(address):
            accepted.close()
            return
        _notice_dead_peers(accepted)
        connection = self._make_connection()
        connection.address, connection.accepted = address, accepted
        self._table.add(connection)
        opening = self._loop.create_task(self._open(connection, accepted))
        self._opening.add(opening)  # the loop itself keeps no reference to it
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        handshake_s = HANDSHAKE_S if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        except OSError as error:  # a failed handshake is one too
            self._table.remove(connection)
            log.debug("A connection could not be opened: %s", error)


def _notice_dead_peers(accepted: socket.socket) -> None:
    if accepted.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # a peer may be gone already
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
