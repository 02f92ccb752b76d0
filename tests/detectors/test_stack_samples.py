"""Stack samples of the training thread name the line that takes the time, if other measurements agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.analysis.verdict import verdict_of
from tests.detectors.simulated import Columns, diagnose, going_well

STEPS = 600
LOADER = ("loader", {"num_workers": 0, "batch_size": 64, "dataset": "Images", "persistent_workers": False})


def samples(
    *lines: tuple[str, str, str, int], sign: str = "other", **fields: Any
) -> tuple[str, dict[str, Any]]:
    """The event of samples; each line has its place, phase, kind and number of samples."""
    phases: dict[str, int] = {}
    for _, phase, _, count in lines:
        phases[phase] = phases.get(phase, 0) + count
    described = [
        {"place": place, "phase": phase, "kind": kind, "call": "", "samples": count}
        for place, phase, kind, count in lines
    ]
    total = sum(phases.values())
    return "stack_samples", {"sign": sign, "samples": total, "phases": phases, "lines": described, **fields}


def with_more(phase: str, share: float, *, busy: float = 0.99) -> Columns:
    """A healthy run of which one phase takes a share of each step."""
    run = going_well(1, STEPS)
    extra = float(np.median(run["step_seconds"])) * share / (1 - share)
    for key in (f"phase/{phase}_seconds", "step_seconds"):
        run[key] = run[key] + extra
    run["host/cpu_ratio"] = np.full(STEPS, busy)
    run["host/queued_seconds"] = np.zeros(STEPS)
    return run


def found(diagnosis: Any, name: str) -> Any:
    return next((finding for finding in diagnosis.findings if finding.id == name), None)


def why_not(diagnosis: Any, name: str) -> str:
    assert found(diagnosis, name) is None
    return next(check.why_not for check in diagnosis.considered if check.id == name)


REST = ("train.py:9", "backward", "", 50)


@pytest.mark.parametrize(("count", "severity"), [(6, "warning"), (30, "warning")])
def test_logging_is_reported_with_the_line_that_logs(tmp_path, count, severity):
    event = samples(
        ("train.py:12 in train", "other", "logging", count), ("train.py:9", "backward", "", 100 - count)
    )
    finding = found(diagnose(tmp_path, with_more("other", 0.5), events=(event,)), "host.logging")
    assert (finding.where, finding.severity) == ("train.py:12 in train", severity)
    assert finding.share == pytest.approx(count / 100)
    assert "QueueHandler" in "".join(remedy.code or "" for remedy in finding.remedies)
    assert found(diagnose(tmp_path, with_more("other", 0.5), events=(event,)), "host.loop_code") is None


@pytest.mark.parametrize(
    "lines",
    [
        (("train.py:12", "other", "logging", 3), ("train.py:9", "backward", "", 97)),  # a few, by chance
        (("data.py:12", "data", "logging", 60), REST),  # a data set that reads JSON
        (("train.py:12", "checkpoint", "logging", 60), REST),
        (("train.py:12", "other", "", 60), REST),
    ],
)
def test_few_samples_and_other_phases_are_not_logging(tmp_path, lines):
    why_not(diagnose(tmp_path, with_more("other", 0.3), events=(samples(*lines),)), "host.logging")


def test_samples_that_the_measured_phases_contradict_are_not_believed(tmp_path):
    run = with_more("forward", 0.5)
    run["phase/other_seconds"] *= 0.01
    event = samples(("train.py:12", "other", "logging", 60), REST)
    assert "outside the phases" in why_not(diagnose(tmp_path, run, events=(event,)), "host.logging")


@pytest.mark.parametrize("kind", ["sleep", "network", "subprocess", "plot"])
def test_a_line_that_waits_in_the_loop_is_reported(tmp_path, kind):
    event = samples(("train.py:12 in train", "other", kind, 60), ("train.py:9", "backward", "", 40))
    finding = found(diagnose(tmp_path, with_more("other", 0.6), events=(event,)), "host.loop_code")
    assert (finding.where, finding.severity) == ("train.py:12 in train", "warning")
    assert 0.55 < finding.share < 0.7
    assert ("line", "train.py:12 in train") in [(row.label, row.value) for row in finding.evidence]


def test_a_line_of_unknown_kind_is_reported_only_if_the_thread_waits(tmp_path):
    event = samples(("train.py:12", "other", "", 60), ("train.py:9", "backward", "", 40))
    waits = diagnose(tmp_path, with_more("other", 0.6, busy=0.3), events=(event,))
    assert found(waits, "host.loop_code").where == "train.py:12"
    computes = diagnose(tmp_path, with_more("other", 0.6), events=(event,))
    assert "train.py:12, which computes" in why_not(computes, "host.loop_code")


def test_several_lines_are_no_finding(tmp_path):
    lines = [(f"train.py:{number}", "other", "sleep", 20) for number in range(4)]
    diagnosis = diagnose(tmp_path, with_more("other", 0.6), events=(samples(*lines),))
    assert "in several lines" in why_not(diagnosis, "host.loop_code")


def test_the_verdict_names_the_line_of_unexplained_time(tmp_path):
    event = samples(("train.py:12 in collate", "other", "", 60), ("train.py:9", "backward", "", 40))
    diagnosis = diagnose(tmp_path, with_more("other", 0.6), events=(event,))
    verdict = verdict_of([], diagnosis.checks)
    assert "outside the measured phases, most of it at train.py:12 in collate" in verdict.headline


def test_without_samples_time_outside_the_phases_could_not_be_checked(tmp_path):
    diagnosis = diagnose(tmp_path, with_more("other", 0.6))
    assert {"host.logging", "host.loop_code"} <= set(diagnosis.checks.not_run)
    assert "host.logging" not in diagnose(tmp_path, going_well(1, STEPS)).checks.not_run


@pytest.mark.parametrize(("workers", "where"), [(0, "data.py:20 in __getitem__"), (4, "")])
def test_a_slow_data_set_is_named_by_its_line_unless_workers_make_the_batches(tmp_path, workers, where):
    event = samples(
        ("data.py:20 in __getitem__", "data", "sleep", 40), ("train.py:9", "backward", "", 20), sign="data"
    )
    loader = (LOADER[0], {**LOADER[1], "num_workers": workers})
    finding = found(diagnose(tmp_path, with_more("data", 0.6), events=(event, loader)), "input.exposed_wait")
    assert finding.where == where
    assert ("line" in [row.label for row in finding.evidence]) == bool(where)


def blocking(step: int, taken_s: float) -> Columns:
    run = going_well(1, STEPS)
    run["step_seconds"][step] += taken_s
    return run


def blocked(
    step: int = 0, kind: str = "sleep", phase: str = "other", **fields: Any
) -> tuple[str, dict[str, Any]]:
    return samples(("train.py:23", phase, kind, 20), sign="blocked", step=step, **fields)


def test_a_step_that_blocked_is_reported_with_its_line(tmp_path):
    finding = found(diagnose(tmp_path, blocking(0, 12.0), events=(blocked(),)), "step.blocked")
    assert finding.where == "train.py:23"
    assert finding.headline.startswith("Step 0 took 15")
    assert finding.severity == "warning"


@pytest.mark.parametrize("phase", ["checkpoint", "eval", "compile"])
def test_long_checkpoints_and_evaluations_are_not_stalls(tmp_path, phase):
    diagnosis = diagnose(tmp_path, blocking(0, 12.0), events=(blocked(phase=phase),))
    assert why_not(diagnosis, "step.blocked").startswith("No step blocked")


def test_a_notebook_that_waits_for_the_next_cell_is_not_a_stall(tmp_path):
    diagnosis = diagnose(tmp_path, blocking(0, 12.0), events=(blocked(kind="idle"),))
    assert why_not(diagnosis, "step.blocked").startswith("No step blocked")


def test_a_long_time_after_the_last_step_is_not_a_stall(tmp_path):
    run = going_well(1, STEPS)
    event = blocked(taken_seconds=60.0, is_in_loop=False)
    assert "step.blocked" not in [finding.id for finding in diagnose(tmp_path, run, events=(event,)).findings]
