"""The route on settings: those this server was started with, secrets hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from stepscope.config.plain import to_dict
from stepscope.config.reference import descriptions
from stepscope.config.secret import redacted
from stepscope.config.wording import yaml_text
from stepscope.web.answers import answer
from stepscope.web.parameters import SiteOf  # noqa: TC001 - FastAPI reads it
from stepscope.web.shapes_alerts import ServerSettings

if TYPE_CHECKING:
    from stepscope.config.sections import Settings

router = APIRouter(tags=["settings"])

PROMETHEUS_PORT = 9464
GENERAL = "general"


@router.get("/settings", response_model=ServerSettings)
def settings(site: SiteOf) -> Response:
    """Every setting with its value and its sentence; how others can scrape; what is fed."""
    known = site.options.settings
    on = [name for name, options in known.exporters.items() if options.get("enabled", True)]
    return answer({"items": _items(known), "scrape_config": _scrape_config(known, on), "exporters": on})


def _items(known: Settings) -> list[dict[str, str]]:
    values = redacted(to_dict(known))
    found = []
    for one in descriptions():
        value: Any = values
        for part in one.key:
            value = value.get(part) if isinstance(value, dict) else None
        section = one.key[0] if len(one.key) > 1 else GENERAL
        found.append({"section": section, "name": one.name, "value": yaml_text(value), "help": one.sentence})
    return found


def _scrape_config(known: Settings, on: list[str]) -> str | None:
    """What to put into the configuration of Prometheus; None where nothing is to be scraped."""
    if "prometheus" not in on:
        return None
    port = known.exporters["prometheus"].get("port", PROMETHEUS_PORT)
    target = f"targets: [localhost:{port}]"
    return f"scrape_configs:\n  - job_name: stepscope\n    static_configs:\n      - {target}\n"
