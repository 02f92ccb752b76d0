"""A rule that is put through the API while a training runs is evaluated by its real agent within seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from tests.web.asking import API, app_of, ask, get

SETTINGS = {"agent": {"interval_s": 0.1}, "alerts": {"channels": {"console": {"enabled": False}}}}


@pytest.fixture
def fires(folder: Path) -> Callable[[], list[str]]:
    def rules() -> list[str]:
        alerts = stepscope.open_store(folder).run("r").alerts()
        return [alert["rule"] for alert in alerts if alert["resolved_ns"] is None]

    return rules


def test_a_rule_put_through_the_api_fires_in_a_live_run_and_its_deletion_resolves_it(
    folder: Path, until, fires
) -> None:
    with stepscope.TrainingMonitor(SETTINGS, run="r", directory=folder) as monitor:
        for _ in range(50):
            monitor.log({"made_up": 3.0})
        until(lambda: len(stepscope.open_store(folder).run("r").series("made_up")) == 50)
        app = app_of(folder)
        rule = {"when": "count(made_up, 100 points) == 50 and made_up > 2", "severity": "info"}
        tried = ask(app, f"{API}/alerts/rules/check", "POST", json={"when": rule["when"], "run": "r"}).json()
        assert (tried["now"]["is_true"], tried["now"]["live"]) == (True, True)
        assert ask(app, f"{API}/alerts/rules/odd", "PUT", json=rule).status_code == 204
        until(lambda: fires() == ["odd"], 10)
        assert get(app, "/alerts")["open"][0]["severity"] == "info"
        assert ask(app, f"{API}/alerts/rules/odd", "DELETE").status_code == 204
        until(lambda: fires() == [], 10)


def test_a_default_rule_disabled_through_the_api_does_not_fire_in_a_live_run(
    folder: Path, until, fires
) -> None:
    with stepscope.TrainingMonitor(SETTINGS, run="r", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
        until(lambda: folder.exists() and stepscope.open_store(folder).runs())
        app = app_of(folder)
        assert (
            ask(app, f"{API}/alerts/rules/nonfinite_loss", "PUT", json={"enabled": False}).status_code == 204
        )
        monitor.log({"loss": float("nan")})
        until(lambda: len(stepscope.open_store(folder).run("r").series("loss")) == 2)
    assert stepscope.open_store(folder).run("r").alerts() == []
