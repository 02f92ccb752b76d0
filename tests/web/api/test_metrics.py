"""The server of the page also serves metrics for Prometheus, read from the store in the background."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.options import Options
from stepscope.prometheus.store_follower import StoreFollower
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteStore
from tests.prometheus.made import samples_of, text_of, value_of
from tests.web.asking import BEGUN_NS, NS, RUN, append, ask, process, state_and_app

NOW_S = BEGUN_NS / NS + 60


def follower_of(store, **options: object) -> tuple[StoreFollower, LiveState]:
    state = LiveState(now=lambda: NOW_S)
    return StoreFollower(state, Options(**options), now=lambda: NOW_S), state


@pytest.fixture
def live_store(folder: Path) -> Iterator[SqliteStore]:
    """A store with a live run of two steps."""
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        store.put_process(process(last_ns=BEGUN_NS + 50 * NS))
    append(store, {"loss": [1.0, 0.9], "step_seconds": [0.1, 0.1]})
    yield store
    store.close()


@pytest.fixture
def live_app(folder: Path, live_store: SqliteStore) -> Iterator:
    """A server's parts and its application over that store."""
    state, app = state_and_app(folder)
    yield state, app
    state.close()


def test_a_store_is_followed_step_by_step(live_store) -> None:
    follower, state = follower_of(live_store, user_metrics=("val/*",))
    follower.read(live_store)
    steps = np.arange(500, 503)
    times_ns = BEGUN_NS + (60 + np.arange(3)) * NS
    append(live_store, {"step_seconds": [0.2, 0.2, 0.4], "val/loss": [3, 2, 1]}, steps, times_ns)
    for _ in range(2):  # what was taken is not taken again
        follower.read(live_store)
    text = text_of(state)
    # The two steps before the server began are not counted: it may have served them before it was restarted.
    assert value_of(text, "training_step_duration_seconds_count", rank="0") == 3
    assert value_of(text, "training_steps_total", rank="0") == 503
    assert value_of(text, "stepscope_user_metric", name="val/loss") == 1.0


def test_the_devices_findings_and_alerts_of_a_store_are_served(live_store) -> None:
    fields = {"device": "GPU-b", "host": "node1", "index": 3, "name": "Scripted", "driver": "580"}
    gpu = Source(RUN, "s1", None, "node1", "GPU-b", "seconds")
    used = np.array([BEGUN_NS + 58 * NS, BEGUN_NS + 59 * NS])
    append(live_store, {"gpu/memory_used_bytes": [2.0**30, 2.0**31]}, [0, 0], used, gpu)
    with live_store.transaction():
        live_store.put_event(RUN, Event("device", BEGUN_NS, None, None, "s1", fields))
        live_store.put_finding(
            RUN, {"id": "gpu.idle", "key": "gpu.idle", "severity": "warning"}, BEGUN_NS + 50 * NS
        )
        alert = OpenAlert(RUN, "a rule of mine", "critical", "It fires.", BEGUN_NS, {})
        live_store.alert_book.fire(alert)
    follower, state = follower_of(live_store)
    follower.read(live_store)
    text = text_of(state)
    assert value_of(text, "gpu_memory_used_mb", gpu="3", uuid="GPU-b") == 2048.0
    assert value_of(text, "stepscope_gpu_info", gpu="3", driver="580", name="Scripted") == 1.0
    assert value_of(text, "stepscope_finding_active", kind="gpu.idle", severity="warning") == 1.0
    assert value_of(text, "stepscope_alert_active", rule="a rule of mine") == 1.0


def test_runs_that_ended_long_ago_are_not_read(live_store) -> None:
    with live_store.transaction():
        live_store.put_process(process(status="finished", ended_ns=BEGUN_NS - 3600 * NS))
    follower, state = follower_of(live_store)
    follower.read(live_store)
    assert "training_loss" not in samples_of(text_of(state))


def test_the_server_has_metrics_from_the_first_scrape_on(live_app, live_store) -> None:
    state, app = live_app
    now_ns = time.time_ns()
    with live_store.transaction():
        live_store.put_process(process(status="running", started_ns=now_ns - 60 * NS, last_ns=now_ns))
    append(live_store, {"loss": [0.5]}, [900], [now_ns])
    first = ask(app, "/metrics")
    assert (first.status_code, first.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    assert value_of(first.text, "stepscope_up") == 0.0
    assert ask(app, "/-/ready").status_code == 503
    state.metrics.read()
    assert ask(app, "/-/ready").status_code == 200
    assert value_of(ask(app, "/metrics").text, "training_loss", rank="0") == 0.5


def test_metrics_need_the_token_of_the_server_and_health_needs_none(app) -> None:
    refused = ask(app, "/metrics", headers={})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert ask(app, "/-/healthy", headers={}).status_code == 200
    assert ask(app, "/-/ready", headers={}).status_code == 503


def test_scrapes_do_not_keep_a_server_alive_that_ends_when_it_is_idle(app) -> None:
    before = app.last_request_at
    ask(app, "/metrics")
    assert app.last_request_at == before
    ask(app, "/api/v1/runs")
    assert app.last_request_at > before


def test_without_a_token_on_loopback_anybody_there_may_scrape(folder: Path, store) -> None:
    state, app = state_and_app(folder, token=None)
    assert ask(app, "/metrics", headers={}).status_code == 200
    state.close()


def test_without_the_library_the_answer_says_what_to_install(app, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    response = ask(app, "/metrics")
    assert response.status_code == 501
    assert "pip install 'stepscope[prometheus]'" in response.text


def test_a_store_that_cannot_be_read_is_logged_once(folder: Path, state_app, caplog, monkeypatch) -> None:
    state, app = state_app
    wrong = replace(state.options.settings, exporters={"prometheus": {"names": "all"}})
    monkeypatch.setattr(state.metrics, "_options", replace(state.options, settings=wrong))
    for _ in range(2):
        state.metrics.read()
    assert caplog.text.count("must be one of required, prefixed, both") == 1
    assert ask(app, "/metrics").status_code == 200
