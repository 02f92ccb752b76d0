"""Builds the web application: routes, error handlers, background tasks and the access middleware."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING

from fastapi import FastAPI

import stepscope
from stepscope.errors import StepscopeError
from stepscope.web.access.incoming_request import API
from stepscope.web.access.middleware import AccessMiddleware
from stepscope.web.api import (
    routes_alerts,
    routes_marks,
    routes_metrics,
    routes_page,
    routes_rules,
    routes_runs,
    routes_series,
    routes_settings,
    routes_stream,
)
from stepscope.web.api.error_handlers import add_error_handlers
from stepscope.web.api.openapi import ERRORS, openapi_document
from stepscope.web.app_state import AppState
from stepscope.web.server.journal_ingest import JournalIngest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


def create_app(options: ServerOptions, state: AppState | None = None) -> AccessMiddleware:
    """The application, ready to serve; `options` must have been checked."""
    state = state or AppState(options)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(JournalIngest(options.folder).run()),
            asyncio.create_task(state.feed.run()),
            asyncio.create_task(state.metrics.run()),
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
    app.include_router(routes_metrics.router)
    app.include_router(routes_page.router)
    add_error_handlers(app)
    # Built on the first request and then kept; FastAPI documents this way to replace it.
    app.openapi = functools.cache(lambda: openapi_document(app))  # type: ignore[method-assign]
    return AccessMiddleware(app, options, state.keyring)


def _warm_up_rows(state: AppState) -> None:
    """Computes the rows of the run list before the first request: most runs have ended and stay cached."""
    with contextlib.suppress(StepscopeError), state.readers.open() as opened:
        state.rows(opened)
