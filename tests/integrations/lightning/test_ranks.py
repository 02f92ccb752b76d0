"""Trainings with several processes, started as Lightning starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope

pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = pytest.mark.slow

SCRIPT = """
import sys

import torch
import {package} as pl
from stepscope.integrations.lightning import StepscopeCallback


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = self.layer(batch).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    strategy, folder = sys.argv[1:]
    pl.seed_everything(0)
    loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        log_every_n_steps=1,
        callbacks=[StepscopeCallback(run="ranks", directory=folder)],
    )
    trainer.fit(Module(), loader)
"""


@pytest.mark.parametrize(
    ("strategy", "package"), [("ddp", "lightning.pytorch"), ("ddp_spawn", "pytorch_lightning")]
)
def test_each_rank_records_its_own_steps_into_one_run(
    strategy: str, package: str, tmp_path: Path, folder: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(package=package))
    done = subprocess.run(
        [sys.executable, str(script), strategy, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    (run,) = stepscope.open_store(folder).runs()
    assert (run.name, run.status) == ("ranks", "finished")
    (segment,) = run.segments
    assert sorted(process.rank for process in segment.processes if process.role == "rank") == [0, 1]
    for rank in (0, 1):
        for key in ("loss", "step_seconds"):
            assert run.series(key, rank=rank).steps.tolist() == list(range(8)), (key, rank)
    assert run.series("train/loss", rank=0).steps.tolist() == list(range(8))
    assert "stepscope" not in done.stderr
