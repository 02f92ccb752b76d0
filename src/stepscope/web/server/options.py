"""Options of a server: what it serves, where it listens, and its limits."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepscope.config.sections import Settings
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BASE_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)*/?")


@dataclass(frozen=True)
class Limits:
    """Limits on requests and connections."""

    body_bytes: int = 8 * 1024 * 1024
    body_seconds: float = 20.0
    """How long a request may take to arrive."""
    requests_per_second: float = 200.0
    """For each token; bursts of five seconds' worth are allowed."""
    changes_per_second: float = 20.0
    strangers_per_second: float = 10.0
    """For each address, of requests without a valid token."""
    streams: int = 200
    """Live streams at the same time."""
    connections: int = 500
    """Open at the same time; fewer where the process may open fewer files."""
    connections_per_address: int = 300
    head_seconds: float = 10.0
    """How long a new connection may take to send the head of its first request."""
    keep_alive_seconds: int = 30
    """How long a connection may stay idle between a response and the head of the next request."""
    stuck_seconds: float = 60.0
    """How long a client may leave a response unread."""


LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ServerOptions:
    """Options a server is started with; `check` validates them."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    host: str = "127.0.0.1"
    port: int = 8787
    token: str | None = None
    """None: no token is needed; allowed on loopback only."""
    read_only: bool = False
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    allowed_hosts: Sequence[str] = ()
    base_path: str = ""
    unix_socket: Path | None = None
    ends_when_idle: bool = False
    prometheus_port: int | None = None
    """A port of its own for metrics; None serves them at `/metrics` only."""
    limits: Limits = field(default_factory=Limits)

    @property
    def prometheus_host(self) -> str:
        """The address that the port for Prometheus listens on."""
        return LOOPBACK if self.unix_socket is not None else self.host

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.unix_socket is not None or is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls_certificate is not None

    def check(self) -> None:
        """Raises ConfigError where options contradict each other or would let anyone read the store."""
        if self.token is None and not self.is_local:
            raise ConfigError(
                f"--no-token was given together with the address {self.host}, which other machines can "
                "reach; it is allowed on 127.0.0.1 alone. Leave out --no-token."
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("--tls-certificate and --tls-key belong together; give both or none.")
        for flag, path in (("--tls-certificate", self.tls_certificate), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise ConfigError(f"{flag} is {path}, and there is no such file.")
        if not _BASE_PATH.fullmatch(self.base_path):
            raise ConfigError(
                f"--base-path is {self.base_path!r}; it must be a path such as /stepscope, of letters, "
                "digits and . _ ~ -."
            )

    def warning(self) -> str | None:
        """A warning where other machines can reach the server without encryption; None otherwise."""
        if self.is_local or self.has_tls or self.behind_proxy:
            return None
        return (
            f"WARNING: {self.host} can be reached by other machines, and what is sent, the token included, "
            "is not encrypted. Give --tls-certificate and --tls-key, or --behind-proxy where a proxy "
            "encrypts; or listen on 127.0.0.1 and reach it by ssh -L."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
