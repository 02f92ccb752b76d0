"""Keeps the window of one run of each case, and diagnoses it again."""

import json
import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stepscope.analysis.detector_registry import known_detectors
from stepscope.analysis.diagnose import Diagnostician
from stepscope.schema.window import Window
from zoo import window_file
from zoo.answer import Answer, answer_of
from zoo.case import Case
from zoo.catalogue import CASES
from zoo.scoring import Score, score
from zoo.trial import Trial

FOLDER = Path(__file__).resolve().parent / "recordings"
MISSES = FOLDER / "misses.json"
"""Cases that are diagnosed wrongly, and what is said instead."""


def record(trial: Trial, *, is_busy: bool) -> None:
    """Keeps the window of a run, and what the window alone does not say."""
    if trial.window is None:
        raise ValueError(f"Nothing was recorded of {trial.case.name}: {trial.last_line}")
    machine = {
        "processors": os.cpu_count(),
        "kind": platform.machine(),
        "torch": version("torch"),
        "date": time.strftime("%Y-%m-%d"),
        "is_busy": is_busy,
        "failure": trial.answer.verdict if trial.answer.verdict.startswith("status.") else "",
    }
    window_file.save(trial.window, _file(trial.case), machine)


def recorded() -> list[Case]:
    """Returns the cases that have a recording."""
    return [case for case in CASES.values() if _file(case).exists()]


def load(case: Case) -> tuple[Window, dict[str, Any]]:
    """Reads the recording of a case, and on which machine it was made."""
    return window_file.load(_file(case))


def replay(case: Case, diagnostician: Diagnostician) -> Score:
    """Diagnoses the recording of a case, and scores what is said."""
    window, machine = load(case)
    answer = answer_of(diagnostician.examine(window))
    if machine["failure"]:
        answer = Answer(machine["failure"], "The run failed.", answer.findings)
    return score(case, answer, known_detectors(), is_busy=machine["is_busy"])


def replay_all() -> Iterator[Score]:
    """Diagnoses all recordings."""
    diagnostician = Diagnostician({})
    for case in recorded():
        yield replay(case, diagnostician)


def misses() -> dict[str, Any]:
    """Returns the cases that are known to be diagnosed wrongly."""
    known: dict[str, Any] = json.loads(MISSES.read_text())
    return known


def write_misses() -> int:
    """Writes down which recordings are diagnosed wrongly now; returns their number."""
    wrong = {each.case.name: list(each.answer.ids) for each in replay_all() if not each.is_right}
    MISSES.write_text(json.dumps(wrong, indent=2, sort_keys=True) + "\n")
    return len(wrong)


def _file(case: Case) -> Path:
    return FOLDER / f"{case.name}.window"
