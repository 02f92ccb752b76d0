"""Trainers of Lightning and Transformers on a GPU, recorded by their callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from stepscope.steps import device_clock

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Lightning of one version warns of PyTorch of another
]

STEPS = 60
PHASES = ("forward", "backward", "optimizer")


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as possible are timed on the device, whatever it costs."""
    monkeypatch.setenv("STEPSCOPE_RECORDER__MAX_OVERHEAD", "1")
    monkeypatch.setattr(device_clock, "SHARE", 1.0)


def layers() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8)))


def rows() -> list[torch.Tensor]:
    return list(torch.randn(STEPS * 64, 1024, generator=torch.Generator().manual_seed(1)))


def assert_device_phases(folder: Path, name: str, losses: list[float], first: int = 0) -> None:
    run = stepscope.open_store(folder).run(name)
    assert run.series("step_seconds").steps.tolist() == list(range(first, first + STEPS))
    assert run.series("loss").values.tolist() == losses
    whole = run.series("device/step_seconds")
    assert len(whole) > 5
    for phase in PHASES:
        part = run.series(f"device/{phase}_seconds").values
        assert 0 < sorted(part)[len(part) // 2] < sorted(whole.values)[len(whole) // 2]


def test_a_fit_of_lightning_has_phases_on_the_clock_of_the_gpu(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from stepscope.integrations.lightning import StepscopeCallback

    losses = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers()

        def training_step(self, batch, _):
            loss = self.layers(batch).square().mean()
            losses.append(loss.detach())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, default_root_dir=tmp_path,
        callbacks=[StepscopeCallback(run="fit", directory=tmp_path / "s")],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(rows(), batch_size=64))
    assert_device_phases(tmp_path / "s", "fit", [loss.item() for loss in losses])


def test_a_training_of_transformers_has_phases_on_the_clock_of_the_gpu(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from stepscope.integrations.transformers import StepscopeCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers()

        def forward(self, x):
            return {"loss": self.layers(x).square().mean()}

    options = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=64, num_train_epochs=1, logging_steps=1,
        save_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    callback = StepscopeCallback(run="trainer", directory=tmp_path / "s")
    data = [{"x": row} for row in rows()]
    trainer = transformers.Trainer(model=Model(), args=options, train_dataset=data, callbacks=[callback])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == STEPS
    assert_device_phases(tmp_path / "s", "trainer", losses, first=1)
