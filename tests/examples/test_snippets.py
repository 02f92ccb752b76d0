"""The code that the empty page offers for a first run records all it should, in each framework itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.reading import Run

pytestmark = pytest.mark.slow

SNIPPETS = Path(__file__).parents[2] / "ui" / "src" / "pages" / "home" / "snippets.ts"

PLAIN = """
import torch

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""

LIGHTNING = """
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = Module()
"""

HUGGING_FACE = """
import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


dataset = [{"x": torch.randn(4), "labels": number % 2} for number in range(64)]
model = Model()
args = transformers.TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=8, logging_steps=1, use_cpu=True, report_to=[]
)
"""

FAILING = """
def fail(*_):
    raise ValueError("the data are gone")

model.register_forward_hook(fail)
"""


@pytest.fixture
def train(folder: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a snippet after what a reader of the page has already."""

    def run(name: str, before: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", before + snippet(name)],
            cwd=tmp_path,
            env={
                **os.environ,
                "STEPSCOPE_DIR": str(folder),
                "OMP_NUM_THREADS": "1",
                "PL_TRAINER_MAX_EPOCHS": "2",
                "PL_TRAINER_ACCELERATOR": "cpu",
                "STEPSCOPE_RECORDER__MAX_OVERHEAD": "1",  # phases of every step, however slow this machine is
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    return run


def snippet(name: str) -> str:
    """The code of the page by the name it has there."""
    snippets = dict(re.findall(r'name: "([^"]+)",\s+code: `([^`]+)`', SNIPPETS.read_text("utf-8")))
    return snippets[name]


def assert_all_recorded(run: Run, steps: int, first_step: int = 0) -> None:
    assert run.status == "finished"
    losses = run.series("loss")
    assert len(losses) == steps
    assert all(losses.values > 0)
    for key in ("step_seconds", "phase/data_seconds", "phase/forward_seconds", "phase/optimizer_seconds"):
        timed = run.series(key)
        assert len(timed) == steps
        assert sum(timed.values) > 0
        assert timed.steps.tolist() == list(range(first_step, first_step + steps))


def test_the_plain_loop_records_every_step(train: Callable, read: Callable[[str], Run]) -> None:
    pytest.importorskip("torch")
    done = train("Plain loop", PLAIN)
    assert done.returncode == 0, done.stderr
    assert_all_recorded(read("mnist"), 8)


def test_lightning_records_every_step_and_epoch(train: Callable, read: Callable[[str], Run]) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    done = train("Lightning", LIGHTNING)
    assert done.returncode == 0, done.stderr
    run = read("mnist")
    assert_all_recorded(run, 16)
    assert run.series("epoch").values.tolist() == [0] * 8 + [1] * 8


def test_hugging_face_records_every_step_and_all_it_logs(train: Callable, read: Callable[[str], Run]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = train("Hugging Face", HUGGING_FACE)
    assert done.returncode == 0, done.stderr
    run = read("mnist")
    assert_all_recorded(run, 16, first_step=1)
    assert run.series("epoch").values[-1] == 2
    assert len(run.series("learning_rate")) == 16


@pytest.mark.parametrize(
    ("name", "before", "framework"),
    [("Lightning", LIGHTNING, "lightning"), ("Hugging Face", HUGGING_FACE, "transformers")],
)
def test_a_training_that_fails_is_a_failed_run(
    name: str, before: str, framework: str, train: Callable, read: Callable[[str], Run]
) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    assert train(name, before + FAILING).returncode != 0
    run = read("mnist")
    assert run.status == "failed"
    assert "the data are gone" in run.reason
