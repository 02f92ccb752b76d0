"""Every case is declared rightly, and its recording is diagnosed as it should be, in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo.case import SCRIPTS, Case
from zoo.catalogue import CASES
from zoo.detection import steps_until_named, until

from stepscope.analysis.diagnose import Diagnostician
from zoo import recordings, window_file

WRITE_AGAIN = "if this is right: python -m zoo --replay --write-misses"


@pytest.fixture(scope="module")
def diagnostician() -> Diagnostician:
    return Diagnostician({})


def test_every_script_belongs_to_a_case_and_every_case_has_one() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"setting"}
    assert scripts == {case.file.stem for case in CASES.values()}


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_case_names_the_planted_fault_and_the_expected_finding(case: Case) -> None:
    compile(case.file.read_text(), case.file.name, "exec")
    assert bool(case.fault) is not case.is_healthy
    assert all(case.expects)
    assert all("." in name for name in case.all_expected)
    assert case.all_expected.isdisjoint(case.also) or len(case.all_expected) > 1
    assert 1.0 in case.doses
    if case.is_healthy:
        assert (case.advice, case.names, case.also) == ((), (), ())


@pytest.mark.parametrize("case", recordings.recorded(), ids=lambda case: case.name)
def test_a_recording_is_diagnosed_rightly_unless_it_is_a_known_miss(
    case: Case, diagnostician: Diagnostician
) -> None:
    result = recordings.replay(case, diagnostician)
    said = [f"{finding.id}: {finding.headline}" for finding in result.answer.findings]
    assert not result.is_called_healthy
    known = recordings.misses()
    if case.name in known:
        assert not result.is_right, f"it is diagnosed rightly now; {WRITE_AGAIN}"
    else:
        assert result.is_right, f"{said}; {WRITE_AGAIN}"


def test_recordings_and_misses_are_those_of_cases() -> None:
    files = {path.stem for path in recordings.FOLDER.glob("*.window")}
    assert files <= CASES.keys()
    assert recordings.misses().keys() <= files
    assert max(path.stat().st_size for path in recordings.FOLDER.iterdir()) <= window_file.MAX_BYTES


def test_a_window_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    source = recordings.FOLDER / "optimizer_before_new_head.window"
    window, machine = window_file.load(source)
    window_file.save(window, tmp_path / "again.window", machine)
    again, same_machine = window_file.load(tmp_path / "again.window")
    assert same_machine == machine
    assert (again.events, again.facts) == (window.events, window.facts)
    (rank,), (before,) = again.ranks, window.ranks
    assert np.array_equal(rank.steps, before.steps)
    assert np.allclose(rank.times, before.times, rtol=0, atol=2e-6)
    assert rank.columns.keys() == before.columns.keys()
    for key, column in rank.columns.items():
        assert np.array_equal(column.values, before.columns[key].values, equal_nan=True)
        assert np.array_equal(column.present, before.columns[key].present)
    assert [figures.key for figures in again.machine] == [figures.key for figures in window.machine]


def test_a_window_until_a_step_has_nothing_from_later() -> None:
    window, _ = window_file.load(recordings.FOLDER / "schedule_ends_too_early.window")
    part = until(window, 100)
    (rank,) = part.ranks
    assert rank.steps[-1] == 100
    assert all(len(column.values) == len(rank.steps) == len(rank.times) for column in rank.columns.values())
    assert all(event.time <= rank.times[-1] for event in part.events)
    assert all(figures.times[-1] <= rank.times[-1] for figures in part.machine)


def test_the_step_of_detection_is_the_first_diagnosis_that_names_the_fault(
    diagnostician: Diagnostician,
) -> None:
    case = CASES["logarithm_of_zero"]
    window, _ = window_file.load(recordings.FOLDER / f"{case.name}.window")
    steps = steps_until_named(case, window, diagnostician)
    assert steps is not None
    assert 0 < steps <= 10
    assert steps_until_named(CASES["slow_dataset"], window, diagnostician) is None
