"""Says no: one shape of error for programs, one plain page for people, and an id that the log has too."""

from __future__ import annotations

import html
import json
import logging
import secrets
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("stepscope.web")

INTERNAL_ERROR = "Something went wrong on the server. Its log has more under this id."
NEEDS_LOGIN = (
    "This page needs its access token. Open the address that `stepscope serve` prints, token included; "
    "if the server runs already, the same command prints it again. "
    "Programs send the header Authorization: Bearer TOKEN."
)
WRONG_LOGIN = f"This token is not, or no longer, the right one. {NEEDS_LOGIN}"


def new_id() -> str:
    """An id by which an answer and a line of the log find each other."""
    return secrets.token_hex(6)


def error_response(
    status: int, message: str, *, error_id: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """An error as programs read it."""
    error_id = error_id or new_id()
    body = json.dumps({"error": {"message": message, "id": error_id}})
    return Response(body, status, dict(headers or {}), "application/json")


def plain_page(status: int, title: str, text: str, *, links: Mapping[str, str] | None = None) -> Response:
    """A page without script or style, for people who are not let in or have nothing to see yet."""
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
