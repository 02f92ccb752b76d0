"""The files that CONTRIBUTING.md shows work as they are: each is one file, and nothing else is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"`src/stepscope/([a-z_/]+\.py)`:.*?```python\n(.*?)```", TEXT, re.DOTALL))

BEGIN = """
import importlib, sys
from pathlib import Path
import stepscope
for folder in ("detectors", "channels", "exporters"):
    importlib.import_module(f"stepscope.{folder}").__path__.append(str(Path(sys.argv[1]) / folder))
"""


@pytest.fixture
def members(tmp_path: Path) -> Path:
    """A folder with the files of the page, which stand beside those of the package."""
    for name, code in FILES.items():
        path = tmp_path / "members" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return tmp_path / "members"


def test_a_detector_is_one_file(run_script, members: Path) -> None:
    result = run_script(
        BEGIN
        + """
with stepscope.TrainingMonitor({"agent": {"mode": "thread"}}, run="flat") as monitor:
    for step in range(200):
        monitor.log_training_step(loss=2.0, step=step)
print([finding["headline"] for finding in stepscope.open_store().run("flat").findings()])
""",
        members,
    )
    assert "The loss changed by 0.00% in " in result.stdout, result.stderr


def test_a_channel_is_one_file(run_script, members: Path, tmp_path: Path) -> None:
    program = tmp_path / "pager"
    program.write_text(f"#!/bin/sh\ncat >> {tmp_path}/received\n")
    program.chmod(0o755)
    result = run_script(
        BEGIN
        + """
import time
channels = {"pager": {"program": sys.argv[2]}}
settings = {"agent": {"mode": "thread"}, "alerts": {"channels": channels}}
with stepscope.TrainingMonitor(settings, run="bad") as monitor:
    for step in range(200):
        monitor.log({"loss": float("nan")}, step=step)
    deadline = time.monotonic() + 30
    while not Path("received").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
""",
        members,
        program,
    )
    assert "nonfinite_loss" in (tmp_path / "received").read_text(), result.stderr


def test_an_exporter_is_one_file(run_script, members: Path, tmp_path: Path) -> None:
    result = run_script(
        BEGIN
        + """
settings = {"agent": {"mode": "thread"}, "exporters": {"row_count": {"path": "rows.txt"}}}
with stepscope.TrainingMonitor(settings, run="counted") as monitor:
    for step in range(200):
        monitor.log({"loss": 1.0}, step=step)
""",
        members,
    )
    runs = dict(line.split() for line in (tmp_path / "rows.txt").read_text().splitlines())
    assert [int(rows) >= 200 for run, rows in runs.items() if run.startswith("counted")] == [True], (
        result.stderr
    )
