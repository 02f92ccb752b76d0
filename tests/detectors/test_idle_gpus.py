"""Energy that idle GPUs use: how much, what for, and what it costs."""

import numpy as np
import pytest

from tests.detectors.on_gpu import diagnosed, finding_of, on_gpu, readings, why_not

STEPS, COUNT = 600, 600


def idle(share, power=120.0, begin=0.5):
    """Readings of a GPU that is idle for this share of the time, from a moment on."""
    place = np.linspace(0, 1, COUNT)
    is_idle = (place >= begin) & (place < begin + share)
    return readings(
        utilization_ratio=np.where(is_idle, 0.0, 1.0), power_watts=np.where(is_idle, power, 640.0)
    )


def examined(folder, machine, run=None, facts=None):
    return diagnosed(folder, run or on_gpu(steps=STEPS), machine=machine, facts=facts)


@pytest.mark.parametrize(
    ("share", "severity"), [(0.3, "info"), (0.45, "info"), (0.6, "notice"), (0.9, "notice")]
)
def test_the_energy_of_an_idle_gpu_is_reported_by_its_share(tmp_path, share, severity):
    finding = finding_of(examined(tmp_path, idle(share, begin=0.05)), "energy.waste")
    expected = 120 * share / (120 * share + 640 * (1 - share))
    assert finding.severity == severity
    assert finding.headline.startswith(f"{100 * expected:.2g}"[:1])
    assert finding.share is None


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_a_gpu_that_is_seldom_idle_is_fine(tmp_path, share):
    assert "threshold: 5.0%" in why_not(examined(tmp_path, idle(share)), "energy.waste")


def test_a_gpu_that_works_a_little_all_the_time_is_not_idle(tmp_path):
    machine = readings(utilization_ratio=0.2, power_watts=200.0)
    assert "0.0% of the energy" in why_not(examined(tmp_path, machine), "energy.waste")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("phase/data_seconds", "waiting for data"),
        ("phase/eval_seconds", "evaluation"),
        ("phase/checkpoint_seconds", "checkpoints"),
    ],
)
def test_energy_is_divided_by_what_the_training_did_meanwhile(tmp_path, key, words):
    run = on_gpu(steps=STEPS)
    waits = np.where(np.arange(STEPS) >= STEPS // 2, 0.4, 0.0)
    run[key] = np.nan_to_num(run.get(key, np.zeros(STEPS))) + waits
    run["step_seconds"] = run["step_seconds"] + waits
    finding = finding_of(examined(tmp_path, idle(0.8, begin=0.2), run), "energy.waste")
    assert f"mostly during {words}" in finding.headline
    parts = {evidence.label: evidence.note for evidence in finding.evidence}
    assert 50 < float(parts[words].rstrip("%")) < 95


def test_the_price_of_the_run_is_used(tmp_path):
    facts = {"energy": {"electricity_price_per_kwh": 0.25, "pue": 2.0, "currency": "EUR"}}
    finding = finding_of(examined(tmp_path, idle(0.9, begin=0.1), facts=facts), "energy.waste")
    # 90% of a day at 120 W are 2.6 kWh.
    assert "2.59 kWh (1.29 EUR) a day" in finding.headline
    assert "EUR" not in finding_of(examined(tmp_path, idle(0.9, begin=0.1)), "energy.waste").headline


@pytest.mark.parametrize("missing", ["utilization_ratio", "power_watts"])
def test_gpus_whose_power_or_use_is_not_read_are_left_out(tmp_path, missing):
    machine = {key: value for key, value in idle(0.9).items() if key[0] != f"gpu/{missing}"}
    diagnosis = examined(tmp_path, machine)
    assert "Applies only to runs" in why_not(diagnosis, "energy.waste")
    assert "energy.waste" not in diagnosis.checks.not_run


def test_a_few_readings_are_not_judged(tmp_path):
    machine = readings(utilization_ratio=np.zeros(5), power_watts=np.full(5, 100.0))
    diagnosis = examined(tmp_path, machine)
    assert "energy.waste" in diagnosis.checks.not_run
