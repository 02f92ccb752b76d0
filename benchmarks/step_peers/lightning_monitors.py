"""Watches with Lightning's own monitors and its CSV logger."""

from typing import Any

from lightning.pytorch.callbacks import (  # type: ignore[import-not-found, unused-ignore]  # noqa: TID253 - a peer
    DeviceStatsMonitor,
    LearningRateMonitor,
    ThroughputMonitor,
)
from lightning.pytorch.loggers import (  # type: ignore[import-not-found, unused-ignore]  # noqa: TID253 - a peer
    CSVLogger,
)

from benchmarks.step_peers.lightning_trainer import LightningTrainer


class LightningMonitors(LightningTrainer):
    """Learning rate, device and throughput at the pace a Trainer has by default."""

    name = "lightning_monitors"
    every_steps = 50

    def options(self) -> dict[str, Any]:
        """The monitors, and the logger without which they refuse to work."""
        return {
            "logger": CSVLogger(self.folder, name=self.name),
            "log_every_n_steps": self.every_steps,
            "callbacks": [
                LearningRateMonitor(),
                DeviceStatsMonitor(cpu_stats=True),
                ThroughputMonitor(batch_size_fn=len),
            ],
        }


class LightningEveryStep(LightningMonitors):
    """The same at every step."""

    name = "lightning_every_step"
    every_steps = 1


class LightningWithLoss(LightningMonitors):
    """The same at the default pace, and the loss of every step."""

    name = "lightning_with_loss"
    logs_loss = True
