"""Responses match their OpenAPI schemas, for runs of every kind."""

from __future__ import annotations

import random

import numpy as np
import pytest

import stepscope
from stepscope.config.sections import Alerts, Settings
from stepscope.schema.series import Source
from stepscope.web.api import shapes_alerts, shapes_logs, shapes_overview, shapes_runs, shapes_series
from tests.web.asking import API, BEGUN_NS, NS, RUN, app_of, append, ask, error_of, get, process, times

SHAPES = {
    "/meta": shapes_runs.Meta,
    "/home": shapes_runs.Home,
    "/runs": shapes_runs.RunList,
    "/runs/{run}": shapes_runs.RunHead,
    "/runs/{run}/overview": shapes_overview.Overview,
    "/runs/{run}/keys": shapes_series.Catalogue,
    "/runs/{run}/series?keys=loss&format=json&buckets=8": shapes_series.SeriesHeader,
    "/runs/{run}/steps": shapes_overview.StepWindow,
    "/runs/{run}/heatmap": shapes_overview.Heatmap,
    "/runs/{run}/findings": shapes_overview.Findings,
    "/runs/{run}/logs": shapes_logs.Console,
    "/runs/{run}/config": shapes_overview.RunConfig,
    "/compare?runs={run}": shapes_overview.Comparison,
    "/alerts": shapes_alerts.AlertList,
    "/settings": shapes_alerts.ServerSettings,
    "/delta?run={run}&keys=loss&wait=0": shapes_series.Delta,
}


def assert_same_names(told, shaped, where: str = "") -> None:
    """What was sent and what its shape holds have the same fields, all the way down."""
    if isinstance(told, dict) and isinstance(shaped, dict):
        assert set(told) == set(shaped), where
        for name, part in told.items():
            assert_same_names(part, shaped[name], f"{where}.{name}")
    elif isinstance(told, list):
        for one, other in zip(told, shaped, strict=True):
            assert_same_names(one, other, f"{where}[]")


@pytest.mark.parametrize("path", SHAPES)
def test_an_answer_has_every_field_of_its_shape_and_no_other(app, path: str) -> None:
    told = get(app, path.format(run=RUN))
    shaped = SHAPES[path].model_validate(told).model_dump(by_alias=True, mode="json")
    for one in shaped.get("series", []):
        assert one["data"] is not None
    assert_same_names(told, shaped)


@pytest.mark.parametrize("path", SHAPES)
def test_a_run_without_steps_or_with_odd_numbers_and_names_is_answered_too(folder, store, path: str) -> None:
    with store.transaction():
        store.put_process(process(run_id="bare-1", name="bare"))
        store.put_process(process(run_id="odd-1", name="odd \x1b[31m 🚀"))
    of = Source("odd-1", "s1", 0, "node1")
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0])
    append(
        store,
        {"loss": odd, "step_seconds": np.where(np.isfinite(odd), 0.0, odd), "a\u202eb": odd},
        np.arange(8) - 4,
        times(8),
        of,
    )
    app = app_of(folder)
    for run in ("bare-1", "odd-1"):
        SHAPES[path].model_validate(get(app, path.format(run=run)))


def test_a_real_run_is_answered_whole(folder) -> None:
    dice = random.Random(1)
    with stepscope.TrainingMonitor(run="real", directory=folder) as monitor:
        for _ in range(40):
            with monitor.phase("forward"):
                pass
            monitor.log_training_step(loss=dice.random(), accuracy=0.5, epoch=1)
        monitor.event("checkpoint", path="a.pt")
    app = app_of(folder)
    for path, shape in SHAPES.items():
        told = get(app, path.format(run=monitor.run_id))
        assert_same_names(
            told,
            shape.model_validate(told).model_dump(by_alias=True, mode="json")
            if "series?" not in path
            else told,
        )
    assert get(app, f"/runs/{monitor.run_id}")["row"]["step"] == 39


