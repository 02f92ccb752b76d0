"""`--prometheus-port`: what is recorded, or is in a store, is served to Prometheus on a port of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.cli.options.prometheus_port import check_port, port_variables, with_port
from stepscope.config.load import load
from stepscope.config.sections import Settings
from tests.prometheus.made import value_of

TRAINING = """
import sys, time
import stepscope

with stepscope.TrainingMonitor(run="mnist") as monitor:
    while True:  # until the test has seen enough
        monitor.log_training_step(loss=0.5)
        time.sleep(0.02)
"""


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def scraped(port: int) -> str:
    """What a scrape gets; empty while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            return str(response.read().decode())
    except OSError:
        return ""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command of stepscope, which is interrupted at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "stepscope", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


@pytest.mark.slow
def test_a_command_that_is_run_is_served_while_it_runs(
    command: Callable, folder: Path, until: Callable[..., None]
) -> None:
    port = free_port()
    run = ("run", "--store", folder, "--name", "mine", "--prometheus-port", port, "--quiet", "--")
    command(*run, sys.executable, "-c", TRAINING)
    until(lambda: "training_loss" in scraped(port))
    assert value_of(scraped(port), "training_loss", run="mine") == 0.5


@pytest.mark.slow
def test_a_machine_that_is_watched_is_served(
    command: Callable, folder: Path, until: Callable[..., None]
) -> None:
    port = free_port()
    command("watch", "--store", folder, "--interval", "0.2", "--prometheus-port", port)
    until(lambda: "cpu_usage_percent" in scraped(port))
    text = scraped(port)
    assert 0 <= value_of(text, "cpu_usage_percent", host=os.uname().nodename) <= 100
    assert "training_loss" not in text


@pytest.mark.slow
def test_the_server_of_a_store_serves_runs_that_another_process_records(
    command: Callable, folder: Path, start: Callable, until: Callable[..., None]
) -> None:
    port = free_port()
    command("serve", "--store", folder, "--port", "0", "--prometheus-port", port)
    until(lambda: scraped(port))
    assert value_of(scraped(port), "stepscope_up") == 0.0
    start(TRAINING)
    until(lambda: "training_loss" in scraped(port))
    first = value_of(scraped(port), "training_steps_total", run="mnist")
    until(lambda: value_of(scraped(port), "training_steps_total", run="mnist") > first)


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported_and_the_command_runs(
    capfd: pytest.CaptureFixture[str], folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        record = ["run", "--store", str(folder), "--name", "mine", "--prometheus-port", port, "--"]
        assert main([*record, sys.executable, "-c", "print('done')"]) == 0
    printed = capfd.readouterr()
    assert f"Port {port} is used by another program" in printed.err
    assert "done" in printed.out
    assert stepscope.open_store(folder).run("mine").status == "finished"


def test_without_the_library_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    check_port(Settings(), 0, folder, recorded=True)
    assert "pip install 'stepscope[prometheus]'" in capsys.readouterr().err


def test_where_nothing_is_recorded_nothing_is_served_either(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    place = ["--store", str(tmp_path / "taken"), "--prometheus-port", str(free_port())]
    assert main(["watch", "--interval", "0.1", "--for", "0.2", *place]) == 0
    assert main(["run", *place, "--", sys.executable, "-c", ""]) == 0
    assert capsys.readouterr().err.count("Nothing is served to Prometheus either.") == 2


def test_the_option_leaves_the_other_options_of_the_exporter_as_they_are(monkeypatch) -> None:
    own = Settings(exporters={"prometheus": {"names": "prefixed", "enabled": False}})
    changed = with_port(own, 9787)
    assert changed.exporters == {"prometheus": {"names": "prefixed", "enabled": True, "port": 9787}}
    assert with_port(own, None) is own


def test_a_command_gets_the_port_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert port_variables(None) == {}
    settings = load(environment=port_variables(9787)).settings
    assert settings.exporters == {"prometheus": {"port": 9787, "enabled": True}}


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
@pytest.mark.parametrize("name", ["watch", "serve"])
def test_a_wrong_port_is_a_usage_error(name: str, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, f"--prometheus-port={port}"])
    assert left.value.code == 2
    assert "is not a valid port" in capsys.readouterr().err
