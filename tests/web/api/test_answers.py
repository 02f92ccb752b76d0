"""Responses match their OpenAPI schemas, for runs of every kind."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest

import stepscope
from stepscope.config.sections import Alerts, Settings
from stepscope.schema.series import Source
from stepscope.web.app import create_app
from stepscope.web.server.options import ServerOptions
from tests.web.asking import API, BEGUN_NS, NS, RUN, WAITS, app_of, append, ask, error_of, get, process, times

ANSWERS = {
    "/health": "/health",
    "/meta": "/meta",
    "/home": "/home",
    "/runs": "/runs",
    "/runs/{run_id}": "/runs/{run}",
    "/runs/{run_id}/overview": "/runs/{run}/overview",
    "/runs/{run_id}/keys": "/runs/{run}/keys",
    "/runs/{run_id}/series": "/runs/{run}/series?keys=loss&format=json&buckets=8",
    "/runs/{run_id}/steps": "/runs/{run}/steps",
    "/runs/{run_id}/heatmap": "/runs/{run}/heatmap",
    "/runs/{run_id}/findings": "/runs/{run}/findings",
    "/runs/{run_id}/logs": "/runs/{run}/logs",
    "/runs/{run_id}/config": "/runs/{run}/config",
    "/compare": "/compare?runs={run}",
    "/alerts": "/alerts",
    "/settings": "/settings",
    "/layouts/{page}": "/layouts/home",
    "/delta": "/delta?run={run}&keys=loss&wait=0",
}
"""A request for each route that answers with JSON."""

CHANGES = {
    ("put", "/runs/{run_id}/marks"): (f"/runs/{RUN}/marks", {"tags": ["a"]}),
    ("post", "/runs/{run_id}/notes"): (f"/runs/{RUN}/notes", {"text": "a note", "step": 3}),
    ("put", "/runs/{run_id}/feedback/{finding_id}"): (
        f"/runs/{RUN}/feedback/input.exposed_wait",
        {"opinion": "not_wanted"},
    ),
    ("put", "/layouts/{page}"): ("/layouts/home", {"charts": []}),
    ("post", "/alerts/rules/check"): ("/alerts/rules/check", {"when": "loss > 1", "run": RUN}),
    ("post", "/channels/{name}/test"): ("/channels/console/test", None),
    ("post", "/demo"): ("/demo", None),
}


@cache
def document() -> dict:
    """The OpenAPI document; an object has the fields it lists and no others."""
    described = create_app(ServerOptions(Path("nowhere")))._app.openapi()
    for schema in described["components"]["schemas"].values():
        schema["additionalProperties"] = False
    return described


@cache
def validator(path: str, method: str = "get") -> jsonschema_rs.Draft202012Validator:
    """Checks what a route answers."""
    content = document()["paths"][API + path][method]["responses"]["200"]["content"]
    return jsonschema_rs.Draft202012Validator(
        {**content["application/json"]["schema"], "components": document()["components"]}
    )


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_has_every_field_of_its_schema_and_no_other(app, path: str) -> None:
    answer = get(app, ANSWERS[path].format(run=RUN))
    validator(path).validate(answer)
    assert all(part["data"] is not None for part in answer.get("series", []))


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_the_answer_to_a_change_fits_its_schema(app, state, store, method: str, path: str) -> None:
    state.demo.play = lambda: "demo-1"
    with store.transaction():
        store.put_finding(RUN, WAITS, 10**9)
    address, body = CHANGES[method, path]
    response = ask(app, API + address, method.upper(), json=body)
    assert response.status_code == 200, response.text
    validator(path, method).validate(response.json())


def test_every_route_that_answers_with_json_is_checked_here() -> None:
    described = {
        (method, path.removeprefix(API))
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
        if "application/json" in operation["responses"].get("200", {}).get("content", {})
    }
    assert described == {*(("get", path) for path in ANSWERS), *CHANGES}


def test_an_error_fits_its_schema(app) -> None:
    schema = {"$ref": "#/components/schemas/ErrorBody", "components": document()["components"]}
    jsonschema_rs.validate(schema, ask(app, f"{API}/runs/nobody").json())


@pytest.mark.parametrize("path", ANSWERS)
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
        validator(path).validate(get(app, ANSWERS[path].format(run=run)))


def test_a_real_run_is_answered_whole(folder) -> None:
    dice = random.Random(1)
    with stepscope.TrainingMonitor(run="real", directory=folder) as monitor:
        for _ in range(40):
            with monitor.phase("forward"):
                pass
            monitor.log_training_step(loss=dice.random(), accuracy=0.5, epoch=1)
        monitor.event("checkpoint", path="a.pt")
    app = app_of(folder)
    for path, address in ANSWERS.items():
        validator(path).validate(get(app, address.format(run=monitor.run_id)))
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
    answer = get(app, "/runs", filter="status:nonsense")
    assert answer["total"] == 1
    assert set(answer["filter_error"]) == {"message", "begin", "end"}


def test_archived_runs_are_hidden_unless_requested(app) -> None:
    ask(app, f"{API}/runs/{RUN}/marks", "PUT", json={"archived": True})
    assert get(app, "/runs")["total"] == 0
    assert get(app, "/runs", archived="true")["total"] == 1


def test_a_run_is_found_by_its_name_too_and_one_of_several_is_not_guessed(app, store) -> None:
    [listed] = get(app, "/runs")["runs"]
    assert get(app, "/runs/mnist")["row"] == get(app, f"/runs/{RUN}")["row"] == listed
    with store.transaction():
        store.put_process(process(run_id="mnist-2", project="b"))
    response = ask(app, f"{API}/runs/mnist")
    assert response.status_code == 404
    assert error_of(response) == f"2 runs are named 'mnist'. Use one of the ids: {RUN}, mnist-2"


def test_a_missing_run_is_reported_in_one_sentence(app) -> None:
    for path in (f"{API}/runs/nobody", f"{API}/compare?runs=nobody,{RUN}"):
        response = ask(app, path)
        assert response.status_code == 404
        assert error_of(response) == "Run 'nobody' is not in this store."


def test_the_settings_hide_secrets(folder, store) -> None:
    channels = {"slack": {"url": "https://hooks.example.com/services/T0/B0/secretsecret"}}
    settings = Settings(alerts=Alerts(channels=channels), exporters={"prometheus": {"port": 9999}})
    app = app_of(folder, settings=settings)
    for path in ("/settings", "/alerts", "/meta"):
        assert "secretsecret" not in ask(app, API + path).text
    answer = get(app, "/settings")
    assert answer["exporters"] == ["prometheus"]
    assert "localhost:9999" in answer["scrape_config"]
    names = {setting["name"] for setting in answer["items"]}
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


def test_every_event_of_the_live_feed_has_a_schema_of_its_own() -> None:
    schemas = document()["components"]["schemas"]
    names = schemas["LiveEvent"]["properties"]["event"]["enum"]
    assert list(schemas["StreamEvents"]["properties"]) == names


def test_every_answer_is_described_and_has_all_its_fields() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert schema["description"].endswith("."), name
        if not name.startswith("New"):
            assert "None" not in schema["description"], name
    row = document()["components"]["schemas"]["RunRow"]
    assert row["required"] == list(row["properties"])
    assert "segments" in row["properties"]["duration_s"]["description"]
