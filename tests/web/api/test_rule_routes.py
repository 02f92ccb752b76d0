"""Rules are created, changed, switched, deleted and checked through the API, within limits."""

from __future__ import annotations

import json

import pytest

from stepscope.alerts.page_rules import MAX_RULES, PageRules
from stepscope.config.sections import Alerts, Settings
from tests.web.asking import API, FROM_THE_PAGE, RUN, app_of, ask, error_of, get

RULES = f"{API}/alerts/rules"
CHECK = f"{RULES}/check"


def put(app, name: str, **fields):
    return ask(app, f"{RULES}/{name}", "PUT", json=fields)


def rules(app) -> dict[str, dict]:
    return {rule["name"]: rule for rule in get(app, "/alerts")["rules"]}


def check(app, when: str, run: str | None = RUN) -> dict:
    response = ask(app, CHECK, "POST", json={"when": when, **({"run": run} if run else {})})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_rule_is_created_listed_changed_and_deleted(app, folder) -> None:
    fields = {
        "when": "p50(step_seconds, 2m) > 1",
        "for": "60s",
        "severity": "critical",
        "channels": ["slack"],
    }
    assert put(app, "slow", **fields).status_code == 204
    [kept] = PageRules(folder).read().rules
    assert (kept.rule.for_s, kept.rule.channels) == (60.0, ("slack",))
    rule = rules(app)["slow"]
    assert (rule["origin"], rule["condition"], rule["for"]) == ("page", fields["when"], "60s")
    assert put(app, "slow", when="loss > 1").status_code == 204
    assert (rules(app)["slow"]["condition"], rules(app)["slow"]["for"]) == ("loss > 1", "")
    assert ask(app, f"{RULES}/slow", "DELETE").status_code == 204
    assert "slow" not in rules(app)
    response = ask(app, f"{RULES}/slow", "DELETE")
    assert response.status_code == 404
    assert "slow" in error_of(response)


def test_a_usual_rule_is_switched_off_and_on_and_nothing_is_left_of_that(app, folder) -> None:
    assert put(app, "gpu_hot", enabled=False).status_code == 204
    assert rules(app)["gpu_hot"]["enabled"] is False
    assert PageRules(folder).read().switches == {"gpu_hot": False}
    assert put(app, "gpu_hot", enabled=True).status_code == 204
    assert rules(app)["gpu_hot"]["enabled"] is True
    assert PageRules(folder).read().switches == {}
    assert put(app, "no_such_rule", enabled=False).status_code == 404


def test_a_rule_that_the_configuration_switches_off_is_switched_on(folder, store) -> None:
    settings = Settings(alerts=Alerts(disabled=["gpu_hot"], thresholds={"val/loss": 2.0}))
    app = app_of(folder, settings=settings)
    assert put(app, "gpu_hot", enabled=True).status_code == 204
    assert rules(app)["gpu_hot"]["enabled"] is True
    assert put(app, "val%2Floss", enabled=False).status_code == 204
    rule = rules(app)["val/loss"]
    assert (rule["origin"], rule["enabled"]) == ("configuration", False)


def test_a_rule_of_the_page_takes_the_place_of_a_usual_one_until_it_is_deleted(app) -> None:
    assert put(app, "disk_full", when="disk/used_ratio > 50%").status_code == 204
    assert (rules(app)["disk_full"]["origin"], rules(app)["disk_full"]["replaces"]) == ("page", "usual")
    assert ask(app, f"{RULES}/disk_full", "DELETE").status_code == 204
    assert rules(app)["disk_full"]["origin"] == "usual"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"when": "meen(loss, 2m) > 1"}, "did you mean mean?"),
        ({"when": "loss >"}, "Expected a number"),
        ({"when": ""}, "when"),
        ({"when": "loss > 1", "for": "soon"}, "60s, 2m or 100 steps"),
        ({"when": "loss > 1", "cooldown": "never"}, "60s or 2h"),
        ({"when": "loss > 1", "severity": "dire"}, "severity"),
        ({"when": "loss > 1", "message": "{loss.__class__}"}, "cannot be filled in"),
        ({"when": "loss > 1", "message": "x" * 2001}, "message"),
        ({"when": "l" * 2001}, "when"),
        ({"when": "loss > 1", "channels": ["x"] * 51}, "channels"),
        ({"when": "loss > 1", "url": "http://127.0.0.1"}, "url"),
        ({"when": "loss > 1", "enabled": "perhaps"}, "enabled"),
        ({"severity": "info"}, "when"),
        ({}, "when"),
    ],
)
def test_an_invalid_rule_is_refused_with_a_reason(app, folder, fields: dict, said: str) -> None:
    response = put(app, "odd", **fields)
    assert response.status_code == 400
    assert said in error_of(response)
    assert not (folder / "rules.json").exists()


