"""Parses the address of a webhook, and checks whether an IP address is public."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from stepscope.errors import ConfigError

PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"[A-Za-z0-9_.-]+")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_EMBEDDED_V4 = ipaddress.IPv6Network("64:ff9b::/96")
_PROTOCOLS_V4 = ipaddress.IPv4Network("192.0.0.0/24")


@dataclass(frozen=True)
class WebAddress:
    """The address of a webhook. Its path is a password for many services, so it is never shown."""

    scheme: str
    host: str
    port: int
    path: str = field(repr=False)
    """With the query."""

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def name(self) -> str:
        """The host name as in certificates."""
        return self.host.rstrip(".")

    @property
    def authority(self) -> str:
        """Host and port as in the header `Host`."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The part that may be shown."""
        return f"{self.scheme}://{self.authority}"


def read_address(url: str, option: str, *, https_only: bool = False) -> WebAddress:
    """Parses the address in a setting; raises a ConfigError that does not repeat it."""
    if _FORBIDDEN.search(url):
        raise ConfigError(f"{option} contains a space, a backslash or a control character.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigError(f"{option} is not a web address; example: https://example.com/hook.") from None
    if parts.scheme not in PORTS:
        raise ConfigError(f"{option} must begin with https:// or http://.")
    if https_only and parts.scheme != "https":
        raise ConfigError(f"{option} must begin with https://, because strict is set.")
    if "@" in parts.netloc:
        raise ConfigError(f"{option} contains a user or password; use a header instead.")
    if port == 0:
        raise ConfigError(f"{option} has the port 0, which is not a valid port.")
    path = quote(parts.path or "/", safe="%/:=&~+!$,;'@()*") + (
        "?" + quote(parts.query, safe="%/:=&?~+!$,;'@()*") if parts.query else ""
    )
    return WebAddress(parts.scheme, _host(host, option), port or PORTS[parts.scheme], path)


def is_public(address: str) -> bool:
    """Whether an IP address belongs to a machine in the public network.

    An IPv4 address that is embedded in an IPv6 address is checked as IPv4. Python's `is_global` is not
    enough: in some versions it is true for multicast, site-local and protocol addresses.
    """
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour
        if ip in _EMBEDDED_V4:
            embedded = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if embedded is None:
            return ip in _PUBLIC_V6 and ip.is_global
        ip = embedded
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip in _PROTOCOLS_V4)


def _host(host: str, option: str) -> str:
    try:
        if ":" in host:
            return str(ipaddress.IPv6Address(host))
        ascii_host = host.encode("idna").decode("ascii")
    except ValueError:
        ascii_host = ""
    if not _HOST.fullmatch(ascii_host):
        raise ConfigError(f"{option} has no host, or an invalid one.")
    return ascii_host
