"""`stepscope gate`: passes, fails or cannot tell whether a run is slower than its baselines."""

import json

import numpy as np
import pytest

from stepscope import TrainingMonitor
from stepscope.cli.main import main


def record(folder, name, step_s, count=300, **figures):
    jitter = np.random.default_rng(len(name)).normal(1, 0.03, count).tolist()
    with TrainingMonitor(run=name, directory=folder) as monitor:
        for step, factor in enumerate(jitter):
            monitor.log({"step_seconds": step_s * factor, "loss": 1.0, **figures}, step)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "store"
    for name, step_s in (("main", 0.1), ("same", 0.1), ("slow", 0.13), ("border", 0.105)):
        record(folder, name, step_s)
    record(folder, "short", 0.1, count=12)
    record(folder, "small batch", 0.1, **{"batch/samples": 32.0})
    record(folder, "large batch", 0.2, **{"batch/samples": 64.0})
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))


def gated(capsys, *arguments):
    code = main(["gate", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code", "result"), [("same", 0, "passed"), ("slow", 3, "failed")])
def test_a_run_passes_or_fails_by_its_step_time(capsys, name, code, result):
    assert main(["gate", name, "--baseline", "main"]) == code
    page = capsys.readouterr().out
    assert page.startswith(f"{result}: Step time changed by ")
    assert "within the limit of 5.0%" in page if code == 0 else "more than the limit of 5.0%" in page
    assert "  baseline  main" in page


def test_the_limit_is_a_share(capsys):
    assert main(["gate", "slow", "--baseline", "main", "--max-step-time-regression", "40%"]) == 0
    for wrong in ("5", "five%", "-5%", "nan%"):
        with pytest.raises(SystemExit) as end:
            main(["gate", "slow", "--baseline", "main", f"--max-step-time-regression={wrong}"])
        assert end.value.code == 2
        assert f"{wrong!r} is not a share; write it as a percentage, such as 5%." in capsys.readouterr().err


def test_a_change_about_the_limit_is_inconclusive_and_fails_only_if_strict(capsys):
    code, result = gated(capsys, "border", "--baseline", "main")
    assert (code, result["result"]) == (0, "inconclusive")
    assert result["low_ratio"] < 0.05 < result["high_ratio"]
    assert gated(capsys, "border", "--baseline", "main", "--strict")[0] == 3


def test_too_few_steps_are_inconclusive_with_a_reason(capsys):
    code, result = gated(capsys, "short", "--baseline", "main")
    assert (code, result["result"], result["change_ratio"]) == (0, "inconclusive", None)
    assert "'short' has 1" in result["sentence"]
    assert "40 are needed" in result["sentence"]


def test_a_larger_batch_may_take_longer(capsys):
    code, result = gated(capsys, "large batch", "--baseline", "small batch")
    assert (code, result["figure"]) == (0, "time per sample")
    assert result["notes"][0] == "Batch sizes differ (64, 32): step times are divided by them."
    assert gated(capsys, "large batch", "--baseline", "main")[1]["figure"] == "step time"


def test_several_baselines_are_compared_together(capsys):
    code, result = gated(capsys, "slow", "--baseline", "main", "--baseline", "same", "--baseline", "border")
    assert [side["name"] for side in result["baselines"]] == ["main", "same", "border"]
    assert code == 3
    assert result["notes"] == []


def test_wrong_runs_are_named(capsys):
    assert main(["gate", "slow", "--baseline", "mian"]) == 1
    assert "There is no run 'mian'" in capsys.readouterr().err
    assert main(["gate", "slow", "--baseline", "slow"]) == 1
    assert "'slow' is its own baseline" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["gate", "slow"])
    assert end.value.code == 2
