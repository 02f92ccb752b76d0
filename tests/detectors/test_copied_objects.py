"""Loader workers that copy a list of the dataset, and workers that have memory of their own otherwise."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

MIB, GIB = 2.0**20, 2.0**30
OBJECTS = {"place": "rows", "kind": "list", "count": 3_000_000, "bytes": 1_000 * MIB}
LOADER = {
    "num_workers": 2,
    "batch_size": 64,
    "start_method": "fork",
    "dataset": "Records",
    "persistent_workers": True,
}
SHARED = 1_500 * MIB
"""What a worker has shared with the training when it was forked."""


def rising(first, last, count=40):
    """Memory that grows quickly and then more slowly, as more and more pages are already copied."""
    return last - (last - first) * np.exp(-np.linspace(0, 5, count))


def diagnosed(folder, own, used=SHARED, objects=OBJECTS, total=16 * GIB, **loader):
    """A run with two workers that have so much memory of their own, and use so much in all."""
    machine = {("memory/total_bytes", ""): total}
    for worker in ("loader-0", "loader-1"):
        if own is not None:
            machine["process/uss_bytes", worker] = np.broadcast_to(own, 40)
        machine["process/rss_bytes", worker] = np.broadcast_to(used, 40)
    fields = {**LOADER, **loader, **({} if objects is None else {"python_objects": objects})}
    return diagnose(folder, going_well(1, 400, step_s=0.3), events=(("loader", fields),), machine=machine)


def the_finding(diagnosis):
    [finding] = [finding for finding in diagnosis.findings if finding.id == "hostmem.cow"]
    return finding


def why_not(diagnosis):
    return next(check.why_not for check in diagnosis.considered if check.id == "hostmem.cow")


@pytest.mark.parametrize("own", [300 * MIB, 600 * MIB, 1_100 * MIB])
def test_workers_that_have_copied_a_list_are_reported(tmp_path, own):
    finding = the_finding(diagnosed(tmp_path, own))
    assert finding.severity == "notice"
    assert "`rows` of `Records`" in finding.headline
    assert "numpy.array(rows)" in finding.remedies[0].code
    values = {evidence.label: evidence.value for evidence in finding.evidence}
    assert values["copied by a worker"] == f"{min(own, OBJECTS['bytes']) / MIB:.0f} MiB"


@pytest.mark.parametrize(
    ("total", "severity"), [(8 * GIB, "warning"), (32 * GIB, "notice"), (256 * GIB, "info")]
)
def test_the_severity_is_that_of_complete_copies_in_all_workers(tmp_path, total, severity):
    assert the_finding(diagnosed(tmp_path, 300 * MIB, total=total)).severity == severity


def test_growth_without_a_known_list_is_reported_if_it_is_large(tmp_path):
    finding = the_finding(diagnosed(tmp_path, rising(40 * MIB, 700 * MIB), objects=None))
    assert finding.confidence < 0.9
    assert "of `Records`" in finding.headline


@pytest.mark.parametrize("own", [20 * MIB, 40 * MIB, 60 * MIB])
def test_workers_with_little_memory_of_their_own_are_fine(tmp_path, own):
    diagnosis = diagnosed(tmp_path, own)
    assert "threshold: 64 MiB" in why_not(diagnosis)
    assert "hostmem.cow" not in diagnosis.checks.not_run


def test_a_small_list_is_fine_in_workers_with_much_memory(tmp_path):
    small = {**OBJECTS, "count": 60_000, "bytes": 12 * MIB}
    assert "have copied 12 MiB" in why_not(diagnosed(tmp_path, 900 * MIB, objects=small))


@pytest.mark.parametrize("objects", [OBJECTS, None])
def test_a_cache_that_fills_in_the_workers_is_no_copy(tmp_path, objects):
    cache = rising(0, 900 * MIB)
    assert why_not(diagnosed(tmp_path, 40 * MIB + cache, SHARED + cache, objects))


def test_a_cache_beside_a_list_that_is_read_is_no_copy(tmp_path):
    cache = rising(0, 900 * MIB)
    diagnosis = diagnosed(tmp_path, 300 * MIB + cache, SHARED + cache)
    assert "objects of their own" in why_not(diagnosis)


def test_workers_that_began_with_much_memory_and_have_no_list_are_fine(tmp_path):
    assert "have copied 0 B" in why_not(diagnosed(tmp_path, 900 * MIB, objects=None))


@pytest.mark.parametrize(
    "loader", [{"num_workers": 0, "start_method": None}, {"start_method": "spawn"}, {"start_method": None}]
)
def test_workers_that_were_not_forked_share_nothing(tmp_path, loader):
    assert why_not(diagnosed(tmp_path, 900 * MIB, **loader)).startswith("No loader has workers")


def test_memory_that_only_a_worker_has_must_be_known(tmp_path):
    diagnosis = diagnosed(tmp_path, None)
    assert "Needs the memory that only a worker has" in why_not(diagnosis)
    assert "hostmem.cow" in diagnosis.checks.not_run


def test_an_ordinary_run_is_healthy_without_workers(tmp_path):
    diagnosis = diagnose(tmp_path, going_well(1, 400))
    assert diagnosis.findings == ()
    assert "hostmem.cow" not in diagnosis.checks.not_run
