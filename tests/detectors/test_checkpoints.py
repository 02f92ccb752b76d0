"""Runs whose work is not saved, or whose disk is nearly full, and runs that are safe."""

import numpy as np
import pytest

from stepscope.analysis import build
from tests.detectors.simulated import SETUP, diagnose, going_well

STEPS = 600
GIB = 2.0**30


def lasting(minutes, every=None, each_s=2.0, seed=1, steps=STEPS, saves=None):
    """A healthy run of about so many minutes, with a checkpoint every few steps, at some steps, or none."""
    run = going_well(seed, steps, step_s=60 * minutes / (steps + 60) / 1.03)
    number = np.arange(steps)
    is_saving = np.zeros(steps, bool) if every is None else number % every == every - 1
    if saves is not None:
        is_saving = np.isin(number, saves)
    run["step_seconds"] = (
        run["step_seconds"] - run["phase/checkpoint_seconds"] + np.where(is_saving, each_s, 0)
    )
    run["phase/checkpoint_seconds"] = np.where(is_saving, each_s, 0.0)
    return run


def the_finding(diagnosis):
    assert [finding.id for finding in diagnosis.findings] == ["ckpt.safety"]
    return diagnosis.findings[0]


def why_not(diagnosis):
    assert diagnosis.findings == ()
    return next(check.why_not for check in diagnosis.considered if check.id == "ckpt.safety")


@pytest.mark.parametrize(("minutes", "severity"), [(40, "notice"), (90, "notice"), (150, "warning")])
@pytest.mark.parametrize("steps", [STEPS, 4000])
def test_a_long_run_without_a_checkpoint_is_reported(tmp_path, minutes, severity, steps):
    finding = the_finding(diagnose(tmp_path, lasting(minutes, steps=steps), memory=None))
    assert finding.severity == severity
    reported = float(finding.headline.split(" in ")[1].split(" min")[0])
    assert reported == pytest.approx(minutes, rel=0.1)
    assert "os.replace" in finding.remedies[0].code


def test_a_fifth_of_a_planned_run_without_a_checkpoint_is_reported(tmp_path):
    planned = {"total_steps": 1200}
    finding = the_finding(diagnose(tmp_path, lasting(15), facts=planned))
    assert "are left" in finding.evidence[1].note
    assert "work of" in why_not(diagnose(tmp_path, lasting(15), facts={"total_steps": 6000}))
    assert "work of" in why_not(diagnose(tmp_path, lasting(5), facts=planned)), "it can be repeated"


@pytest.mark.parametrize(("minutes", "every"), [(20, None), (60, 100), (300, 200), (40, 300)])
def test_a_run_that_is_short_or_saved_is_fine(tmp_path, minutes, every):
    assert "is not saved" in why_not(diagnose(tmp_path, lasting(minutes, every), memory=None))


def test_one_checkpoint_an_epoch_of_hours_is_fine(tmp_path):
    assert why_not(diagnose(tmp_path, lasting(280, saves=[250]), memory=None))
    assert why_not(diagnose(tmp_path, lasting(600, 150), memory=None))


def test_checkpoints_that_have_stopped_are_reported(tmp_path):
    run = lasting(120, saves=[50, 100, 150, 200])
    finding = the_finding(diagnose(tmp_path, run, memory=None))
    assert finding.severity == "warning"
    assert "since the newest of 4" in finding.headline


def test_a_checkpoint_of_another_rank_counts(tmp_path):
    ranks = lasting(60), lasting(60, 100)
    assert "6 checkpoints" in why_not(diagnose(tmp_path, *ranks, memory=None))


def test_a_checkpoint_that_a_framework_reports_counts(tmp_path):
    assert diagnose(tmp_path, lasting(60), events=(("checkpoint", {"epoch": 0}),)).findings == ()


def test_a_process_that_wrote_as_much_as_a_checkpoint_may_have_saved_one(tmp_path):
    setup = ("census", {**SETUP[1], "parameter_dtypes": {"float32": 25_000_000}})
    writes = np.full(2000, 1e3)
    writes[1200:1203] = 4e7
    machine = {("process/disk_write_bytes_per_second", ""): writes}
    diagnosis = diagnose(tmp_path, lasting(40), events=(setup,), machine=machine)
    assert "may be one" in why_not(diagnosis)
    machine = {("process/disk_write_bytes_per_second", ""): np.full(2000, 1e3)}
    the_finding(diagnose(tmp_path, lasting(40), events=(setup,), machine=machine))


def test_a_run_that_has_ended_needs_no_newer_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_remaining_s", lambda *_: 0.0)
    assert why_not(diagnose(tmp_path, lasting(300, saves=[50, 100, 150]), memory=None))
    the_finding(diagnose(tmp_path, lasting(60), memory=None))


def filling(run, each, left, rotates=False):
    """Free space that falls with each checkpoint, to that of so many more."""
    saves = np.cumsum(run["phase/checkpoint_seconds"] > 0)
    places = np.linspace(0, STEPS - 1, 60).astype(int)
    written = saves[places] if not rotates else np.minimum(saves[places], 1)
    free = each * (left + written[-1] - written)
    return {("disk/free_bytes", "/data"): free.astype(float), ("disk/free_bytes", "/"): 500 * GIB}


@pytest.mark.parametrize(("left", "severity"), [(0.5, "critical"), (1.4, "warning"), (2.5, "warning")])
@pytest.mark.parametrize("each", [0.06 * GIB, 40 * GIB])
def test_a_disk_with_room_for_fewer_than_three_checkpoints_is_reported(tmp_path, left, severity, each):
    run = lasting(20, 60)
    finding = the_finding(diagnose(tmp_path, run, machine=filling(run, each, left)))
    assert finding.severity == severity
    plural = "" if int(left) == 1 else "s"
    assert f"room for {int(left)} more checkpoint{plural} in /data" in finding.headline
    assert "keep the newest checkpoints only" in finding.tries


@pytest.mark.parametrize(("left", "rotates"), [(3.5, False), (20, False), (1.5, True)])
def test_a_disk_with_room_for_the_next_checkpoints_is_fine(tmp_path, left, rotates):
    run = lasting(20, 60)
    assert why_not(diagnose(tmp_path, run, machine=filling(run, GIB, left, rotates)))


def test_a_disk_that_others_fill_is_not_blamed_on_checkpoints(tmp_path):
    run = lasting(20, 60)
    chance = np.random.default_rng(1)
    free = 3 * GIB + chance.normal(0, 0.5 * GIB, 60)
    assert why_not(diagnose(tmp_path, run, machine={("disk/free_bytes", "/"): free}))
