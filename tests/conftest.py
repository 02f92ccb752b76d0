"""What all tests share: an environment of their own and helpers that start real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import stepscope
from tests.attack.outcomes import table

# A job that is started in the background or by nohup ignores some signals, and so would all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# The same examples each time; HYPOTHESIS_PROFILE=fresh draws others and prints how to repeat a failure.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the settings of the person running it, or writes into their folder."""
    for name in list(os.environ):
        if name.startswith("STEPSCOPE_") or name in {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Models of tests begin with the same weights each time."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitors start no agent, which takes a third of a second each; whoever reads does its work."""
    monkeypatch.setenv("STEPSCOPE_AGENT__MODE", "none")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store folder."""
    return tmp_path / "store"


Script = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path) -> Iterator[Script]:
    """Starts Python code as a process of its own that records into `folder`."""
    started: list[subprocess.Popen[str]] = []

    def start_script(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "STEPSCOPE_DIR": str(folder), **options.pop("environment", {})}
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start_script
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run_script(start: Script) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code to its end."""

    def run(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        process = start(code, *arguments, **options)
        out, err = process.communicate(timeout=400)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits for something another process brings about; fails after two minutes."""

    def wait(condition: Callable[[], object], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail("it did not happen in time")
            time.sleep(0.02)

    return wait


@pytest.fixture
def read(folder: Path) -> Callable[[str], stepscope.reading.Run]:
    """Reads a run back, by a store opened at this moment."""

    def read_run(name: str) -> stepscope.reading.Run:
        return stepscope.open_store(folder).run(name)

    return read_run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the figures of the attack sweep, which its tests hand over with their reports."""
    reports = [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]
    figures = [
        json.loads(text) for report in reports for name, text in report.user_properties if name == "attack"
    ]
    if figures:
        terminalreporter.section("attack sweep")
        for line in table(figures):
            terminalreporter.write_line(line)
