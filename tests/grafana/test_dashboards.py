"""The dashboards are what the code makes, Grafana's model accepts them, and they use known metrics only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from stepscope.grafana.setup_files import DASHBOARDS, FOLDER, drawn
from stepscope.prometheus.families import FAMILIES

UNITS = {"percent", "percentunit", "mbytes", "bytes", "celsius", "watt", "s", "joule"}
UNITS |= {"short", "sci", "hertz", "Bps"}
"""The units of the recorded figures, then numbers without a unit, frequencies and rates."""
KINDS = {"timeseries", "stat", "bargauge", "heatmap", "state-timeline", "table"}

SAMPLE_NAMES = {family.name: set(family.labels) for family in FAMILIES if family.kind != "histogram"} | {
    f"{family.name}_bucket": {*family.labels, "le"} for family in FAMILIES if family.kind == "histogram"
}
"""Every name that a scrape may have, with its labels."""

DATASOURCE = {
    "type": "object",
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "required": ["type", "uid"],
}
TARGET = {
    "type": "object",
    "required": ["datasource", "expr", "refId", "format", "legendFormat"],
    "properties": {
        "datasource": DATASOURCE,
        "expr": {"type": "string", "minLength": 1},
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "format": {"enum": ["time_series", "table", "heatmap"]},
    },
}
GRID = {
    "type": "object",
    "properties": {
        "h": {"type": "integer", "minimum": 1},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
    },
    "required": ["h", "w", "x", "y"],
}
PANEL = {
    "type": "object",
    "required": [
        "id",
        "type",
        "title",
        "description",
        "gridPos",
        "fieldConfig",
        "options",
        "targets",
        "datasource",
    ],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": sorted(KINDS)},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "pattern": "^[A-Z0-9].*\\.$"},
        "datasource": DATASOURCE,
        "gridPos": GRID,
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {
            "type": "object",
            "properties": {
                "defaults": {
                    "type": "object",
                    "required": ["unit"],
                    "properties": {"unit": {"enum": sorted(UNITS)}},
                },
                "overrides": {"type": "array"},
            },
            "required": ["defaults", "overrides"],
        },
    },
}
ROW = {
    "type": "object",
    "required": ["id", "type", "title", "collapsed", "gridPos", "panels"],
    "properties": {"type": {"const": "row"}, "panels": {"type": "array", "items": PANEL}, "gridPos": GRID},
}
SCHEMA = {
    "type": "object",
    "required": ["annotations", "panels", "schemaVersion", "templating", "time", "title", "uid", "version"],
    "properties": {
        "id": {"type": "null"},
        "uid": {"type": "string", "pattern": "^stepscope-[a-z]+$", "maxLength": 40},
        "schemaVersion": {"const": 38},
        "version": {"type": "integer", "minimum": 1},
        "editable": {"const": True},
        "graphTooltip": {"const": 1},
        "refresh": {"const": "10s"},
        "timezone": {"const": "browser"},
        "tags": {"const": ["stepscope"]},
        "panels": {"type": "array", "items": {"anyOf": [PANEL, ROW]}},
        "annotations": {
            "type": "object",
            "properties": {"list": {"type": "array", "items": {"properties": {"datasource": DATASOURCE}}}},
        },
        "templating": {
            "type": "object",
            "properties": {
                "list": {
                    "type": "array",
                    "items": {"properties": {"type": {"enum": ["datasource", "query", "textbox"]}}},
                }
            },
        },
    },
}


def dashboard(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return loaded


def panels(name: str) -> Iterator[dict[str, Any]]:
    for panel in dashboard(name)["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def expressions(name: str) -> list[str]:
    """The expressions of panels, variables and annotations."""
    loaded = dashboard(name)
    queries = [target["expr"] for panel in panels(name) for target in panel["targets"]]
    queries += [annotation["expr"] for annotation in loaded["annotations"]["list"]]
    for variable in loaded["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            queries.append(f"count by ({label}) ({metric})")
    return queries


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_in_the_package_is_what_the_code_makes(name: str) -> None:
    advice = "write it again: python -m stepscope.grafana.setup_files"
    assert (FOLDER / name).read_text() == drawn(name), advice


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_follows_the_model_of_grafana_without_a_fixed_data_source(name: str) -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)
    assert [
        f"{error.instance_path}: {error.message}" for error in validator.iter_errors(dashboard(name))
    ] == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_ids_are_unique_and_panels_do_not_overlap(name: str) -> None:
    top = dashboard(name)["panels"]
    ids = [panel["id"] for panel in top] + [inner["id"] for row in top for inner in row.get("panels", ())]
    assert len(ids) == len(set(ids))
    for group in (top, *(row["panels"] for row in top if row["type"] == "row")):
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in group)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))
        assert all(x < 24 for x, _ in cells)


def test_the_dashboards_have_different_uids() -> None:
    uids = [dashboard(name)["uid"] for name in DASHBOARDS]
    assert sorted(uids) == ["stepscope-distributed", "stepscope-gpu", "stepscope-overview"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_metric_and_label_is_one_that_is_served_to_prometheus(name: str) -> None:
    words = r"\b(?:stepscope|gpu|training|memory|learning|gradient)_\w+"
    for expression in expressions(name):
        bare = re.sub(r"(?:by|on) \([^)]*\)|\{[^}]*\}", "", expression)
        names = set(re.findall(words, bare))
        assert names, expression
        assert names <= SAMPLE_NAMES.keys(), expression
        for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)=~", matchers)) <= SAMPLE_NAMES[metric], expression


@pytest.mark.parametrize("name", DASHBOARDS)
def test_expressions_use_only_variables_that_the_dashboard_has(name: str) -> None:
    known = {variable["name"] for variable in dashboard(name)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard(name))))
    assert used - known <= {"__rate_interval", "__range", "__value", "__all"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_columns_of_a_table_are_labels_of_its_metric(name: str) -> None:
    for panel in panels(name):
        for change in panel["transformations"]:
            (metric,) = re.findall(r"\w+(?=\{)", panel["targets"][0]["expr"])
            columns = change["options"].get("include", {}).get("names", ())
            assert set(columns) <= SAMPLE_NAMES[metric], panel["title"]


def test_the_overview_has_what_people_expect_of_a_training() -> None:
    titles = {panel["title"]: panel["type"] for panel in panels("gpu-training-dashboard.json")}
    expected = {
        "GPU utilisation": "timeseries",
        "GPU temperature": "bargauge",
        "GPU power": "timeseries",
        "GPU memory used": "timeseries",
        "Loss": "timeseries",
        "Learning rate": "timeseries",
        "Step duration": "heatmap",
    }
    assert expected.items() <= titles.items()
    (temperature,) = [
        panel for panel in panels("gpu-training-dashboard.json") if panel["title"] == "GPU temperature"
    ]
    steps = temperature["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 80, 87]
