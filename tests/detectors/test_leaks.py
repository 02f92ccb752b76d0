"""Memory that leaks is a finding with its rate and its end; memory that only looks like it is none."""

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well, steady_memory

GB, SECONDS = 1e9, 200
TOTAL = {("memory/total_bytes", ""): 16 * GB}


def diagnosed(folder, memory, machine=None, step_s=1.0, **columns):
    """A run of 400 steps in which a process uses this memory."""
    run = going_well(1, 400, step_s=step_s)
    run.update(columns)
    return diagnose(folder, run, memory=memory, machine=machine)


def leak_in(diagnosis, name="hostmem.leak"):
    return next((finding for finding in diagnosis.findings if finding.id == name), None)


def test_a_leak_of_8_mb_per_second_is_found_with_its_end(tmp_path):
    leak = leak_in(diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 8e6 * seconds, TOTAL))
    assert leak is not None
    assert leak.severity == "critical"
    assert leak.headline.startswith("Process memory grows by 26.")
    assert "and will be full in" in leak.headline
    assert [evidence.label for evidence in leak.evidence] == ["growth per hour", "in use", "limit"]
    assert leak.remedies


def test_a_slower_leak_is_a_warning(tmp_path):
    leak = leak_in(diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 1e6 * seconds, TOTAL))
    assert leak is not None
    assert leak.severity == "warning"


def test_growth_in_the_first_minutes_may_be_a_cache_and_is_a_notice(tmp_path):
    leak = leak_in(
        diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 8e6 * seconds, TOTAL, step_s=0.5)
    )
    assert leak is not None
    assert leak.severity == "notice"


def test_memory_that_is_full_in_a_few_minutes_is_a_warning_at_once(tmp_path):
    leak = leak_in(
        diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 6e7 * seconds, TOTAL, step_s=0.3)
    )
    assert leak is not None
    assert leak.severity == "warning"


def test_without_a_known_limit_growth_is_a_notice(tmp_path):
    leak = leak_in(diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 8e6 * seconds))
    assert leak is not None
    assert leak.severity == "notice"
    assert leak.headline.endswith("no limit is known.")


@pytest.mark.parametrize(
    "memory",
    [
        steady_memory,
        lambda seconds: steady_memory(seconds) + 3 * GB * (1 - np.exp(-seconds / 20)),
        lambda seconds: steady_memory(seconds) + GB * ((seconds / 30) % 1),
        lambda seconds: steady_memory(seconds) + 2 * GB * (seconds > 120),
        lambda seconds: steady_memory(seconds) - 8e6 * seconds,
        lambda seconds: steady_memory(seconds) + 1e5 * seconds,
    ],
    ids=["steady", "a cache fills", "sawtooth", "a jump", "falls", "grows by very little"],
)
def test_other_memory_is_not_a_leak(tmp_path, memory):
    diagnosis = diagnosed(tmp_path, memory, TOTAL)
    assert diagnosis.findings == ()
    assert "hostmem.leak" not in diagnosis.checks.not_run


def test_memory_that_was_not_read_is_not_checked(tmp_path):
    diagnosis = diagnosed(tmp_path, None)
    assert "hostmem.leak" in diagnosis.checks.not_run


def test_tensors_that_are_kept_on_a_gpu_are_found(tmp_path):
    used = 4 * GB + 2e7 * np.arange(400) + np.random.default_rng(1).normal(0, 1e6, 400)
    machine = {("gpu/memory_total_bytes", "GPU-a"): 24 * GB}
    diagnosis = diagnosed(tmp_path, steady_memory, machine, **{"memory/allocated_bytes": used})
    leak = leak_in(diagnosis, "mem.leak")
    assert leak is not None
    assert leak.headline.startswith("Tensor memory grows by 6")
    assert "growth in 1,000 steps" in [evidence.label for evidence in leak.evidence]


def test_a_run_without_a_gpu_is_healthy_without_that_check(tmp_path):
    diagnosis = diagnosed(tmp_path, steady_memory)
    assert "mem.leak" not in diagnosis.checks.not_run
    [check] = [check for check in diagnosis.considered if check.id == "mem.leak"]
    assert check.why_not == "Applies only to runs that record memory/allocated_bytes."


def test_memory_that_is_read_more_often_is_judged(tmp_path):
    machine = {**TOTAL, ("process/uss_bytes", ""): [1e9, 1.1e9]}
    leak = leak_in(diagnosed(tmp_path, lambda seconds: steady_memory(seconds) + 8e6 * seconds, machine))
    assert leak is not None
    assert leak.chart.keys == ("process/rss_bytes",)
