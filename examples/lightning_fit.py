"""A fit with Lightning: everything is recorded, throughput and resources are logged as well.

Needs Lightning: pip install 'stepscope[lightning]'
"""

import lightning
import torch

from stepscope.integrations.lightning import (
    ResourceMonitorCallback,
    StepscopeCallback,
    ThroughputMonitorCallback,
)


class Classifier(lightning.LightningModule):
    """Tells on which side of a plane a point is."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Logs how often the model is right."""
        right = self.layer(batch[0]).argmax(1) == batch[1]
        self.log("val/accuracy", right.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """An optimizer with the rate among the hyper-parameters."""
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])


def main() -> None:
    """Trains for three epochs."""
    lightning.seed_everything(0, verbose=False)
    points = torch.randn(2_000, 8)
    data = torch.utils.data.TensorDataset(points, (points.sum(1) > 0).long())
    train, validation = torch.utils.data.random_split(data, [0.8, 0.2])
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=10,
        callbacks=[
            StepscopeCallback(run="lightning-fit"),
            ThroughputMonitorCallback(log_interval=25),
            ResourceMonitorCallback(log_interval=25),
        ],
    )
    trainer.fit(
        Classifier(),
        torch.utils.data.DataLoader(train, batch_size=32, shuffle=True),
        torch.utils.data.DataLoader(validation, batch_size=200),
    )
    print("Look at it: stepscope show lightning-fit")


if __name__ == "__main__":
    main()
