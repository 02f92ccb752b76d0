"""Reads headers, cookies, token and path of a request."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

if TYPE_CHECKING:
    from starlette.types import Scope

API = "/api/v1"
HEALTH_PATHS = frozenset({f"{API}/health", "/-/healthy", "/-/ready"})
"""Paths without a token: they say only whether the server works."""
SCRAPED = "/metrics"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; any other counts as a change."""
AUTHENTICATED = "stepscope_known"
"""Set in the scope of a request that came with the token."""


class IncomingRequest:
    """One request, as the access middleware sees it."""

    def __init__(self, scope: Scope, base_path: str = "") -> None:
        self._scope = scope
        self.method: str = scope["method"]
        self.is_encrypted = scope.get("scheme") == "https"
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._query = scope["query_string"].decode("latin-1")
        self.path = _without_base_path(scope["path"], base_path)
        client: tuple[str, int] | None = scope.get("client")
        self.address = client[0] if client else "local"

    @property
    def is_change(self) -> bool:
        """Whether it may change something."""
        return self.method not in SAFE_METHODS

    @property
    def is_api(self) -> bool:
        """Whether it is a request to the API, and not for a page."""
        return self.path == "/api" or self.path.startswith("/api/")

    def mark_authenticated(self) -> None:
        """Notes that the request had the token; connections without it are closed first."""
        self._scope[AUTHENTICATED] = True

    def headers(self, name: str) -> list[str]:
        """All values of a header; its name is given in lower case."""
        encoded = name.encode()
        return [value.decode("latin-1") for header, value in self._headers if header == encoded]

    def header(self, name: str) -> str | None:
        """The value of a header; None when there is none, or more than one."""
        values = self.headers(name)
        return values[0] if len(values) == 1 else None

    def cookie(self, name: str) -> str | None:
        """A cookie by its name."""
        for header in self.headers("cookie"):
            try:
                cookie = SimpleCookie(header).get(name)
            except CookieError:
                continue
            if cookie is not None:
                return cookie.value
        return None

    def bearer(self) -> str | None:
        """The token of the Authorization header."""
        kind, _, token = (self.header("authorization") or "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else None

    def query_token(self) -> str | None:
        """The token in the URL."""
        return dict(self._parameters()).get("token")

    def address_without_token(self) -> str:
        """Path and query of the URL without the token; always on this server."""
        rest = urlencode([(name, value) for name, value in self._parameters() if name != "token"])
        # Two slashes, or one of them a backslash, would lead a browser to another host.
        path = "/" + self.path.lstrip("/\\")
        return f"{_quoted(path)}?{rest}" if rest else _quoted(path)

    def _parameters(self) -> list[tuple[str, str]]:
        try:
            return parse_qsl(self._query, keep_blank_values=True, max_num_fields=200)
        except ValueError:
            return []


def with_path(scope: Scope, path: str) -> dict[str, Any]:
    """The same request for another path."""
    return {**scope, "path": path, "raw_path": path.encode("utf-8", "surrogateescape"), "root_path": ""}


def _without_base_path(path: str, base_path: str) -> str:
    """A path as the routes know it; a proxy may have removed the base path already."""
    if base_path and (path == base_path or path.startswith(f"{base_path}/")):
        return path[len(base_path) :] or "/"
    return path


def _quoted(path: str) -> str:
    return quote(path, safe="/:@!$&'()*+,;=~-._")
