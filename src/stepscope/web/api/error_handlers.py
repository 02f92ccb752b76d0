"""Turns exceptions of routes into error responses that show nothing of the server's internals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from stepscope.errors import NotFound, StepscopeError, StoreDamaged
from stepscope.web.access.error_responses import INTERNAL_ERROR, error_response

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("stepscope.web")

DAMAGED = (
    "The store cannot be read; it seems to be damaged. Restore it from a copy, or move it away to start a "
    "new one. See the server's log under this id."
)
UNREADABLE = "The data cannot be read or saved now. See the server's log under this id."
MAX_SHOWN = 80

PARAMETER_KINDS = {"path", "query", "header", "body", "cookie"}


def add_error_handlers(app: FastAPI) -> None:
    """Makes an application answer every error as `ErrorBody`."""
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(StepscopeError, _on_stepscope_error)
    app.add_exception_handler(Exception, _on_unexpected_error)


def parameter_error(error: dict[str, Any]) -> str:
    """Describes what is wrong with one parameter: its name, its value, what is allowed."""
    place = [str(part) for part in error["loc"]]
    name = ".".join(place[1:] if place[0] in PARAMETER_KINDS and len(place) > 1 else place)
    value = error.get("input")
    message = str(error["msg"])
    reason = message[:1].lower() + message[1:]
    if error["type"] == "missing":
        return f"The parameter {name!r} is missing."
    if error["type"] == "json_invalid":
        return "The body is not JSON."
    return f"The parameter {name!r} is {repr(value)[:MAX_SHOWN]}: {reason}."


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this kind
    return error_response(400, " ".join(map(parameter_error, error.errors()[:3])), error_id=_id(request))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this kind
    texts = {404: "There is nothing at this address.", 405: "This address does not support that method."}
    text = texts.get(error.status_code) if error.detail in ("Not Found", "Method Not Allowed") else None
    return error_response(
        error.status_code, text or error.detail, error_id=_id(request), headers=error.headers
    )


async def _on_stepscope_error(request: Request, error: Exception) -> Response:
    if isinstance(error, NotFound):
        return error_response(404, str(error), error_id=_id(request))
    log.warning("error %s: %s", _id(request), error, exc_info=error.__cause__)
    text = DAMAGED if isinstance(error, StoreDamaged) else UNREADABLE
    return error_response(409, text, error_id=_id(request))


async def _on_unexpected_error(request: Request, _error: Exception) -> Response:
    # The middleware has logged it, under the same id.
    return error_response(500, INTERNAL_ERROR, error_id=_id(request))


def _id(request: Request) -> str:
    return str(getattr(request.state, "id", ""))
