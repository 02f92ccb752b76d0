"""Dashboards in Grafana's JSON: rows of panels, and the choices above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.grafana.panels import DATASOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepscope.grafana.panels import Json, Panel

SCHEMA_VERSION = 38
"""That of Grafana 10.0; newer versions convert it."""
VERSION = 1
"""To be raised with each change: Grafana keeps the higher one of two with the same uid."""
COLUMNS = 24
PAGE = "stepscope"
"""The variable with the address of stepscope's page."""
PAGE_ADDRESS = "http://localhost:8787"


@dataclass(frozen=True)
class Row:
    """Panels below one heading, from left to right and then down."""

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


@dataclass(frozen=True)
class Variable:
    """A choice above the panels: the values of a label."""

    name: str
    query: str


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: its rows, and the choices above them."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    annotations: tuple[tuple[str, str, str], ...] = ()
    """Marks in all charts: name, expression, and the text with labels."""

    def json(self) -> Json:
        """The dashboard as Grafana imports it."""
        return {
            "annotations": {"list": [_annotation(*annotation) for annotation in self.annotations]},
            "description": self.description,
            "editable": True,
            "graphTooltip": 1,
            "id": None,
            "links": [_link_to_others(), _link_to_page()],
            "panels": list(self._placed()),
            "refresh": "10s",
            "schemaVersion": SCHEMA_VERSION,
            "tags": ["stepscope"],
            "templating": {"list": [_datasource(), *map(_label_choice, self.variables), _page_address()]},
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": VERSION,
        }

    def _placed(self) -> Iterator[Json]:
        panel_id, y = 0, 0
        for row in self.rows:
            panel_id += 1
            heading: Json = {
                "collapsed": row.is_collapsed,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
                "id": panel_id,
                "panels": [],
                "title": row.title,
                "type": "row",
            }
            placed, bottom = _place(row.panels, panel_id + 1, y + 1)
            panel_id += len(placed)
            if row.is_collapsed:
                heading["panels"] = placed
                yield heading
                y += 1
            else:
                yield heading
                yield from placed
                y = bottom


def _place(panels: Sequence[Panel], first_id: int, y: int) -> tuple[list[Json], int]:
    """Places panels from left to right, then below; returns them with their lower end."""
    placed, x, bottom = [], 0, y
    for panel_id, panel in enumerate(panels, first_id):
        if x + panel.width > COLUMNS:
            x, y = 0, bottom
        placed.append(panel.json(panel_id, x, y))
        x += panel.width
        bottom = max(bottom, y + panel.height)
    return placed, bottom


def _datasource() -> Json:
    return {
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }


def _label_choice(variable: Variable) -> Json:
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": variable.query,
        "includeAll": True,
        "multi": True,
        "name": variable.name,
        "options": [],
        "query": {"query": variable.query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def _page_address() -> Json:
    return {
        "current": {"text": PAGE_ADDRESS, "value": PAGE_ADDRESS},
        "label": "Page of stepscope",
        "name": PAGE,
        "options": [{"selected": True, "text": PAGE_ADDRESS, "value": PAGE_ADDRESS}],
        "query": PAGE_ADDRESS,
        "type": "textbox",
    }


def _annotation(name: str, expression: str, text: str) -> Json:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expression,
        "iconColor": "orange",
        "name": name,
        "step": "10s",
        "titleFormat": text,
    }


def _link_to_others() -> Json:
    return {
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "tags": ["stepscope"],
        "title": "Dashboards of stepscope",
        "type": "dashboards",
    }


def _link_to_page() -> Json:
    return {"targetBlank": True, "title": "stepscope", "type": "link", "url": f"${{{PAGE}}}/runs"}
