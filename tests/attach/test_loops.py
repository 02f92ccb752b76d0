"""Unedited scripts are recorded: every step once, with its loss, and nothing of the training changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stepscope import open_store
from stepscope.attach.environment import attached
from tests.attach.run_loops import LOOPS

ROOT = Path(__file__).parents[2]
TRAINERS = tuple(sorted(path.stem for path in LOOPS.glob("*.py") if "slow" in path.read_text()[:200]))
"""Scripts whose framework takes seconds to import."""
PLAIN = tuple(sorted(path.stem for path in LOOPS.glob("*.py") if path.stem not in TRAINERS))


def run_loops(names: tuple[str, ...], environment: dict[str, str]) -> tuple[dict[str, dict], str]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.attach.run_loops", *names],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"name"')]
    return {line["name"]: line for line in lines}, ended.stderr


class Outcome:
    """The scripts' outcomes without and with stepscope, and what was recorded."""

    def __init__(self, names: tuple[str, ...], folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE_")}
        self.bare, _ = run_loops(names, environment)
        recording = {**environment, "STEPSCOPE_DIR": str(folder), "STEPSCOPE_AGENT__MODE": "none"}
        self.recorded, self.said = run_loops(names, attached(recording))
        self.store = open_store(folder)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory):
    return cache(lambda names: Outcome(names, tmp_path_factory.mktemp("store")))


def check(outcome: Outcome, name: str) -> None:
    assert outcome.recorded[name] == outcome.bare[name]
    expected = outcome.bare[name]
    run = outcome.store.run(name)
    assert run.status == "finished"
    seconds = run.series("step_seconds")
    first = seconds.steps[0]  # the trainer of Transformers counts from 1
    assert first in (0, name.startswith("transformers"))
    assert list(seconds.steps - first) == list(range(expected["steps"]))
    if expected["losses"]:
        losses = run.series("loss")
        assert list(losses.steps) == list(range(expected["steps"]))
        assert list(losses.values) == pytest.approx(
            [float.fromhex(loss) for loss in expected["losses"]], rel=1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_an_unedited_script_is_recorded_step_by_step_and_computes_the_same(outcome, name: str) -> None:
    check(outcome(PLAIN), name)


@pytest.mark.slow
def test_a_script_that_trains_several_models_says_where_each_begins(outcome) -> None:
    run = outcome(PLAIN).store.run("several_trainings")
    assert [event.step for event in run.events("another_training")] == [7, 14]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINERS)
def test_an_unedited_script_of_a_framework_is_recorded_and_computes_the_same(outcome, name: str) -> None:
    check(outcome(TRAINERS), name)
