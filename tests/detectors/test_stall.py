"""A training that has stopped is described: where each rank stopped, and what it has done since."""

from dataclasses import replace

import numpy as np
import pytest

from stepscope.analysis.diagnose import Diagnostician
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.window import Column, MachineFigures, RankWindow, Window

SINCE = 1_760_000_000.0
DIAGNOSTICIAN = Diagnostician({})


def rank(number, last_step=99):
    steps = np.arange(last_step + 1)
    flags = np.ones(len(steps), bool)
    taken = Column(np.full(len(steps), 0.1), flags, flags)
    return RankWindow(number, "node1", steps, SINCE - 0.1 * steps[::-1], {STEP_SECONDS: taken}, flags)


def used(key, value, number=0, device=""):
    times = SINCE + np.arange(-30.0, 90.0)
    return MachineFigures(key, number, "node1", device, times, np.where(times > SINCE, value, 0.9))


def stalled(*ranks, machine=(), which=None, facts=None):
    which = [each.rank for each in ranks] if which is None else which
    return Window("r", "s1", ranks, machine, facts=facts or {}, stalled=dict.fromkeys(which, SINCE))


def the_finding(window):
    [finding] = [finding for finding in DIAGNOSTICIAN.examine(window).findings if finding.id == "run.stall"]
    return finding


def test_a_stall_says_after_which_step_and_since_when():
    window = stalled(rank(0), machine=(used("tree/cpu_ratio", 0.0),), facts={0: {"mark": {"pid": 4711}}})
    finding = the_finding(window)
    assert finding.headline == "The training stopped after step 99: no record since 2025-10-09 08:53:20 UTC."
    assert finding.severity == "critical"
    assert finding.detail.startswith("Nothing computes")
    assert finding.remedies[0].code == "py-spy dump --pid 4711"


def test_the_rank_that_stopped_first_is_named():
    finding = the_finding(stalled(rank(0, 80), rank(1, 79), rank(2, 80)))
    assert finding.rank == 1
    assert "wait for rank 1" in finding.detail
    assert any("timeout" in (remedy.code or "") for remedy in finding.remedies)


def test_ranks_that_stopped_at_the_same_step_are_not_blamed():
    finding = the_finding(stalled(rank(0), rank(1)))
    assert finding.rank is None
    assert "wait for rank" not in finding.detail


def test_a_rank_that_stalls_alone_is_named():
    finding = the_finding(stalled(rank(0), rank(1), which=[1]))
    assert finding.rank == 1
    assert finding.headline.startswith("Rank 1 stopped")


def test_workers_that_are_still_at_work_point_at_the_data():
    machine = (used("tree/cpu_ratio", 1.0), used("process/cpu_ratio", 1.0, device="loader-0"))
    finding = the_finding(stalled(rank(0), machine=machine))
    assert "waits for a batch" in finding.detail
    assert any("DataLoader" in (remedy.code or "") for remedy in finding.remedies)


def test_gpus_that_spin_on_several_ranks_point_at_a_collective():
    machine = (used("gpu/utilization_ratio", 1.0, None, "GPU-1"), used("tree/cpu_ratio", 1.0))
    assert "collective" in the_finding(stalled(rank(0), rank(1), machine=machine)).detail


def test_what_a_process_does_may_be_unknown():
    finding = the_finding(stalled(rank(0)))
    assert finding.detail == "What it waits for is not known."
    assert finding.confidence < 0.9


def test_a_run_without_a_step_can_stall_too():
    finding = the_finding(replace(stalled(rank(0)), ranks=()))
    assert "before the first step" in finding.headline


@pytest.mark.parametrize("ranks", [(), (rank(0),), (rank(0, 80), rank(1, 79))])
def test_a_run_that_records_is_not_stalled(ranks):
    diagnosis = DIAGNOSTICIAN.examine(Window("r", "s1", ranks))
    assert "run.stall" not in [finding.id for finding in diagnosis.findings]
    assert "run.stall" not in diagnosis.checks.not_run