@pytest.mark.parametrize(
    "name", ["x" * 101, "%20x", "a%0Ab", "a%1Bb", "%E2%80%AE", "..%2F..%2Fetc", "%2e%2e"]
)
def test_a_name_is_data_and_never_a_path(app, folder, name: str) -> None:
    before = {path.name for path in folder.parent.rglob("*")}
    response = put(app, name, when="loss > 1")
    assert response.status_code in (204, 400, 404, 405)
    assert {path.name for path in folder.parent.rglob("*")} - before <= {"rules.json", "rules.lock"}


def test_there_are_at_most_two_hundred(app, folder) -> None:
    many = [{"name": f"r{number}", "when": "loss > 1"} for number in range(MAX_RULES)]
    (folder / "rules.json").write_text(json.dumps({"rules": many}))
    response = put(app, "one_more", when="loss > 1")
    assert response.status_code == 400
    assert "200" in error_of(response)
    assert put(app, "r7", when="loss > 2").status_code == 204


def test_a_damaged_file_is_reported_and_the_other_alerts_are_shown(app, folder) -> None:
    (folder / "rules.json").write_text("{")
    answer = get(app, "/alerts")
    assert "cannot be read" in answer["rules_trouble"]
    assert len(answer["open"]) == 1
    assert str(folder) not in json.dumps(answer)


def test_the_page_itself_may_change_rules_and_another_origin_may_not(app) -> None:
    body = {"when": "loss > 1"}
    assert ask(app, f"{RULES}/a", "PUT", headers=FROM_THE_PAGE, json=body).status_code == 204
    foreign = {**FROM_THE_PAGE, "Origin": "http://evil.test"}
    for method in ("PUT", "DELETE"):
        assert ask(app, f"{RULES}/a", method, headers=foreign, json=body).status_code == 403
    assert "a" in rules(app)


def test_a_read_only_server_keeps_no_rule(folder, store) -> None:
    app = app_of(folder, read_only=True)
    assert put(app, "slow", when="loss > 1").status_code == 405
    assert not (folder / "rules.json").exists()


def test_a_condition_is_tried_in_a_run(app) -> None:
    answer = check(app, "loss > 0.4 and step_seconds > 0")
    assert (answer["ok"], answer["fault"], answer["keys"]) == (True, None, ["loss", "step_seconds"])
    now = answer["now"]
    assert (now["is_true"], now["subjects"], now["true"], now["live"]) == (True, 2, 2, False)
    assert (now["key"], now["value"], now["threshold"]) == ("loss", 0.5, 0.4)
    assert check(app, "loss > 0.6")["now"]["is_true"] is False


def test_a_condition_is_tried_with_the_baseline_of_the_run(app) -> None:
    now = check(app, "loss < 0.5 * baseline")["now"]
    assert now["is_true"] is True
    assert now["threshold"] == pytest.approx(0.5 * (1.2 - 0.7 * 59.5 / 799), rel=1e-3)


def test_what_a_run_does_not_have_is_doubted_and_not_known(app) -> None:
    answer = check(app, "los > 1")
    assert answer["ok"]
    assert answer["doubts"] == ["There is no metric 'los'; did you mean 'loss'?"]
    assert answer["now"]["is_true"] is None
    assert answer["now"]["value"] is None


@pytest.mark.parametrize(
    ("when", "wrong"),
    [
        ("meen(loss, 2m) > 1", "meen"),
        ("loss > 1 and accuracy => 2", "="),
        ("loss > 2 furlongs", "furlongs"),
        ("loss >", ""),
        ("", ""),
        ("loss", "loss"),
        ("`π 🚀` > 1 or nope(x) > 2", "nope"),
    ],
)
def test_an_error_is_reported_with_its_position(app, when: str, wrong: str) -> None:
    answer = check(app, when, run=None)
    assert answer["ok"] is False
    assert answer["fault"]["message"]
    assert when[answer["fault"]["begin"] : answer["fault"]["end"]] == wrong


def test_without_a_run_a_condition_is_read_and_not_judged(app) -> None:
    answer = check(app, "p50(loss, 2m) > 1", run=None)
    assert (answer["ok"], answer["written"], answer["now"]) == (True, "median(loss, 2m) > 1", None)


def test_a_run_that_is_not_there_is_not_found_and_a_long_condition_is_refused(app) -> None:
    assert ask(app, CHECK, "POST", json={"when": "loss > 1", "run": "nobody"}).status_code == 404
    assert ask(app, CHECK, "POST", json={"when": "x" * 4001}).status_code == 400
    assert "at most 2,000" in check(app, "x" * 2001, run=None)["fault"]["message"]
