"""A run's page is served if it is enabled, by a process that never delays the training."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from stepscope.recorder.page_server import find_server
from stepscope.schema.run import Process
from stepscope.web.server.serving import IDLE_LIMIT_S, IdleTimer
from tests.web.asking import BEGUN_NS, process, state_and_app

TRAINING = """
import sys, stepscope
settings = {"dashboard": {"enabled": True, "port": 0}}
with stepscope.TrainingMonitor(settings, run=sys.argv[1]) as monitor:
    monitor.log_training_step(loss=1.0)
    print(monitor.url)
assert "fastapi" not in sys.modules
"""


@pytest.fixture
def ended(folder: Path, until):
    """Ends the server of the folder, which outlives the training that started it."""
    yield
    server = find_server(folder)
    if server is not None:
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: find_server(folder) is None)


@pytest.mark.slow
def test_the_page_of_a_run_is_served_and_the_next_run_finds_the_same_server(
    folder, run_script, ended
) -> None:
    first = run_script(TRAINING, "one")
    link = first.stdout.strip()
    assert "/run/one-" in link, first.stderr
    assert "?token=" in link
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(link).status_code == 200
        assert client.get(httpx.URL(link).join("/api/v1/runs")).json()["runs"][0]["name"] == "one"
    served = find_server(folder)
    second = run_script(TRAINING, "two").stdout.strip()
    assert httpx.URL(second).port == httpx.URL(link).port
    assert find_server(folder) == served


@pytest.mark.slow
def test_a_server_that_cannot_start_is_nothing_to_the_training(folder, run_script) -> None:
    code = TRAINING.replace('"port": 0', '"port": 0, "host": "no-such-host.invalid"')
    result = run_script(code, "one")
    assert (result.returncode, result.stdout, result.stderr) == (0, "None\n", "")
    assert "not an address of this machine" in (folder / "server.log").read_text()


@pytest.mark.slow
def test_only_rank_0_has_the_page_served(folder, run_script) -> None:
    result = run_script(TRAINING, "one", environment={"RANK": "1", "WORLD_SIZE": "2"})
    assert result.stdout == "None\n", result.stderr
    assert not (folder / "server.json").exists()


@pytest.mark.slow
def test_no_server_starts_unless_it_is_enabled(folder, run_script) -> None:
    result = run_script(TRAINING.replace('"enabled": True', '"enabled": False'), "one")
    assert result.stdout == "None\n", result.stderr


class Clock:
    def __init__(self) -> None:
        self.now_s, self.asked_s = 0.0, 0.0

    def idleness(self, state) -> IdleTimer:
        return IdleTimer(state, lambda: self.asked_s, lambda: self.now_s)


def put(store, process_row: Process) -> None:
    with store.transaction():
        store.put_process(process_row)


def test_a_server_ends_some_time_after_the_last_run_and_the_last_request(folder, store) -> None:
    state, _ = state_and_app(folder)
    clock = Clock()
    idleness = clock.idleness(state)
    put(store, process(run_id="live-1", name="live"))
    clock.now_s = 10 * IDLE_LIMIT_S
    assert not idleness.is_over()
    put(store, process(run_id="live-1", name="live", status="finished", ended_ns=BEGUN_NS))
    clock.now_s += IDLE_LIMIT_S - 1
    assert not idleness.is_over()
    clock.asked_s = clock.now_s
    clock.now_s += IDLE_LIMIT_S - 1
    assert not idleness.is_over()
    clock.now_s += 2
    assert idleness.is_over()
    state.close()


def test_a_store_that_cannot_be_read_keeps_no_server_alive(folder) -> None:
    folder.mkdir()
    (folder / "store.sqlite").write_bytes(b"damaged" * 1000)
    state, _ = state_and_app(folder)
    clock = Clock()
    idleness = clock.idleness(state)
    clock.now_s = IDLE_LIMIT_S + 1
    assert idleness.is_over()
