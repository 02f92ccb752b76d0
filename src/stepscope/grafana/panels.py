"""Panels in Grafana's JSON: the classic model, which Grafana 10 and newer import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

HEIGHT = 8

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
NO_UNIT = "short"
TEMPERATURES = (("green", None), ("#EAB839", 80), ("red", 87))
"""Colours from these temperatures on, in degrees Celsius."""
SHARES = (("green", None), ("#EAB839", 85), ("red", 95))
"""Colours from these percentages on."""

Thresholds = tuple[tuple[str, "float | None"], ...]


@dataclass(frozen=True)
class Query:
    """An expression of Prometheus, and how its series are named."""

    expression: str
    legend: str = ""
    kind: Literal["range", "instant", "heatmap"] = "range"

    def target(self, place: int) -> Json:
        """The query as Grafana has it."""
        is_instant = self.kind == "instant"
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expression,
            "format": {"instant": "table", "heatmap": "heatmap"}.get(self.kind, "time_series"),
            "instant": is_instant,
            "legendFormat": self.legend,
            "range": not is_instant,
            "refId": chr(ord("A") + place),
        }


@dataclass(frozen=True)
class Panel:
    """A panel without its place and id, which the dashboard assigns."""

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    options: Mapping[str, Any]
    custom: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Mapping[str, Any], ...] = ()
    overrides: tuple[Mapping[str, Any], ...] = ()
    width: int = 8
    height: int = HEIGHT

    def json(self, panel_id: int, x: int, y: int) -> Json:
        """The panel as Grafana has it."""
        return {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {
                "defaults": {**self.defaults, "custom": dict(self.custom), "unit": self.unit},
                "overrides": list(self.overrides),
            },
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "id": panel_id,
            "options": dict(self.options),
            "targets": [query.target(place) for place, query in enumerate(self.queries)],
            "title": self.title,
            "transformations": list(self.transformations),
            "type": self.kind,
        }


def time_series(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 8,
    is_stacked: bool = False,
    highest: float | None = None,
) -> Panel:
    """A chart over time; a stacked one shows how a sum is divided."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 70 if is_stacked else 0,
        "lineWidth": 1,
        "scaleDistribution": {"type": "linear"},
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if is_stacked else "none"},
    }
    limits = {} if highest is None else {"min": 0, "max": highest}
    options = {
        "legend": {
            "calcs": ["lastNotNull"],
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    colour = {"color": {"mode": "palette-classic"}}
    return Panel(
        "timeseries", title, description, queries, unit, options, custom, {**colour, **limits}, width=width
    )


def stat(
    title: str, description: str, query: Query, *, unit: str, thresholds: Thresholds = (("green", None),)
) -> Panel:
    """One number, with its colour by thresholds."""
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _last(),
        "textMode": "auto",
    }
    return Panel(
        "stat",
        title,
        description,
        (query,),
        unit,
        options,
        defaults=_by_thresholds(thresholds),
        width=4,
        height=4,
    )


def bar_gauge(
    title: str, description: str, query: Query, *, unit: str, highest: float, thresholds: Thresholds
) -> Panel:
    """A bar for each series, with its colour by thresholds."""
    options = {
        "displayMode": "lcd",
        "minVizHeight": 10,
        "minVizWidth": 0,
        "orientation": "horizontal",
        "reduceOptions": _last(),
        "showUnfilled": True,
        "valueMode": "color",
    }
    limits = {"min": 0, "max": highest}
    defaults = {**_by_thresholds(thresholds), **limits}
    return Panel("bargauge", title, description, (query,), unit, options, defaults=defaults)


def heat_map(title: str, description: str, expression: str, *, unit: str, width: int = 8) -> Panel:
    """The buckets of a histogram over time; the expression is their rate by `le`."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {},
        "color": {
            "exponent": 0.5,
            "mode": "scheme",
            "scale": "exponential",
            "scheme": "Oranges",
            "steps": 64,
        },
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    queries = (Query(expression, "{{le}}", "heatmap"),)
    custom = {"scaleDistribution": {"type": "linear"}}
    return Panel("heatmap", title, description, queries, unit, options, custom, width=width)


def state_timeline(
    title: str, description: str, query: Query, *, states: Mapping[str, tuple[str, str]], width: int = 8
) -> Panel:
    """A bar over time for each series; `states` has the text and the colour of each value."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    mapped = {value: {"color": colour, "index": place, "text": text}
              for place, (value, (text, colour)) in enumerate(states.items())}  # fmt: skip
    defaults = {"color": {"mode": "thresholds"}, "mappings": [{"options": mapped, "type": "value"}]}
    custom = {"fillOpacity": 70, "lineWidth": 0}
    return Panel(
        "state-timeline", title, description, (query,), NO_UNIT, options, custom, defaults, width=width
    )


def table(
    title: str, description: str, expression: str, columns: Sequence[str], *, link: str = "", width: int = 12
) -> Panel:
    """The labels of series as rows; `link` is the address that the first column leads to."""
    chosen = {
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True, "Value": True},
            "indexByName": {column: place for place, column in enumerate(columns)},
            "renameByName": {},
        },
    }
    kept = {"id": "filterFieldsByName", "options": {"include": {"names": [*columns]}}}
    link_of_first = {
        "matcher": {"id": "byName", "options": columns[0]},
        "properties": [
            {"id": "links", "value": [{"targetBlank": True, "title": "Open in stepscope", "url": link}]}
        ],
    }
    return Panel(
        "table",
        title,
        description,
        (Query(expression, kind="instant"),),
        NO_UNIT,
        {"cellHeight": "sm", "showHeader": True},
        transformations=(kept, chosen),
        overrides=(link_of_first,) if link else (),
        width=width,
    )


def _last() -> Json:
    return {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _by_thresholds(thresholds: Thresholds) -> Json:
    steps = [{"color": colour, "value": value} for colour, value in thresholds]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
