"""Holds the current access token: compares requests with it, and replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.web.access.tokens import (
    COOKIE_SECONDS,
    cookie_name,
    cookie_value,
    is_same,
    is_ticket,
    is_valid_ticket,
    new_token,
    path_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.responses import Response

    from stepscope.web.access.incoming_request import IncomingRequest
    from stepscope.web.server.options import ServerOptions


class Keyring:
    """The token of one server; None where it was started without."""

    def __init__(self, options: ServerOptions) -> None:
        self.token = options.token
        self._has_tls, self._path = options.has_tls, options.base_path.rstrip("/") or "/"
        self._file = path_of(options.folder, options.settings.dashboard.token_file)

    @property
    def file(self) -> Path | None:
        """The file the token is in."""
        return None if self.token is None else self._file

    def is_needed(self) -> bool:
        """Whether requests need a token."""
        return self.token is not None

    def accepts(self, token: str | None) -> bool:
        """Whether this is the token."""
        return self.token is not None and token is not None and is_same(token, self.token)

    def lets_in(self, token: str | None, request: IncomingRequest) -> bool:
        """Whether the text in the address of a page is the token or a ticket.

        A ticket that has expired does no harm to a client that has the cookie already, as when a notebook is
        opened again.
        """
        if self.token is None or token is None or not is_ticket(token):
            return self.accepts(token)
        return is_valid_ticket(token, self.token) or self.is_in_cookie(request)

    def is_in_cookie(self, request: IncomingRequest) -> bool:
        """Whether a request has the cookie of the current token."""
        if self.token is None:
            return False
        value = request.cookie(cookie_name(self.token))
        return value is not None and is_same(value, cookie_value(self.token))

    def set_cookie(self, response: Response, request: IncomingRequest) -> None:
        """Adds the cookie to a response."""
        if self.token is not None:
            response.set_cookie(
                cookie_name(self.token),
                cookie_value(self.token),
                max_age=COOKIE_SECONDS,
                path=self._path,
                secure=self._has_tls or request.is_encrypted,
                httponly=True,
                samesite="strict",
            )

    def renew(self, response: Response, request: IncomingRequest) -> None:
        """Makes a new token; only the client that gets this response stays logged in."""
        if self.token is not None:
            response.delete_cookie(cookie_name(self.token), path=self._path)
            self.token = new_token(self._file)
            self.set_cookie(response, request)
