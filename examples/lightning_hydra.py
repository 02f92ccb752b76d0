"""A Hydra application that selects its callbacks from the groups that stepscope ships.

    python lightning_hydra.py 'callbacks=[stepscope,profiler]' callbacks.profiler.enabled=true

Needs both extras: pip install 'stepscope[lightning,hydra]'
"""

from dataclasses import dataclass, field
from typing import Any

import hydra
import lightning
import torch
from hydra.core.config_store import ConfigStore


@dataclass
class Config:
    """What would be `conf/config.yaml` in a larger application."""

    defaults: list[Any] = field(
        default_factory=lambda: [{"callbacks": ["stepscope", "throughput_monitor"]}, "_self_"]
    )
    callbacks: dict[str, Any] = field(default_factory=dict)
    epochs: int = 2


class Regression(lightning.LightningModule):
    """Learns the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[0].sum(1, keepdim=True))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """A plain optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


@hydra.main(version_base=None, config_name="application")
def main(config: Any) -> None:
    """Trains with the selected callbacks."""
    callbacks = [hydra.utils.instantiate(node) for node in config.callbacks.values()]
    trainer = lightning.Trainer(
        max_epochs=config.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    data = torch.utils.data.TensorDataset(torch.randn(320, 4))
    trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=8))
    print(f"callbacks: {', '.join(config.callbacks)}")


if __name__ == "__main__":
    ConfigStore.instance().store(name="application", node=Config)
    main()
