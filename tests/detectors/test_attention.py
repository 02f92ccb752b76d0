"""Attention that is computed without a fused kernel on a GPU, and attention that is fine."""

import pytest

from tests.detectors.on_gpu import alarming, diagnosed, finding_of, on_gpu, readings, why_not
from tests.detectors.simulated import diagnose

CALLS = {"steps": 3, "fused": 0, "math": 0, "by_hand": 0, "length": 1024}
NAME = "cfg.attention_fallback"


def examined(folder, calls=None, run=None, machine=None, **setup):
    events = (("attention", {**CALLS, **calls}),) if calls is not None else ()
    return diagnosed(folder, run or on_gpu(), setup, machine, events=events)


@pytest.mark.parametrize("length", [512, 4096])
def test_attention_by_hand_is_mentioned(tmp_path, length):
    diagnosis = examined(tmp_path, {"by_hand": 36, "length": length})
    finding = finding_of(diagnosis, NAME)
    assert finding.severity == "notice"
    assert "by hand" in finding.headline
    assert "scaled_dot_product_attention" in finding.remedies[0].code
    assert alarming(diagnosis) == []


def test_kernels_that_are_switched_off_are_named(tmp_path):
    switches = dict.fromkeys(("flash_attention", "memory_efficient_attention", "cudnn_attention"), False)
    finding = finding_of(examined(tmp_path, {"math": 36, "dtype": "bfloat16"}, **switches), NAME)
    assert "All fused kernels are switched off" in finding.detail
    assert "enable_flash_sdp(True)" in finding.remedies[0].code


def test_inputs_that_fused_kernels_refuse_are_named(tmp_path):
    finding = finding_of(examined(tmp_path, {"math": 12, "dtype": "float32", "has_mask": True}), NAME)
    assert "inputs are float32 and a mask is passed" in finding.detail
    assert all("enable_" not in remedy.code for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ({"fused": 36}, "No attention without"),
        ({}, "No attention without"),
        ({"by_hand": 36, "length": 511}, "threshold: 512"),
        ({"math": 36, "length": 128}, "threshold: 512"),
    ],
)
def test_fused_and_short_attention_are_fine(tmp_path, calls, reason):
    diagnosis = examined(tmp_path, calls)
    assert reason in why_not(diagnosis, NAME)
    assert NAME not in diagnosis.checks.not_run


def test_a_gpu_that_waits_does_not_need_faster_attention(tmp_path):
    run = on_gpu(lags={})
    machine = readings(utilization_ratio=0.4, sm_active_ratio=0.2, power_watts=250.0)
    assert "does not limit" in why_not(examined(tmp_path, {"by_hand": 36}, run, machine), NAME)


@pytest.mark.parametrize("event", [(), (("attention", {"unknown": "compiled code chooses its kernels"}),)])
def test_calls_that_were_not_observed_are_not_judged(tmp_path, event):
    diagnosis = diagnose(tmp_path, on_gpu(), events=event, machine=readings())
    assert why_not(diagnosis, NAME).startswith("Cannot tell how attention is computed: ")
    assert NAME in diagnosis.checks.not_run
