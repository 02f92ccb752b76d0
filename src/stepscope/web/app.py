"""Builds the web application: routes, error handlers, background tasks and the access middleware."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import stepscope
from stepscope.errors import StepscopeError
from stepscope.web.access.incoming_request import API
from stepscope.web.access.middleware import AccessMiddleware
from stepscope.web.api import (
    routes_alerts,
    routes_marks,
    routes_page,
    routes_rules,
    routes_runs,
    routes_series,
    routes_settings,
    routes_stream,
)
from stepscope.web.api.error_handlers import add_error_handlers
from stepscope.web.api.shapes_runs import ErrorBody
from stepscope.web.app_state import AppState
from stepscope.web.server.journal_ingest import JournalIngest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepscope.web.api.parameters import Responses
    from stepscope.web.server.options import ServerOptions

ROUTERS = (
    routes_runs.router,
    routes_series.router,
    routes_stream.router,
    routes_alerts.router,
    routes_rules.router,
    routes_marks.router,
    routes_settings.router,
)

TITLE = "stepscope"
ABOUT = (
    "Runs, series, findings and alerts of one store. Times are seconds since the epoch, ratios 0 to 1, sizes "
    "bytes; null means unknown. Every request needs the token, as `Authorization: Bearer` or as the cookie "
    "of the page; a change by cookie needs the header `X-Stepscope: 1` and the page's Origin."
)

ERRORS: Responses = {
    400: {"model": ErrorBody, "description": "A parameter is wrong; the message says what is allowed."},
    401: {"model": ErrorBody, "description": "The token is missing or wrong."},
    403: {"model": ErrorBody, "description": "The host or the origin is not allowed."},
    404: {"model": ErrorBody, "description": "Not found."},
    409: {"model": ErrorBody, "description": "The store cannot be read."},
    429: {"model": ErrorBody, "description": "Too many requests."},
}
CHANGE_ERRORS: Responses = {
    405: {"model": ErrorBody, "description": "The server is read-only."},
    413: {"model": ErrorBody, "description": "The body is too large."},
}


def create_app(options: ServerOptions, state: AppState | None = None) -> AccessMiddleware:
    """The application, ready to serve; `options` must have been checked."""
    state = state or AppState(options)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(JournalIngest(options.folder).run()),
            asyncio.create_task(state.feed.run()),
            asyncio.create_task(asyncio.to_thread(_warm_up_rows, state)),
        ]
        try:
            yield
        finally:
            state.feed.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            state.close()

    app = FastAPI(
        title=TITLE,
        version=stepscope.__version__,
        description=ABOUT,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # it would load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.stepscope = state
    for router in ROUTERS:
        app.include_router(router, prefix=API, responses=ERRORS)
    app.include_router(routes_page.router)
    add_error_handlers(app)
    # Built on the first request and then kept; FastAPI documents this way to replace it.
    app.openapi = functools.cache(lambda: _openapi_schema(app))  # type: ignore[method-assign]
    return AccessMiddleware(app, options, state.keyring)


def _warm_up_rows(state: AppState) -> None:
    """Computes the rows of the run list before the first request: most runs have ended and stay cached."""
    with contextlib.suppress(StepscopeError), state.readers.open() as opened:
        state.rows(opened)


def _openapi_schema(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI schema, with 400 instead of 422 and with the token as security scheme."""
    schema = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    changes = {str(status): _error_schema(response) for status, response in CHANGE_ERRORS.items()}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            if method != "get":
                operation["responses"].update(changes)
            if path == f"{API}/health":
                operation["security"] = []
    components = schema["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    return schema


def _error_schema(response: dict[str, Any]) -> dict[str, Any]:
    body = {"$ref": "#/components/schemas/ErrorBody"}
    return {"description": response["description"], "content": {"application/json": {"schema": body}}}
