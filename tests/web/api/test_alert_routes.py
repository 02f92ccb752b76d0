"""Alerts are listed, silenced and acknowledged through the files the agent reads; channels can be tested."""

from __future__ import annotations

import time

import pytest

from stepscope.alerts.silences import Silences
from stepscope.config.sections import Alerts, Settings
from stepscope.web.server.demo_run import Demo
from tests.web.asking import API, RUN, app_of, ask, error_of, get, state_and_app

SILENCES = f"{API}/alerts/silences"


def test_an_alert_is_listed_and_acknowledged(app, folder) -> None:
    [alert] = get(app, "/alerts")["open"]
    assert (alert["rule"], alert["run_id"], alert["acknowledged"]) == ("input_bound", RUN, False)
    assert ask(app, f"{API}/alerts/{alert['id']}/ack", "POST").status_code == 204
    assert Silences(folder).read().acknowledged == {alert["id"]}
    assert get(app, "/alerts")["open"][0]["acknowledged"] is True
    assert ask(app, f"{API}/alerts/999/ack", "POST").status_code == 404


def test_a_silence_is_created_listed_and_ended(app, folder) -> None:
    body = {"rule": "gpu_*", "run": RUN, "minutes": 30, "reason": "known"}
    assert ask(app, SILENCES, "POST", json=body).status_code == 204
    [kept] = Silences(folder).read().silences
    assert kept.covers("gpu_hot", (RUN,), time.time_ns())
    [silence] = get(app, "/alerts")["silences"]
    assert (silence["rule"], silence["run"], silence["reason"]) == ("gpu_*", RUN, "known")
    assert ask(app, SILENCES, "DELETE", json={"rule": "gpu_*"}).status_code == 404
    assert ask(app, SILENCES, "DELETE", json={"rule": "gpu_*", "run": RUN}).status_code == 204
    assert Silences(folder).read().silences == ()


@pytest.mark.parametrize("minutes", [0, -1, 1e9, "NaN", "soon", None])
def test_a_silence_lasts_a_time_that_makes_sense(app, minutes) -> None:
    response = ask(app, SILENCES, "POST", json={"rule": "a", "minutes": minutes})
    assert response.status_code == 400
    assert "minutes" in error_of(response)


def test_a_test_notice_reports_whether_it_was_delivered(folder, store, tmp_path) -> None:
    log, broken = tmp_path / "alerts.log", tmp_path / "no" / "such" / "folder"
    channels = {
        "file": {"kind": "log_file", "path": str(log)},
        "broken": {"kind": "nonsense", "path": str(broken)},
    }
    app = app_of(folder, settings=Settings(alerts=Alerts(channels=channels)))
    answer = ask(app, f"{API}/channels/file/test", "POST").json()
    assert answer["delivered"] is True, answer
    assert "test of stepscope" in log.read_text()
    answer = ask(app, f"{API}/channels/broken/test", "POST").json()
    assert answer["delivered"] is False
    assert answer["message"]
    assert ask(app, f"{API}/channels/other/test", "POST").status_code == 404


@pytest.mark.slow
def test_demo_runs_start_one_at_a_time_and_can_be_viewed(folder, until) -> None:
    state, app = state_and_app(folder)
    state.demo = Demo(folder, ("--simulate", "--steps", "50"))
    run = ask(app, f"{API}/demo", "POST").json()["run"]
    assert run.startswith("demo-")
    assert ask(app, f"{API}/demo", "POST").status_code == 429
    until(lambda: any(row["id"] == run and row["step"] for row in get(app, "/runs")["runs"]))
    until(lambda: get(app, f"/runs/{run}")["row"]["status"] == "finished")
    until(lambda: not state.demo.is_playing)


def test_where_nothing_may_be_written_no_demo_is_played(folder, monkeypatch) -> None:
    monkeypatch.setattr("stepscope.web.server.demo_run.os.access", lambda *_: False)
    assert ask(app_of(folder), f"{API}/demo", "POST").status_code == 405
