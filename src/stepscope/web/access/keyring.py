"""The token that is in force: what requests are compared with, and how another takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.web.access.tokens import COOKIE_SECONDS, cookie_name, cookie_value, is_same, new_token, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.responses import Response

    from stepscope.web.access.incoming_request import IncomingRequest
    from stepscope.web.server.options import ServerOptions


class Keyring:
    """One server's token; there is none where it was started without."""

    def __init__(self, options: ServerOptions) -> None:
        self.token = options.token
        self._has_tls, self._path = options.has_tls, options.base_path.rstrip("/") or "/"
        self._file = path_of(options.folder, options.settings.dashboard.token_file)

    @property
    def file(self) -> Path | None:
        """Where the token lies."""
        return None if self.token is None else self._file

    def is_needed(self) -> bool:
        """Whether anybody must show it."""
        return self.token is not None

    def opens(self, given: str | None) -> bool:
        """Whether this is the token."""
        return self.token is not None and given is not None and is_same(given, self.token)

    def is_in_cookie(self, request: IncomingRequest) -> bool:
        """Whether a request has a cookie that was made from it."""
        if self.token is None:
            return False
        given = request.cookie(cookie_name(self.token))
        return given is not None and is_same(given, cookie_value(self.token))

    def hand_out(self, answer: Response, request: IncomingRequest) -> None:
        """Puts the cookie into an answer."""
        if self.token is not None:
            answer.set_cookie(
                cookie_name(self.token),
                cookie_value(self.token),
                max_age=COOKIE_SECONDS,
                path=self._path,
                secure=self._has_tls or request.is_encrypted,
                httponly=True,
                samesite="strict",
            )

    def renew(self, answer: Response, request: IncomingRequest) -> None:
        """Makes another token; whoever gets this answer goes on with its cookie, and nobody else does."""
        if self.token is not None:
            answer.delete_cookie(cookie_name(self.token), path=self._path)
            self.token = new_token(self._file)
            self.hand_out(answer, request)
