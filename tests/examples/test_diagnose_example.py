"""The example finds both of its planted problems."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "diagnose.py"


@pytest.mark.slow
def test_diagnose_prints_the_slow_loader_and_the_spike(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "STEPSCOPE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any(line.startswith("warning: ") and "waiting for data" in line for line in lines)
    assert any("Loss jumped from 0." in line and "at step 12" in line for line in lines)
    assert lines[-1].endswith("stepscope diagnose diagnose")
