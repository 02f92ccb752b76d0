"""A framework's callback records into the right run, and stops only what it has started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope import TrainingMonitor
from stepscope.errors import ConfigError
from stepscope.integrations.callback_monitor import CallbackMonitor
from stepscope.reading import Run

pytestmark = pytest.mark.usefixtures("without_agent")


def test_each_training_is_a_segment_of_the_run(folder: Path, read: Callable[[str], Run]) -> None:
    monitors = CallbackMonitor(run="trained", directory=folder)
    for _ in range(2):
        monitors.begin().log({"loss": 1.0})
        monitors.end()
        assert monitors.current is None
    run = read("trained")
    assert [segment.status for segment in run.segments] == ["finished", "finished"]
    assert run.series("loss").steps.tolist() == [0, 1]


def test_a_callback_of_another_training_opens_its_own_run(folder: Path) -> None:
    first, second = (CallbackMonitor(config={"directory": str(folder)}) for _ in range(2))
    assert first.begin() is not second.begin()
    first.end()
    second.end()


def test_a_monitor_that_records_already_is_used_and_continues(folder: Path) -> None:
    monitors = CallbackMonitor()
    with TrainingMonitor(run="mine", directory=folder) as monitor:
        assert monitors.begin() is monitor
        monitors.end()
        assert monitor.open_recording() is not None
        assert CallbackMonitor(run="other", directory=folder).copy().arguments["run"] == "other"


def test_a_monitor_of_the_user_that_is_not_started_is_started_and_stopped(
    folder: Path, read: Callable[[str], Run]
) -> None:
    monitor = TrainingMonitor(run="mine", directory=folder)
    monitors = CallbackMonitor(monitor)
    assert monitors.begin() is monitor
    monitors.end("failed", "it raised")
    assert (read("mine").status, read("mine").reason) == ("failed", "it raised")


def test_wrong_arguments_are_refused_at_once(folder: Path) -> None:
    with pytest.raises(ConfigError, match="monitor is 'mine'; it must be a TrainingMonitor"):
        CallbackMonitor("mine")
    with pytest.raises(ConfigError, match="monitor and run are both set"):
        CallbackMonitor(TrainingMonitor(run="mine", directory=folder), run="other")
    with pytest.raises(ConfigError, match="resume is true, but run is not set"):
        CallbackMonitor(resume=True)


@pytest.mark.parametrize("framework", ["transformers", "accelerate"])
def test_a_framework_that_is_not_installed_is_an_error_that_says_what_to_type(
    framework: str, run_script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = f"import sys; sys.modules['{framework}'] = None; import stepscope.integrations.{framework}"
    done = run_script(code)
    assert done.returncode == 1
    assert "MissingExtra" in done.stderr
    assert "pip install 'stepscope[transformers]'" in done.stderr
