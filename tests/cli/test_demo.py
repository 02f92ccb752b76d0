"""`stepscope demo`: trains for real, and prints where it is recorded and a summary."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.launcher.demo_training import SLOW_S

if TYPE_CHECKING:
    from pathlib import Path

    from stepscope.reading import Run

WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; from stepscope.cli.main import main; sys.exit(main())"
)
GAPS = {"gap/startup_seconds", "gap/epoch_seconds"}
KEYS = {"loss", "accuracy", "learning_rate", "samples_per_second", "epoch", "step_seconds"}
CHECKPOINT = "phase/checkpoint_seconds"
OVERHEAD_RATIO = "stepscope/overhead_ratio"
PHASES = {f"phase/{name}_seconds" for name in ("data", "forward", "backward", "optimizer")}


def command(*words: str, torch: bool = False) -> list[str]:
    program = ["-m", "stepscope"] if torch else ["-c", WITHOUT_TORCH]
    return [sys.executable, *program, "demo", *words]


def demo(*words: str, torch: bool = False) -> subprocess.CompletedProcess[str]:
    no_input = subprocess.DEVNULL
    words = tuple(command(*words, torch=torch))
    return subprocess.run(words, stdin=no_input, capture_output=True, text=True, check=False, timeout=120)


def said(output: str) -> dict[str, str]:
    """The lines of the summary by their first word."""
    return {line.split()[0]: line.partition(" ")[2].strip() for line in output.splitlines() if line[0] != " "}


def the_run(folder: Path) -> Run:
    (run,) = stepscope.open_store(folder).runs()
    return run


@pytest.mark.slow
def test_a_small_model_is_trained_and_the_summary_is_what_the_store_has(tmp_path: Path) -> None:
    done = demo("--steps", "300", "--exit", "--store", "here")
    assert done.returncode == 0, done.stderr
    assert "numpy" in done.stderr
    assert "\r" not in done.stderr
    run = the_run(tmp_path / "here")
    summary = said(done.stdout)
    assert summary["run"] == run.name
    assert summary["folder"] == str(tmp_path / "here")
    assert summary["status"] == run.status == "finished"
    assert summary["steps"].startswith("300 in ")
    assert summary["next"] == f"stepscope show {run.name} --store here"
    assert set(summary["time"].replace(",", "").split()[::2]) == {
        "data",
        "forward",
        "backward",
        "optimizer",
        "checkpoint",
        "other",
    }
    loss = run.series("loss")
    assert loss.steps.tolist() == list(range(300))
    assert loss.values[-20:].mean() < 0.3 * loss.values[:20].mean()
    assert {series.key for series in run.keys()} - {OVERHEAD_RATIO} == KEYS | PHASES | {CHECKPOINT} | GAPS
    assert run.series("learning_rate").values.argmax() == 15
    assert [event.step for event in run.events("epoch")] == [99, 199, 299]


@pytest.mark.slow
def test_its_loader_is_slow_until_half_way_and_checkpoints_are_written(tmp_path: Path) -> None:
    done = demo("--steps", "80", "--exit")
    assert done.returncode == 0, done.stderr
    run = the_run(tmp_path / ".stepscope")
    waited = run.series("phase/data_seconds").values
    assert waited[:40].min() >= SLOW_S
    assert np.median(waited[41:]) < SLOW_S / 2
    assert [event.step for event in run.events("loader_fixed")] == [40]
    assert [event.step for event in run.events("checkpoint")] == [19, 39, 59, 79]
    assert (tmp_path / ".stepscope" / "demo_checkpoint").stat().st_size > 10_000
    assert run.events("total_steps")[0].fields["value"] == 80


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_trains_the_same_model_where_it_is_installed(tmp_path: Path) -> None:
    done = demo("--steps", "120", "--exit", torch=True)
    assert done.returncode == 0, done.stderr
    assert "with torch" in done.stderr
    run = the_run(tmp_path / ".stepscope")
    assert {series.key for series in run.keys()} - {OVERHEAD_RATIO} == KEYS | PHASES | {CHECKPOINT} | GAPS
    assert run.series("loss").values[-1] < run.series("loss").values[0]


@pytest.mark.slow
def test_a_simulated_run_is_invented_and_the_same_each_time(tmp_path: Path) -> None:
    for place in ("a", "b"):
        done = demo("--simulate", "--simulate_steps", "150", "--store", place)
        assert done.returncode == 0, done.stderr
        assert said(done.stdout)["steps"].startswith("150 in ")
    first, second = the_run(tmp_path / "a"), the_run(tmp_path / "b")
    assert first.series("loss").values.tolist() == second.series("loss").values.tolist()
    assert {series.key for series in first.keys()} == KEYS | PHASES


@pytest.mark.slow
def test_the_list_of_runs_has_it_as_finished(tmp_path: Path) -> None:
    demo("--simulate_steps", "10")
    listed = subprocess.run(
        [sys.executable, "-m", "stepscope", "runs", "--json"], capture_output=True, text=True, check=True
    )
    (run,) = json.loads(listed.stdout)
    assert run["status"] == "finished"
    assert run["name"].startswith("demo-")


@pytest.mark.slow
def test_a_run_named_by_the_environment_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_RUN", "mine")
    demo("--simulate_steps", "10")
    assert the_run(tmp_path / ".stepscope").name == "mine"


@pytest.mark.slow
def test_an_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("--steps", "1000000", "--exit"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "numpy" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert said(out)["status"] == "failed, interrupted by SIGINT"
    assert the_run(tmp_path / ".stepscope").status == "failed"


@pytest.mark.parametrize("steps", ["0", "-3", "many", "1.5"])
def test_a_wrong_number_of_steps_is_a_misuse(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["demo", "--steps", steps])
    assert left.value.code == 2
    assert "whole number of steps" in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_terminal_it_shows_progress_and_waits_for_enter() -> None:
    person, far_end = pty.openpty()
    process = subprocess.Popen(
        command("--simulate_steps", "50"), stdin=far_end, stdout=far_end, stderr=far_end
    )
    os.close(far_end)
    shown = b""
    while b"Press Enter" not in shown:
        shown += os.read(person, 4096)
    assert process.poll() is None
    os.write(person, b"\n")
    assert process.wait(timeout=120) == 0
    os.close(person)
    assert b"step 50/50" in shown
    assert shown.count(b"\rstep") + shown.count(b"\x1b[Kstep") < 10


@pytest.mark.slow
def test_where_nothing_can_be_written_it_says_so_and_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo("--simulate_steps", "10", "--store", "file/store")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
