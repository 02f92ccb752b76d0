"""Serves the metrics for Prometheus, and the two requests by which other programs check a server."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stepscope.errors import MissingExtra
from stepscope.prometheus.metrics_server import HEALTHY_PATH, METRICS_PATH, READY_PATH
from stepscope.web.access.error_responses import error_response
from stepscope.web.api.parameters import StateOf  # noqa: TC001 - FastAPI reads it

router = APIRouter(include_in_schema=False)


@router.api_route(METRICS_PATH, methods=["GET", "HEAD"])
@router.api_route(HEALTHY_PATH, methods=["GET", "HEAD"])
@router.api_route(READY_PATH, methods=["GET", "HEAD"])
def metrics(request: Request, state: StateOf) -> Response:
    """The metrics, or whether the server is healthy or ready."""
    try:
        path = str(request.scope["path"])
        status, body, content_type = state.metrics.answer(path, request.headers.get("accept", ""))
    except MissingExtra as error:
        return error_response(501, str(error))
    return Response(body, status, media_type=content_type)
