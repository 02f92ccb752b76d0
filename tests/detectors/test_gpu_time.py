"""GPUs that wait for the host, and GPUs that do not."""

import numpy as np
import pytest

from tests.detectors.on_gpu import alarming, diagnosed, finding_of, on_gpu, readings, why_not

LAUNCHES = {"forward": 0.34, "backward": 0.42, "optimizer": 0.2, "other": 0.04}
"""Shares of a step in which the host does little else than start kernels."""

CPU = "host/cpu_ratio"


def idle(utilization=0.45, active=0.12, watts=190.0):
    return readings(
        utilization_ratio=utilization,
        sm_active_ratio=active,
        tensor_active_ratio=0.02,
        dram_active_ratio=0.05,
        power_watts=watts,
    )


def launching(step_s=0.006, cpu=0.99, lags=None, phases=None):
    """A training of hundreds of small kernels: the GPU is never behind the host."""
    run = on_gpu(step_s=step_s, lags=lags or {}, phases=phases or LAUNCHES)
    run[CPU] = np.where(np.arange(600) % 9 == 1, cpu, np.nan)
    return run


@pytest.mark.parametrize(
    ("utilization", "severity"), [(0.85, "warning"), (0.45, "warning"), (0.2, "warning"), (0.895, "warning")]
)
def test_a_gpu_that_waits_for_kernels_is_reported_with_an_interval(tmp_path, utilization, severity):
    diagnosis = diagnosed(tmp_path, launching(), machine=idle(utilization))
    [finding] = diagnosis.findings
    assert (finding.id, finding.severity) == ("gpu.launch_bound", severity)
    assert finding.estimate.low == 0
    assert finding.estimate.high == pytest.approx(1 - utilization, abs=0.01)
    assert 'mode="reduce-overhead"' in finding.remedies[0].code


def test_compiling_is_not_advised_to_a_compiled_model(tmp_path):
    finding = finding_of(diagnosed(tmp_path, launching(), machine=idle(), compiled=True), "gpu.launch_bound")
    assert "larger batches" in finding.remedies[0].text


@pytest.mark.parametrize(
    ("run", "machine", "setup"),
    [
        ({"lags": {"forward": 0.1, "backward": 0.3, "optimizer": 0.3, "other": 0.2}}, idle(), {}),
        ({"lags": {"backward": 0.06}}, idle(), {}),
        ({"phases": {"data": 0.6, "forward": 0.2, "backward": 0.2}}, idle(), {}),
        ({"cpu": 0.5}, idle(), {}),
        ({}, idle(0.97, 0.9, 600.0), {}),
        ({}, idle(0.95, 0.3), {}),
        ({}, {}, {}),
        ({}, idle(), {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}),
        ({"step_s": 0.1}, readings(), {}),
    ],
    ids=[
        "a lag", "a small lag", "waits for data", "a host that waits", "a full GPU",
        "a GPU that is never idle",
        "no readings", "waits for each kernel", "no lag because the queue is full",
    ],
)  # fmt: skip
def test_other_gpus_do_not_wait_for_kernels(tmp_path, run, machine, setup):
    diagnosis = diagnosed(tmp_path, launching(**run), setup, machine)
    assert finding_of(diagnosis, "gpu.launch_bound") is None
    assert finding_of(diagnosis, "host.sync") is None


def catching_up():
    """A training whose optimizer starts so many kernels that the GPU catches up with the host."""
    run = on_gpu(step_s=0.02, lags={"forward": 0.1, "backward": 0.15})
    run["phase/optimizer_seconds"] = 0.4 * run["step_seconds"]
    return run


def waiting(phase, lag=0.5, agreement=1.0, step_s=0.02):
    """A training whose host waits for the GPU in a phase of a share of the steps."""
    order = ("transfer", "forward", "backward", "optimizer", "other")
    lags = {name: lag * (0.8 if name in ("transfer", "forward") else 1.0) for name in order}
    lags[phase] = 0.0
    run = on_gpu(step_s=step_s, lags=lags)
    run[f"phase/{phase}_seconds"] = np.full(600, lag * step_s)
    waits = np.random.default_rng(5).random(600) < agreement
    key = f"lag/{phase}_seconds"
    run[key] = np.where(waits | np.isnan(run[key]), run[key], lag * step_s)
    return run


@pytest.mark.parametrize(
    ("phase", "place", "code"),
    [
        ("other", "in the loop, outside", "total.item() / 50"),
        ("backward", "in the backward pass", 'set_sync_debug_mode("warn")'),
        ("forward", "in the forward pass", 'set_sync_debug_mode("warn")'),
    ],
)
def test_a_wait_in_each_step_is_reported_with_its_place(tmp_path, phase, place, code):
    diagnosis = diagnosed(tmp_path, waiting(phase), machine=idle(0.7))
    [finding] = diagnosis.findings
    assert finding.id == "host.sync"
    assert place in finding.headline
    assert code in "".join(remedy.code or "" for remedy in finding.remedies)
    assert finding.estimate.low == 0
    assert 0.15 < finding.estimate.high <= 0.3
    assert alarming(diagnosis) == ["host.sync"]


@pytest.mark.parametrize(("utilization", "severity"), [(0.96, "notice"), (0.8, "warning")])
def test_a_wait_matters_as_much_as_the_gpu_is_idle(tmp_path, utilization, severity):
    finding = finding_of(diagnosed(tmp_path, waiting("other"), machine=idle(utilization)), "host.sync")
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("run", "machine", "setup"),
    [
        (on_gpu(), readings(), {}),
        (waiting("other"), idle(0.99, 0.95, 650.0), {}),
        (waiting("other", agreement=0.3), idle(0.7), {}),
        (waiting("other", lag=0.05), idle(0.7), {}),
        (waiting("optimizer"), idle(0.7), {"autocast": "cuda float16"}),
        (waiting("transfer"), idle(0.7), {}),
        (catching_up(), idle(0.7), {}),
        (waiting("other"), {}, {}),
    ],
    ids=[
        "no wait", "a wait that costs nothing", "a wait in some steps", "a short wait", "a loss scaler",
        "a copy to the GPU", "a GPU that catches up", "no readings",
    ],
)  # fmt: skip
def test_other_waits_are_no_finding(tmp_path, run, machine, setup):
    diagnosis = diagnosed(tmp_path, run, setup, machine)
    assert finding_of(diagnosis, "host.sync") is None
    assert alarming(diagnosis) == []


def test_a_loss_scaler_is_named_as_the_reason(tmp_path):
    diagnosis = diagnosed(tmp_path, waiting("optimizer"), machine=idle(0.7), autocast="cuda float16")
    assert "loss scaler" in why_not(diagnosis, "host.sync")