def test_the_list_is_filtered_sorted_and_cut(folder, store) -> None:
    with store.transaction():
        for number in range(5):
            started = {"started_ns": BEGUN_NS + number * NS, "last_ns": BEGUN_NS + number * NS}
            store.put_process(process(run_id=f"r-{number}", name=f"r{number}", project="other", **started))
    app = app_of(folder)
    every = get(app, "/runs", filter="project:other", sort="name", descending="false")
    assert [row["name"] for row in every["runs"]] == ["r0", "r1", "r2", "r3", "r4"]
    page = get(app, "/runs", filter="project:other", sort="started", limit=2, offset=1)
    assert ([row["name"] for row in page["runs"]], page["total"]) == (["r3", "r2"], 5)
    # Those that have no loss come last, whichever way it is sorted.
    for descending in ("true", "false"):
        assert get(app, "/runs", sort="loss_last", descending=descending)["runs"][0]["id"] == RUN


def test_an_invalid_filter_is_reported_with_its_position_and_all_runs(app) -> None:
    found = get(app, "/runs", filter="status:nonsense")
    assert found["total"] == 1
    assert set(found["filter_error"]) == {"message", "begin", "end"}


def test_archived_runs_are_hidden_unless_requested(app) -> None:
    ask(app, f"{API}/runs/{RUN}/marks", "PUT", json={"archived": True})
    assert get(app, "/runs")["total"] == 0
    assert get(app, "/runs", archived="true")["total"] == 1


def test_a_run_is_found_by_its_name_too_and_one_of_several_is_not_guessed(app, store) -> None:
    [listed] = get(app, "/runs")["runs"]
    assert get(app, "/runs/mnist")["row"] == get(app, f"/runs/{RUN}")["row"] == listed
    with store.transaction():
        store.put_process(process(run_id="mnist-2", project="b"))
    found = ask(app, f"{API}/runs/mnist")
    assert found.status_code == 404
    assert error_of(found) == f"2 runs are named 'mnist'. Use one of the ids: {RUN}, mnist-2"


def test_a_missing_run_is_reported_in_one_sentence(app) -> None:
    for path in (f"{API}/runs/nobody", f"{API}/compare?runs=nobody,{RUN}"):
        found = ask(app, path)
        assert found.status_code == 404
        assert error_of(found) == "Run 'nobody' is not in this store."


def test_the_settings_hide_secrets(folder, store) -> None:
    channels = {"slack": {"url": "https://hooks.example.com/services/T0/B0/secretsecret"}}
    settings = Settings(alerts=Alerts(channels=channels), exporters={"prometheus": {"port": 9999}})
    app = app_of(folder, settings=settings)
    for path in ("/settings", "/alerts", "/meta"):
        assert "secretsecret" not in ask(app, API + path).text
    told = get(app, "/settings")
    assert told["exporters"] == ["prometheus"]
    assert "localhost:9999" in told["scrape_config"]
    names = {one["name"] for one in told["items"]}
    assert {"dashboard.port", "run", "agent.interval_s"} <= names


def test_the_description_of_the_api_is_complete(app) -> None:
    described = get(app, "/openapi.json")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert operation["description"].endswith("."), (method, path)
            assert "422" not in operation["responses"]
            fine = next(status for status in ("200", "204") if status in operation["responses"])
            if fine == "200":
                assert operation["responses"]["200"]["content"], path
            for status in ("400", "401", "403", "429"):
                assert "ErrorBody" in str(operation["responses"][status]), (status, path)
            for parameter in operation.get("parameters", []):
                schema = parameter["schema"]
                assert "description" in parameter, parameter
                is_bounded = {"maxLength", "maximum", "enum", "maxItems", "pattern", "const"} & set(
                    str(schema).split("'")
                )
                assert is_bounded or schema.get("type") == "boolean", (path, parameter)
    assert described["security"] == [{"token": []}]
