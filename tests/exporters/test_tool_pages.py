"""The pages on TensorBoard, MLflow and W&B: their set-ups run, and every option is on them."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import plugins
from stepscope.cli.main import main
from stepscope.exporters.base import Feed

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = ("pip ", "tensorboard ", "mlflow ui", "wandb sync")
"""Commands of the pages that install, serve or upload."""
TRACES = {"tensorboard": "*/*/*/events.out.tfevents.*", "mlflow": "mlflow.db", "wandb": "**/*.wandb"}
STARTS = {"tensorboard": 3, "mlflow": 1, "wandb": 2}
"""How many files the set-up of a page leaves."""


@pytest.mark.parametrize("name", TRACES)
def test_every_option_of_the_exporter_is_on_its_page(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    options = inspect.signature(plugins.load("exporters", name, Feed)).parameters
    missing = [option for option in options if f"| `{option}` |" not in page]
    assert [option for option in missing if not option.startswith("_")] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_the_set_up_of_the_page_works(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], until, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepscope.agent.process.election import agent_pid

    monkeypatch.setenv("STEPSCOPE_AGENT__LINGER_S", "0")
    page = (DOCS / f"{name}.md").read_text()
    (settings,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "stepscope.yaml").write_text(settings)
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        (tmp_path / "train.py").write_text(code)
        subprocess.run([sys.executable, "train.py"], check=True, env=os.environ)
        until(lambda: agent_pid(tmp_path / ".stepscope") is None)
    for command in re.findall(r"^\$ (.+)$", page, re.MULTILINE):
        if command.startswith("stepscope "):
            assert main(command.split()[1:]) == 0, capfd.readouterr().err
        else:
            assert command == "python train.py" or command.startswith(OTHERS)
    assert len(list(tmp_path.glob(TRACES[name]))) == STARTS[name]
