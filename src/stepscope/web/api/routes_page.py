"""Serves the built page: files are chosen by name from a folder listing, never by a path from a request."""

from __future__ import annotations

import html
from importlib import resources
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import HTTPException

from stepscope.web.access.error_responses import plain_page
from stepscope.web.access.incoming_request import API
from stepscope.web.api.parameters import StateOf  # noqa: TC001 - FastAPI reads it

if TYPE_CHECKING:
    from importlib.abc import Traversable

router = APIRouter(include_in_schema=False)

PAGE_FOLDER: Traversable = resources.files("stepscope.web") / "page"
INDEX = "index.html"
BASE = '<base href="/">'
CACHE_FOREVER = "private, max-age=31536000, immutable"
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
"""Media types by file suffix; files with any other suffix are not served."""


@router.api_route("/assets/{name}", methods=["GET", "HEAD"])
def asset(name: str) -> Response:
    """A built file whose name changes with its content, so that browsers may cache it forever."""
    file = _file_in(PAGE_FOLDER / "assets", name)
    if file is None:
        raise HTTPException(404)
    return Response(file.read_bytes(), headers={"Cache-Control": CACHE_FOREVER}, media_type=_media_type(name))


@router.api_route("/api/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def nothing(rest: str) -> Response:
    """Answers unknown API paths with an error instead of the page."""
    del rest
    raise HTTPException(404)


@router.api_route("/{path:path}", methods=["GET", "HEAD"])
def page(request: Request, state: StateOf, path: str) -> Response:
    """The page, for every path of it, or a file in its folder."""
    del request
    file = _file_in(PAGE_FOLDER, path)
    if file is not None and path != INDEX:
        return Response(file.read_bytes(), media_type=_media_type(path))
    index = _file_in(PAGE_FOLDER, INDEX)
    base_path = state.options.base_path.rstrip("/")
    if index is None:
        return plain_page(
            200,
            "The page is not built",
            "The server is running, but this installation has no built page. The API works.",
            links={"API": f"{base_path}{API}/openapi.json"},
        )
    text = index.read_text(encoding="utf-8").replace(BASE, f'<base href="{html.escape(base_path)}/">')
    return Response(text, media_type=MEDIA_TYPES["html"])


def _file_in(folder: Traversable, name: str) -> Traversable | None:
    """The file of a folder with this name, found in a listing of the folder."""
    if name.rpartition(".")[2] not in MEDIA_TYPES or not folder.is_dir():
        return None
    return next((file for file in folder.iterdir() if file.name == name and file.is_file()), None)


def _media_type(name: str) -> str:
    return MEDIA_TYPES[name.rpartition(".")[2]]
