"""Trains a classifier with the package pytorch_lightning, the older name of Lightning."""

import pytorch_lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


class Classifier(pytorch_lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = classifier()
        self.losses = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self(x), y)
        self.log("train/loss", loss, prog_bar=True)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        x, y = batch
        self.log("val/loss", torch.nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(40 * 256 + 512)
    train = DataLoader(TensorDataset(x[512:], y[512:]), batch_size=256, shuffle=True)
    validation = DataLoader(TensorDataset(x[:512], y[:512]), batch_size=256)
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.lightning import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    module = Classifier()
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        max_epochs=trial.steps // 40,
        logger=False,
        enable_checkpointing=False,
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.fit(module, train, validation)
    trial.write(trainer.global_step, module, module.losses)


if __name__ == "__main__":
    main()
