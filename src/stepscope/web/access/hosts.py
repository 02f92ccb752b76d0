"""Decides which Host and Origin a request may name; protects against DNS rebinding."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable


def host_names(host: str, configured: Iterable[str]) -> frozenset[str]:
    """The host names a server accepts besides loopback: the one it listens on, and configured ones."""
    names = {normalized(name) for name in (host, *configured)}
    return frozenset(name for name in names if name and not _is_any_address(name))


def is_allowed(header: str | None, names: frozenset[str]) -> bool:
    """Whether a Host header names this server."""
    name = normalized(header or "")
    return bool(name) and (name == "localhost" or _is_loopback(name) or name in names)


def normalized(host: str) -> str:
    """A host in lower case, without port and brackets; empty for an invalid host."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and _is_port(port) else ""
    if host.count(":") == 1:
        name, _, port = host.partition(":")
        return name if _is_port(f":{port}") else ""
    return host


def is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the page that this server serves under this Host."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    default = 443 if parts.scheme == "https" else 80
    return normalized(host) == parts.hostname and (_port_of(host) or default) == (port or default)


def _port_of(host: str) -> int | None:
    port = host.strip().rpartition("]")[2].partition(":")[2]
    return int(port) if port.isdecimal() else None


def _is_port(text: str) -> bool:
    return text in ("", ":") or (text[0] == ":" and text[1:].isascii() and text[1:].isdecimal())


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_any_address(name: str) -> bool:
    """Whether it is 0.0.0.0 or ::, which browsers resolve to this machine; never an allowed name."""
    try:
        return ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False
