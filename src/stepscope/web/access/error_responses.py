"""Error responses: JSON for programs, a plain page for people, each with an id that is also in the log."""

from __future__ import annotations

import html
import json
import logging
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("stepscope.web")

INTERNAL_ERROR = "Something went wrong on the server. See its log under this id."
NEEDS_LOGIN = (
    "This page needs its access token. Open the address that `stepscope serve` prints, including the token; "
    "if the server is already running, the same command prints it again. "
    "Programs send the header Authorization: Bearer TOKEN."
)
NEEDS_HEADER = (
    "This server needs its access token. Send the header Authorization: Bearer TOKEN. The token is in the "
    "file that the server named when it was started, by default server.token in the store folder."
)
WRONG_HEADER = f"This token is wrong or has been replaced. {NEEDS_HEADER}"
WRONG_LOGIN = f"This token is wrong or has been replaced. {NEEDS_LOGIN}"


@dataclass(frozen=True)
class ErrorText:
    """What went wrong."""

    message: str
    id: str
    """The same id is in the server's log."""


@dataclass(frozen=True)
class ErrorBody:
    """The body of every error."""

    error: ErrorText


def new_id() -> str:
    """An id that connects a response with a line of the log."""
    return secrets.token_hex(6)


def error_response(
    status: int, message: str, *, error_id: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as JSON."""
    body = ErrorBody(ErrorText(message, error_id or new_id()))
    return Response(json.dumps(asdict(body)), status, dict(headers or {}), "application/json")


def plain_page(status: int, title: str, text: str, *, links: Mapping[str, str] | None = None) -> Response:
    """A page without script or style, for errors and for servers without the built page."""
    listed = "".join(
        f'<p><a href="{html.escape(target)}">{html.escape(name)}</a></p>'
        for name, target in (links or {}).items()
    )
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"></head>'
        f"<body><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>{listed}</body></html>",
        status,
    )
