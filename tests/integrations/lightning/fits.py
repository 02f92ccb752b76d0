"""Small modules and trainers of either Lightning package."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lightning", reason="lightning is not installed")

QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
}


def package(name: str = "lightning.pytorch") -> Any:
    loaded = importlib.import_module(name)
    for logger in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    return loaded


def loader(samples: int = 32, batch_size: int = 4) -> Any:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 4, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=batch_size)


def module(pl: Any = None, **methods: Any) -> Any:
    """A module with a linear layer; `methods` replace or add some of its methods."""
    pl = pl or package()

    class Regression(pl.LightningModule):
        def __init__(self, lr: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(4, 1)
            self.losses: list[float] = []

        def loss_of(self, batch):
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def training_step(self, batch, _):
            loss = self.loss_of(batch)
            self.losses.append(float(loss.detach()))
            self.log("train/loss", loss, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch, _):
            self.log("val/loss", self.loss_of(batch))

        def test_step(self, batch, index):
            self.log("test/loss", self.loss_of(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    for name, method in methods.items():
        setattr(Regression, name, method)
    return Regression()


def trainer(*callbacks: Any, pl: Any = None, **options: Any) -> Any:
    return (pl or package()).Trainer(**{**QUIET, "max_epochs": 2, **options}, callbacks=list(callbacks))


def weights_of(model: Any) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]
