"""Limits open connections: their number, and how long each may wait for its client."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stepscope.web.access.incoming_request import AUTHENTICATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn import Config
    from uvicorn.server import ServerState

    from stepscope.web.server.options import Limits

log = logging.getLogger("stepscope.web")

RESERVED_FILES = 100
"""Descriptors kept for the store, the log and connections that are being closed."""
MIN_CONNECTIONS = 16
MIN_PROGRESS_BYTES = 64 * 1024
WARN_EVERY_S = 60.0

_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Connection(H11Protocol):
    """One client's connection: whether it is idle, since when, and whether it has timed out."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], table: ConnectionTable
    ) -> None:
        super().__init__(config, state, app_state)
        self._table = table
        self.address: str | None = None
        """What connections are counted by; None where clients cannot be distinguished."""
        self.accepted: socket.socket | None = None
        self.waiting_since = table.now()
        """When the connection was made, or the last response was complete."""
        self._unread: tuple[int, float] | None = None
        """Bytes the client had not read when it last read something, and when that was."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_authenticated(self) -> bool:
        """Whether the newest request came with the token."""
        return self.scope is not None and AUTHENTICATED in self.scope

    @property
    def can_be_dropped(self) -> bool:
        """Whether the server waits for the client: for a request, the rest of one, or for it to read."""
        return not self.is_busy or self.cycle.more_body or self.flow.write_paused

    def has_expired(self, limits: Limits) -> bool:
        """Whether the client has taken too long to send a request or to read a response."""
        now = self._table.now()
        unread = 0 if self.transport is None else self.transport.get_write_buffer_size()
        if unread:
            return self._is_stuck(unread, now, limits.stuck_seconds)
        self._unread = None
        allowed = limits.head_seconds if self.cycle is None else limits.keep_alive_seconds
        return not self.is_busy and now - self.waiting_since > allowed

    def _is_stuck(self, unread: int, now: float, allowed: float) -> bool:
        if self._unread is None or unread <= self._unread[0] - MIN_PROGRESS_BYTES:
            self._unread = (unread, now)
        return now - self._unread[1] > allowed

    def drop(self) -> None:
        """Closes the connection at once; what was not sent is lost."""
        self._table.remove(self)
        if self.transport is not None:
            if self.transport.get_write_buffer_size():
                # Otherwise the kernel would keep trying to send what is in its buffer.
                with contextlib.suppress(OSError):
                    self.transport.get_extra_info("socket").setsockopt(*_RESET_ON_CLOSE)
            self.transport.abort()
        elif self.accepted is not None:
            # A TLS handshake is not complete: it ends when it reads the end of the stream.
            with contextlib.suppress(OSError):
                self.accepted.shutdown(socket.SHUT_RDWR)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops counting the connection."""
        self._table.remove(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Notes that the client reads."""
        self._unread = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Starts the wait for the next request; an unread rest of the body counts as part of it."""
        self.waiting_since = self._table.now()
        super().on_response_complete()


class ConnectionTable:
    """All open connections. At the limit, the connection that was idle longest is closed."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits, self.now = limits, now
        self._max_total = min(limits.connections, _max_by_descriptors())
        self._open: set[Connection] = set()
        self._warned_at: float | None = None

    def make_room(self, address: str | None) -> bool:
        """Makes room for one more connection from an address; False where all others are in use."""
        if address is not None:
            same = [connection for connection in self._open if connection.address == address]
            if len(same) >= self._limits.connections_per_address:
                return self._drop_idlest(same, f"{len(same)} connections from {address}, the maximum")
        if len(self._open) >= self._max_total:
            return self._drop_idlest(self._open, f"{len(self._open)} connections, the maximum")
        return True

    def drop_one(self, reason: str) -> bool:
        """Closes the connection that was idle longest; False where none is idle."""
        return self._drop_idlest(self._open, reason)

    def add(self, connection: Connection) -> None:
        """Counts a connection until it is closed."""
        self._open.add(connection)

    def remove(self, connection: Connection) -> None:
        """Stops counting a connection."""
        self._open.discard(connection)

    def close_expired(self) -> None:
        """Closes connections whose clients have sent no request, or read no response, for too long."""
        for connection in list(self._open):
            if connection.has_expired(self._limits):
                connection.drop()

    def close_opening(self) -> None:
        """Closes connections that are still being opened, before the server ends."""
        for connection in list(self._open):
            if connection.transport is None:
                connection.drop()

    def _drop_idlest(self, connections: list[Connection] | set[Connection], reason: str) -> bool:
        """Closes one connection: without a token first, then idle before half sent, then the oldest."""
        idle = [connection for connection in connections if connection.can_be_dropped]
        self._warn(reason, is_refused=not idle)
        if not idle:
            return False
        min(idle, key=lambda idler: (idler.is_authenticated, idler.is_busy, idler.waiting_since)).drop()
        return True

    def _warn(self, reason: str, *, is_refused: bool) -> None:
        now = self.now()
        if self._warned_at is not None and now - self._warned_at < WARN_EVERY_S:
            return
        self._warned_at = now
        effect = "all are in use, so a new one was refused" if is_refused else "closing those idle longest"
        log.warning("%s; %s.", reason, effect)


def _max_by_descriptors() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return 1_000_000
    return max(allowed - RESERVED_FILES, MIN_CONNECTIONS)
