"""Routes on settings: the settings of this server with secrets hidden, and a new token."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import HTTPException

from stepscope.config.reference import descriptions, yaml_text
from stepscope.config.secret import redacted
from stepscope.config.sections import to_dict
from stepscope.web.access.incoming_request import IncomingRequest
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import DONE, StateOf
from stepscope.web.api.responses import json_response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.config.sections import Settings

log = logging.getLogger("stepscope.web")

router = APIRouter(tags=["settings"])

PROMETHEUS_PORT = 9464
GENERAL = "general"


@dataclass(frozen=True)
class SettingRow:
    """A setting and its value; secrets are hidden."""

    section: str
    name: str
    value: str
    help: str


@dataclass(frozen=True)
class ServerSettings:
    """The settings this server was started with."""

    items: tuple[SettingRow, ...]
    scrape_config: str | None
    """The lines for the configuration of Prometheus; None where its exporter is off."""
    exporters: tuple[str, ...]
    token_file: str | None
    """The file with the token; None where none is needed."""


@router.get("/settings", response_model=answer(ServerSettings))
def settings(state: StateOf) -> Response:
    """Every setting with its value and help; the Prometheus configuration; the exporters."""
    settings = state.options.settings
    enabled = [name for name, options in settings.exporters.items() if options.get("enabled", True)]
    file = state.keyring.file
    return json_response(
        ServerSettings(
            items=tuple(_items(settings)),
            scrape_config=_scrape_config(settings, enabled),
            exporters=tuple(enabled),
            token_file=None if file is None else str(file.absolute()),
        )
    )


@router.post("/token", status_code=204, response_class=Response, responses=DONE)
async def make_token(state: StateOf, request: Request) -> Response:
    """Makes a new token. Cookies, links and streams of the old one end; the response has a new cookie."""
    if not state.keyring.is_needed():
        raise HTTPException(400, "This server needs no token: it was started with --no-token.")
    response = Response(status_code=204)
    state.keyring.renew(response, IncomingRequest(request.scope))
    log.info("A new token was created.")
    state.feed.disconnect_all()
    return response


def _items(settings: Settings) -> Iterator[SettingRow]:
    values = redacted(to_dict(settings))
    for setting in descriptions():
        value: Any = values
        for part in setting.key:
            value = value.get(part) if isinstance(value, dict) else None
        section = setting.key[0] if len(setting.key) > 1 else GENERAL
        yield SettingRow(section, setting.name, yaml_text(value), setting.sentence)


def _scrape_config(settings: Settings, exporters: list[str]) -> str | None:
    """The lines for the configuration of Prometheus; None where its exporter is off."""
    if "prometheus" not in exporters:
        return None
    port = settings.exporters["prometheus"].get("port", PROMETHEUS_PORT)
    target = f"targets: [localhost:{port}]"
    return f"scrape_configs:\n  - job_name: stepscope\n    static_configs:\n      - {target}\n"
