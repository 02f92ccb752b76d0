"""Opens the socket a server listens on: the configured port, or the next free one."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.web.server.options import ServerOptions

MORE_PORTS = 50
BACKLOG = 1024
"""Connections the system keeps until they are accepted: a burst beyond it waits for seconds."""


def open_socket(options: ServerOptions, *, exactly: bool) -> socket.socket:
    """A listening socket; with `exactly`, on the configured port or an error."""
    if options.unix_socket is not None:
        return _unix_listener(options.unix_socket)
    last = options.port if exactly else min(options.port + MORE_PORTS, 65_535)
    for port in range(options.port, last + 1):
        try:
            return _tcp_listener(options.host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(
                    f"{options.host} port {port} cannot be listened on: {error.strerror}. Give another "
                    "address with --host, or another port with --port."
                ) from error
    if exactly:
        raise ConfigError(
            f"Port {options.port} of {options.host} is in use by another program. Give another with --port, "
            "or leave --port out to use the next free one."
        )
    return _tcp_listener(options.host, 0)


def address_of(options: ServerOptions, listening: socket.socket) -> str:
    """The URL of the page, without a slash at the end."""
    base_path = options.base_path.rstrip("/")
    if options.unix_socket is not None:
        return f"http://localhost{base_path}"
    host = options.host
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared with, not listened on
        # "Any address" is not one a browser can open: use an allowed host name, else loopback.
        host = next(iter(options.allowed_hosts), "127.0.0.1")
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if options.has_tls else "http"
    return f"{scheme}://{shown}:{listening.getsockname()[1]}{base_path}"


def _tcp_listener(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--host is {host!r}, which is not an address of this machine.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _unix_listener(path: Path) -> socket.socket:
    """A socket file that only this user can open, from its creation on."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"--unix-socket is {path}, which cannot be created: {error.strerror}.") from error
    finally:
        os.umask(before)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        return trial.connect_ex(str(path)) == 0
