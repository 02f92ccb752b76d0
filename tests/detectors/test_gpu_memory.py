"""Memory of a GPU that is full, allocated again and again, or unused; and memory that is fine."""

import numpy as np
import pytest

from tests.detectors.on_gpu import alarming, diagnosed, finding_of, on_gpu, readings, why_not
from tests.detectors.simulated import diagnose, going_well

TOTAL = 150_754_820_096
GIB = 2.0**30


def sampled(values, every=4):
    """Values that are read at some steps only, the first two among them."""
    number = np.arange(len(values))
    return np.where((number % every == 1) | (number < 2), values, np.nan)


def with_memory(run=None, step_s=0.1, steps=600, share=0.6, **changes):
    """A training whose allocator took what it needs in the first steps."""
    run = on_gpu(steps=steps, step_s=step_s) if run is None else run
    steps = len(run["step_seconds"])
    number = np.arange(steps)
    settled = np.minimum(number, 5) / 5
    memory = {
        "allocated_bytes": 0.3 * TOTAL + 1e6 * np.random.default_rng(0).normal(size=steps),
        "peak_bytes": share * TOTAL * (0.9 + 0.1 * settled),
        "reserved_bytes": min(share * 1.05, 0.97) * TOTAL * (0.9 + 0.1 * settled),
        "inactive_split_bytes": 0.02 * share * TOTAL * np.ones(steps),
        "alloc_retries_total": np.zeros(steps),
        "ooms_total": np.zeros(steps),
        "device_allocs_total": 200 + 20 * settled,
        "device_frees_total": np.zeros(steps),
        "stream_syncs_total": np.zeros(steps),
    }
    for name, values in {**memory, **changes}.items():
        run[f"memory/{name}"] = sampled(np.asarray(values, np.float64) * np.ones(steps))
    return run


