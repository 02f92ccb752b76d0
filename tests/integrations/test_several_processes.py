"""Trainings of several processes: every rank records its steps, the first one what the trainer logs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.reading import Run
from stepscope.views.metrics.series_summaries import SeriesSummaries

pytestmark = pytest.mark.slow

TRAINER = """
import sys
from pathlib import Path
from stepscope.integrations.transformers import StepscopeCallback
from tests.integrations.tiny_trainer import losses_of, tiny_trainer

callbacks = [StepscopeCallback(run="two")] if sys.argv[1] == "recorded" else []
trainer = tiny_trainer(Path(sys.argv[2]), callbacks, max_steps=6, eval_strategy="steps", eval_steps=3)
trainer.train()
if trainer.is_world_process_zero():
    print("losses", losses_of(trainer), "steps", trainer.state.global_step)
"""

LOOP = """
import sys
import torch
from accelerate import Accelerator
from stepscope.integrations.accelerate import StepscopeTracker

tracker = StepscopeTracker(run="two") if sys.argv[1] == "recorded" else None
accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=2, cpu=True)
accelerator.init_trackers("project", config={"lr": 0.1})
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if tracker is not None:
    tracker.watch(model, optimizer)
losses = []
for x in loader:
    with accelerator.accumulate(model):
        loss = model(x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        losses.append(loss.item())
        accelerator.log({"loss": losses[-1]})
if accelerator.is_main_process:
    print("losses", losses)
accelerator.end_training()
"""


@pytest.mark.parametrize("program", [TRAINER, LOOP], ids=["trainer", "accelerate"])
def test_two_processes_record_their_steps_into_one_run(
    program: str, folder: Path, tmp_path: Path, read: Callable[[str], Run]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(program))
    recorded = launched(script, "recorded", folder, tmp_path)
    if program is TRAINER:
        assert recorded == launched(script, "bare", folder, tmp_path)
    run = read("two")
    assert run.status == "finished"
    numbers = list(range(1, 7)) if program is TRAINER else list(range(6))
    for rank in (0, 1):
        assert run.series("step_seconds", rank=rank).steps.tolist() == numbers
    summaries = SeriesSummaries(run.summaries())
    assert summaries.ranks("loss") == [0]
    assert summaries.ranks("ranks/wait_seconds") == [0, 1]
    assert len(run.segments) == 1


def launched(script: Path, kind: str, folder: Path, tmp_path: Path) -> str:
    """What a script prints that torchrun starts twice."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, str(script), kind, str(tmp_path / kind)],
        env={
            **os.environ,
            "STEPSCOPE_DIR": str(folder),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("losses"))
