"""The files that CONTRIBUTING.md shows work as they are: each is one file, and nothing else is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"`src/stepscope/([a-z_/]+\.py)`:.*?```python\n(.*?)```", TEXT, re.DOTALL))

BEGIN = """
import importlib, sys
from pathlib import Path
import stepscope
for folder in ("detectors", "channels", "exporters", "samplers", "devices"):
    importlib.import_module(f"stepscope.{folder}").__path__.append(str(Path(sys.argv[1]) / folder))
"""


@pytest.fixture
def members(tmp_path: Path) -> Path:
    """A folder with the files of the page, which stand beside those of the package."""
    for name, code in FILES.items():
        path = tmp_path / "members" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        if "/" in name.partition("/")[2]:
            (path.parent / "__init__.py").write_text('"""A folder of its own."""\n')
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_sampler_is_one_file(run_script, members: Path) -> None:
    result = run_script(
        BEGIN
        + """
import time
with stepscope.TrainingMonitor({"agent": {"mode": "thread"}}, run="sampled") as monitor:
    monitor.log_training_step(loss=1.0)
    run = stepscope.open_store().run("sampled")
    while "kernel/open_files" not in {series.key for series in run.machine_keys()}:
        time.sleep(0.05)
print(run.series("kernel/open_files").values[0] > 0)
""",
        members,
    )
    assert result.stdout == "True\n", result.stderr


SETTINGS = """
detectors: {conv.flat: {share: 0.01}}
exporters: {row_count: {path: rows.txt}}
samplers: {kernel: {interval_s: 1}}
alerts: {channels: {pager: {program: /bin/true}}}
"""


def test_settings_know_the_files_and_their_options(run_script, members: Path, tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text(SETTINGS)
    (tmp_path / "wrong.yaml").write_text(
        SETTINGS.replace("share", "shared").replace("path", "paths").replace("program", "programme")
    )
    result = run_script(
        BEGIN
        + """
from stepscope.cli.main import main
for name in ("right", "wrong"):
    print(main(["config", "validate", f"{name}.yaml"]), file=sys.stderr)
""",
        members,
    )
    right, wrong = re.findall(r"^\d$", result.stderr, re.MULTILINE)
    assert (right, wrong != "0") == ("0", True), result.stderr + result.stdout
    for option in ("shared", "paths", "programme"):
        assert option in result.stderr + result.stdout


def test_the_pages_on_detectors_and_metrics_ask_for_the_new_file(run_script, members: Path) -> None:
    result = run_script(
        BEGIN
        + """
from tests.detectors import page
from tests.guards import metrics_page
print("conv.flat" in page.drawn(), "kernel/open_files" in metrics_page.drawn())
""",
        members,
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert result.stdout == "True True\n", result.stderr


@pytest.mark.slow
def test_a_gpu_vendor_is_one_folder(run_script, members: Path, tmp_path: Path) -> None:
    for name, busy in (("a", 0.25), ("b", 0.75)):
        path = tmp_path / "example-gpus" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"utilization_ratio": busy, "memory_used_bytes": 1 << 30}))
    result = run_script(
        BEGIN
        + """
from stepscope.cli import main
from stepscope.devices.find_gpus import find_gpus
from stepscope.devices.gpu_driver import visible_gpus
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import Sample

detected = find_gpus()
facts = [gpu.facts for gpu in detected.gpus if gpu.facts.vendor == "Example"]
print("found", [gpu.uuid for gpu in facts], "visible", visible_gpus({}, facts))
samples = [sample for sample in GpuSampler().sample([]) if isinstance(sample, Sample)]
readings = {sample.device: sample.values for sample in samples}
print("sampled", [readings[device]["gpu/utilization_ratio"] for device in ("GPU-a", "GPU-b")])
main.main(["doctor", "--store", sys.argv[2]])
main.main(["watch", "--for", "1.5", "--store", sys.argv[2]])
""",
        members,
        tmp_path / "store",
    )
    assert "found ['GPU-a', 'GPU-b'] visible ('GPU-a', 'GPU-b')" in result.stdout, result.stderr
    assert "sampled [0.25, 0.75]" in result.stdout
    assert "2 × Example One" in result.stdout  # doctor
    assert re.search(r"\b1 +One +75%", result.stdout), result.stdout  # watch