def retried(count, first=200, steps=600):
    """A counter that rises `count` times from a step on."""
    return np.minimum(np.maximum(np.arange(steps) - first, 0) // 20, count).astype(float)


@pytest.mark.parametrize(("count", "words"), [(1, "1 time"), (3, "3 times"), (15, "15 times")])
def test_allocations_that_had_to_empty_the_cache_are_a_risk(tmp_path, count, words):
    run = with_memory(share=0.9, alloc_retries_total=retried(count), device_frees_total=30 * retried(count))
    diagnosis = diagnosed(tmp_path, run)
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("mem.oom_risk", "warning")
    assert f"only after the cache was emptied, {words} in" in finding.headline
    assert 200 < finding.first_step < 230
    assert "accumulate" in finding.remedies[0].text


def test_a_failed_allocation_that_the_training_survived_is_critical(tmp_path):
    run = with_memory(share=0.9, alloc_retries_total=retried(4), ooms_total=retried(2))
    [finding] = diagnosed(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("mem.oom_risk", "critical")
    assert finding.headline.startswith("An allocation on the GPU failed, 2 times")


def test_fragmented_memory_gets_expandable_segments_unless_they_are_on(tmp_path):
    run = with_memory(share=0.9, alloc_retries_total=retried(3), inactive_split_bytes=0.3 * TOTAL)
    off = finding_of(diagnosed(tmp_path, run), "mem.oom_risk")
    assert "expandable_segments:True" in off.remedies[0].code
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    on = finding_of(diagnosed(tmp_path, run, environment=environment), "mem.oom_risk")
    assert all("expandable_segments" not in (remedy.code or "") for remedy in on.remedies)


def test_retries_that_come_from_a_leak_are_one_finding_with_the_advice_on_leaks(tmp_path):
    leaking = 0.3 * TOTAL + 0.6 * TOTAL * np.arange(600) / 600
    run = with_memory(
        share=0.99, step_s=1.0, allocated_bytes=leaking, alloc_retries_total=retried(3, first=500)
    )
    diagnosis = diagnosed(tmp_path, run)
    [finding] = diagnosis.findings
    assert finding.id == "mem.oom_risk"
    assert "keep no tensors that have a graph" in finding.remedies[0].text
    assert "Explained by" in why_not(diagnosis, "mem.leak")


@pytest.mark.parametrize(("step_s", "severity"), [(0.1, "warning"), (1.0, "critical")])
def test_a_peak_that_grows_with_the_batches_is_forecast(tmp_path, step_s, severity):
    peak = TOTAL * (0.5 + 0.44 * np.arange(600) / 600)
    diagnosis = diagnosed(tmp_path, with_memory(step_s=step_s, peak_bytes=peak))
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("mem.oom_risk", severity)
    assert "will reach 95% of 140 GiB in" in finding.headline
    assert "length" in finding.remedies[0].text


@pytest.mark.parametrize(
    "memory",
    [
        {"share": 0.6},
        {"share": 0.97},
        {"share": 0.99, "inactive_split_bytes": 0.3 * TOTAL},
        {"alloc_retries_total": np.where(np.arange(600) < 3, 0, 2)},
        {"peak_bytes": TOTAL * (0.5 + 0.1 * np.arange(600) / 600)},
        {"peak_bytes": TOTAL * (0.5 + 0.4 * (1 - np.exp(-np.arange(600) / 60)))},
        {"peak_bytes": TOTAL * np.where(np.arange(600) < 300, 0.5, 0.93)},
        {"peak_bytes": TOTAL * (0.5 + 0.03 * np.log1p(np.arange(600)))},
        {"peak_bytes": TOTAL * (0.9 + 0.01 * np.arange(600) / 600)},
    ],
    ids=[
        "usual", "high and flat", "high, flat and fragmented", "retries in the first steps",
        "grows and stays far below", "grows and settles", "one jump", "the longest batch so far",
        "grows little",
    ],
)  # fmt: skip
def test_memory_that_will_do_is_no_risk(tmp_path, memory):
    diagnosis = diagnosed(tmp_path, with_memory(**memory))
    assert diagnosis.findings == ()
    assert "mem.oom_risk" not in diagnosis.checks.not_run


def test_a_leak_is_left_to_the_check_for_leaks(tmp_path):
    noise = np.random.default_rng(3).normal(0, 0.0002, 600)
    leaking = TOTAL * (0.3 + 0.5 * np.arange(600) / 600 + noise)
    run = with_memory(step_s=1.0, allocated_bytes=leaking, peak_bytes=leaking + 0.1 * TOTAL)
    [finding] = diagnosed(tmp_path, run).findings
    assert finding.id == "mem.leak"


def rising(per_step, steps=600):
    return 200 + np.floor(per_step * np.arange(steps))


@pytest.mark.parametrize(("per_step", "severity"), [(5, "notice"), (20, "warning"), (60, "warning")])
def test_a_cache_that_is_emptied_in_the_loop_is_found_with_its_cost(tmp_path, per_step, severity):
    run = with_memory(device_allocs_total=rising(per_step), device_frees_total=rising(per_step) - 200)
    diagnosis = diagnosed(tmp_path, run)
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("mem.alloc_churn", severity)
    assert f"allocates memory {per_step} times in a step" in finding.headline
    assert finding.estimate.low < finding.estimate.likely < finding.estimate.high <= 0.9
    assert finding.share == pytest.approx(2 * per_step * 3e-4 / 0.105, rel=0.15)


@pytest.mark.parametrize(
    ("allocated", "returned"),
    [
        (rising(0.02), rising(0.02)),
        (rising(0.5), rising(0.0)),
        (200 + 40 * (np.arange(600) // 300), 40 * (np.arange(600) // 300)),
        (200 + 50 * np.minimum(np.arange(600), 100), 50 * np.minimum(np.arange(600), 100)),
        (rising(1.0), rising(1.0)),
    ],
    ids=["rarely", "a cache that fills", "once, after an evaluation", "in the first steps", "of no cost"],
)
def test_a_cache_that_is_kept_is_fine(tmp_path, allocated, returned):
    diagnosis = diagnosed(tmp_path, with_memory(device_allocs_total=allocated, device_frees_total=returned))
    assert diagnosis.findings == ()
    assert "mem.alloc_churn" not in diagnosis.checks.not_run


LIGHT = {
    "utilization_ratio": 0.75,
    "sm_active_ratio": 0.25,
    "tensor_active_ratio": 0.05,
    "power_watts": 210.0,
}


@pytest.mark.parametrize("share", [0.02, 0.3, 0.55])
def test_free_memory_beside_idle_compute_units_is_worth_a_hint(tmp_path, share):
    run = with_memory(on_gpu(lags=dict.fromkeys(("backward", "optimizer", "other"), 0.2)), share=share)
    diagnosis = diagnosed(tmp_path, run, machine=readings(**LIGHT))
    finding = finding_of(diagnosis, "mem.headroom")
    assert finding.severity == "info"
    assert f"{1 - share:.0%} of the GPU's memory is free" in finding.headline
    assert alarming(diagnosis) == []


@pytest.mark.parametrize(
    ("share", "run", "changes"),
    [
        (0.65, {"lags": {"backward": 0.2}}, LIGHT),
        (0.3, {"lags": {"backward": 0.9}}, {**LIGHT, "sm_active_ratio": 0.9}),
        (0.3, {"lags": {"backward": 0.2}}, {**LIGHT, "sm_active_ratio": 0.6}),
        (0.3, {"lags": {}, "phases": {"data": 0.4, "forward": 0.2, "backward": 0.4}}, LIGHT),
    ],
    ids=["memory in use", "a busy GPU", "half of the units active", "waits for data"],
)
def test_free_memory_is_no_hint_by_itself(tmp_path, share, run, changes):
    diagnosis = diagnosed(tmp_path, with_memory(on_gpu(**run), share=share), machine=readings(**changes))
    assert finding_of(diagnosis, "mem.headroom") is None


def keeping(per_step, begin=0.3 * TOTAL, step_s=0.1, steps=100, **changes):
    """A training that keeps the same number of bytes at each step; the allocator is read at a few of them."""
    run = on_gpu(steps=steps, step_s=step_s, every=2)
    return with_memory(run, allocated_bytes=begin + per_step * np.arange(steps), **changes)


@pytest.mark.parametrize(
    ("per_step", "severity"),
    [(2e6, "notice"), (2e7, "notice"), (2e8, "warning")],
    ids=["2 MB", "20 MB", "200 MB"],
)
def test_the_same_bytes_kept_at_each_step_are_found_before_a_trend_is(tmp_path, per_step, severity):
    diagnosis = diagnosed(tmp_path, keeping(per_step))
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("mem.retention", severity)
    assert "in a step, the same in each" in finding.headline
    assert "loss.detach()" in finding.remedies[0].code


def test_what_is_kept_for_minutes_is_one_finding_with_its_end(tmp_path):
    diagnosis = diagnosed(tmp_path, keeping(1e8, step_s=1.0, steps=600))
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("mem.retention", "critical")
    assert "Explained by" in why_not(diagnosis, "mem.leak")


@pytest.mark.parametrize(
    "memory",
    [
        {"per_step": 0.0},
        {"per_step": 1e3},
        {"per_step": 2e6, "begin": 0.3 * TOTAL + 4e7 * np.random.default_rng(1).normal(size=100)},
        {"per_step": 2e6, "begin": 0.3 * TOTAL - 2e6 * 30 * (np.arange(100) // 30)},
        {"per_step": 2e6, "begin": 0.3 * TOTAL - 2e6 * np.maximum(np.arange(100) - 40, 0)},
    ],
    ids=[
        "kept nothing",
        "kept some numbers",
        "batches of several lengths",
        "freed after each epoch",
        "filled",
    ],
)
def test_memory_that_is_not_kept_at_each_step_is_no_retention(tmp_path, memory):
    diagnosis = diagnosed(tmp_path, keeping(**memory))
    assert diagnosis.findings == ()
    assert "mem.retention" not in diagnosis.checks.not_run


def test_losses_that_still_exist_are_reported_without_a_gpu(tmp_path):
    run = going_well(1, 600)
    run["losses/kept_ratio"] = np.where(np.arange(600) % 50 == 40, 1.0, np.nan)
    [finding] = diagnose(tmp_path, run).findings
    assert (finding.id, finding.severity) == ("mem.retention", "notice")
    assert "loss.detach()" in finding.remedies[0].code
    run["losses/kept_ratio"] = np.where(np.arange(600) % 50 == 40, 0.5, np.nan)
    assert diagnose(tmp_path, run).findings == ()
