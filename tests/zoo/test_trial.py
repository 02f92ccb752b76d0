"""A case that is run live: the script trains in a store of its own, and the diagnosis names its fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from zoo.__main__ import main
from zoo.case import Case
from zoo.catalogue import CASES
from zoo.trial import Settings, run

from stepscope.analysis.detector_registry import known_detectors

pytest.importorskip("torch")


@pytest.mark.slow
def test_a_case_is_trained_named_and_read_with_all_that_was_recorded() -> None:
    trial = run(CASES["optimizer_before_new_head"], Settings())
    assert trial.exit_code == 0
    assert "opt.not_updating" in trial.answer.ids
    assert trial.window is not None
    (rank,) = trial.window.ranks
    assert len(rank.steps) == 300
    assert any(key.startswith("gradient_norm/") for key in rank.columns)


@pytest.mark.slow
def test_a_script_that_fails_is_a_failure_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.case.SCRIPTS", tmp_path)
    (tmp_path / "broken.py").write_text(
        'import stepscope\nwith stepscope.TrainingMonitor(run="case") as monitor:\n'
        '    monitor.log_training_step(loss=1.0)\n    raise ValueError("no data")\n'
    )
    trial = run(Case("broken"), Settings())
    assert trial.exit_code == 1
    assert trial.last_line == "ValueError: no data"
    assert trial.answer.ids == ("status.failed",)


def test_the_cases_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", "--list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(CASES)


def test_expected_findings_of_existing_detectors_are_spelt_as_they_are() -> None:
    rooms = {name.partition(".")[0] for name in known_detectors()} | {"status", "run", "num", "dist"}
    assert {name.partition(".")[0] for case in CASES.values() for name in case.all_expected} <= rooms
