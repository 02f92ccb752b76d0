"""No recorded numbers make a detector fail, and findings can be written as JSON."""

import json

import numpy as np
import pytest

from tests.detectors.simulated import diagnose, going_well

ODD = np.array([0.0, -1.0, 1e-320, 1e308, -1e308, np.inf, -np.inf, np.nan, 1e-9, 3.5])


def odd_values(chance, column):
    """The same column with some, or all, of its values odd."""
    kind = chance.integers(6)
    if kind == 0:
        return np.full(len(column), ODD[chance.integers(len(ODD))])
    if kind == 1:
        return chance.choice(ODD, len(column))
    if kind == 2:
        return column * 10.0 ** chance.uniform(-300, 300)
    if kind == 3:
        return np.where(chance.random(len(column)) < 0.1, chance.choice(ODD, len(column)), column)
    if kind == 4:
        return np.where(chance.random(len(column)) < 0.9, np.nan, column)
    return column


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_unusual_numbers_do_not_make_a_detector_fail(tmp_path, seed):
    chance = np.random.default_rng(seed)
    run = going_well(seed, int(chance.choice([1, 2, 7, 30, 220, 700])))
    run["device/data_seconds"], run["device/step_seconds"] = run["phase/data_seconds"], run["step_seconds"]
    run["learning_rate"] = run["batch/tokens"] = run["loader/ready_batches"] = run["host/cpu_ratio"] = run[
        "loss"
    ]
    with np.errstate(all="ignore"):
        odd = {key: odd_values(chance, column) for key, column in run.items() if chance.random() < 0.9}
        odd["loss"] = odd_values(chance, run["loss"])
        odd["step_seconds"] = np.abs(np.nan_to_num(odd.get("step_seconds", run["step_seconds"]), posinf=1.0))
        odd["step_seconds"] = np.minimum(odd["step_seconds"], 1e3)
    diagnosis = diagnose(tmp_path, odd, events=(("loader", {"num_workers": 2, "dataset": "d"}),))
    assert not [check for check in diagnosis.considered if check.why_not.startswith("The detector failed")]
    json.dumps([finding.as_dict() for finding in diagnosis.findings], allow_nan=False)
    json.dumps(diagnosis.verdict.as_dict(), allow_nan=False)
