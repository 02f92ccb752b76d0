"""The commands of the workflow in examples/gate.yml run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

WORKFLOW = Path(__file__).parents[2] / "examples" / "gate.yml"

TRAINING = """
import random, stepscope
with stepscope.TrainingMonitor() as monitor:
    for step in range(200):
        monitor.log({{"step_seconds": {step_s} * random.uniform(0.95, 1.05), "loss": 1.0}}, step)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("step_s", "code", "result"), [(0.05, 0, "passed"), (0.08, 3, "failed")])
def test_the_workflow_fails_only_for_a_slower_training(
    tmp_path: Path, step_s: float, code: int, result: str
) -> None:
    for version, seconds in (("base", 0.05), ("head", step_s)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "train.py").write_text(TRAINING.format(step_s=seconds))
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["speed"]["steps"]
    commands = {step["name"]: step["run"] for step in steps if "name" in step}
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "STEPSCOPE_DIR": "store"}
    for name, expected in (("Train", 0), ("Compare", code)):
        done = subprocess.run(
            ["bash", "-e", "-c", commands[name]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
    assert done.stdout.startswith(f"{result}: Step time changed by")
