"""The page of a store in a frame under a cell: finds its server or starts one, and makes the frame."""

from __future__ import annotations

import html
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from stepscope.config.find import settings_for
from stepscope.errors import StepscopeError
from stepscope.reading import open_store
from stepscope.recorder.page_server import LOG_NAME, ensure_server, find_server, started_server
from stepscope.web.access import tokens
from stepscope.web.access.incoming_request import API
from stepscope.web.server.options import is_loopback

if TYPE_CHECKING:
    from stepscope.recorder.page_server import Served

LOCALHOST = "localhost"
"""The host name by which Jupyter opens its page."""

LOCAL_ORIGINS = ["http://localhost:*", "http://127.0.0.1:*"]
"""Who may show the page of a server that a notebook starts, where the settings name nobody."""

START_S = 60.0
"""How long to wait for a server that is starting."""

ANSWER_S = 10.0


@dataclass(frozen=True)
class PageFrame:
    """The page in a frame, as a notebook shows it."""

    address: str
    """With a ticket that lets the frame in for a minute: the token must not be in a saved notebook."""
    height: int

    def __repr__(self) -> str:
        return f"<the page of stepscope at {without_query(self.address)}>"

    def _repr_html_(self) -> str:
        plain = html.escape(without_query(self.address))
        return (
            f'<iframe src="{html.escape(self.address)}" width="100%" height="{self.height}" '
            f'style="border: 0" title="stepscope"></iframe>'
            f'<p><a href="{plain}" target="_blank" rel="noopener">{plain}</a></p>'
        )


def page_frame(folder: Path, path: str, height: int, host: str) -> PageFrame:
    """The frame of a page of a store, by the host name under which the browser has opened the notebook.

    A browser sends the cookie of the page only to the host of the notebook. Raises StepscopeError where no
    server can be shown in a frame.
    """
    server = _server(folder)
    _check_frames(server, host)
    address = address_by(server.address, host) + path
    if server.token_file is not None:
        address += f"?token={tokens.new_ticket(tokens.token_of(Path(server.token_file)))}"
    return PageFrame(address, height)


def without_query(address: str) -> str:
    """An address without what lets a browser in."""
    return urlunsplit(urlsplit(address)._replace(query=""))


def _server(folder: Path) -> Served:
    """The server of a store folder, started with the origins of notebooks where none runs.

    Without a store nothing is started: the folder may be a typing mistake. A monitor has its store as soon as
    it records.
    """
    if find_server(folder) is None:
        open_store(folder).close()
    settings = settings_for()
    origins = settings.dashboard.frame_origins or LOCAL_ORIGINS
    dashboard = replace(settings.dashboard, enabled=True, frame_origins=origins)
    ensure_server(folder, replace(settings, dashboard=dashboard))
    server = started_server(folder, START_S)
    if server is None:
        raise StepscopeError(f"The page of {folder} could not be started; {folder / LOG_NAME} says why.")
    return server


def _check_frames(server: Served, host: str) -> None:
    """Raises StepscopeError if the server allows no frames, as `stepscope serve` without the setting."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{server.address}{API}/health", timeout=ANSWER_S) as response:
            policy = response.headers.get("content-security-policy", "")
    except urllib.error.HTTPError as error:
        policy = error.headers.get("content-security-policy", "")
    except (OSError, HTTPException) as error:
        raise StepscopeError(
            f"The server of this store does not answer at {server.address}: {str(error).strip()}. Stop it "
            f"(kill {server.pid}) and try again."
        ) from error
    if "frame-ancestors 'none'" in policy:
        raise StepscopeError(
            f"The server of this store allows no frames. Open {server.address} in another tab. Or stop the "
            f"server (kill {server.pid}) and try again: %stepscope starts one that allows frames of "
            f'{host}. To allow them for good, set dashboard.frame_origins to ["http://{host}:*"].'
        )


def address_by(address: str, host: str = LOCALHOST) -> str:
    """The address of a server on loopback by another of its names; other servers keep theirs."""
    parts = urlsplit(address)
    if parts.hostname is None or not is_loopback(parts.hostname):
        return address
    return urlunsplit(parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}"))
