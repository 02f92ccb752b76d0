"""Watches with wandb, offline: hooks on the gradients, the loss and the learning rate of every step."""

from typing import Any

import wandb

from benchmarks.step_contenders import Contender


class WandbWatch(Contender):
    """`wandb.watch` with its defaults and one `wandb.log` a step."""

    name = "wandb_watch"
    package = "wandb"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        wandb.init(project="overhead", mode="offline", dir=folder, settings=wandb.Settings(silent=True))
        self.log = self._log

    def begin(self, model: Any, optimizer: Any) -> None:
        """Puts the hooks on."""
        self._model = model
        self._group = optimizer.param_groups[0]
        wandb.watch(model, log="gradients")

    def end(self) -> None:
        """Takes the hooks off."""
        wandb.unwatch(self._model)

    def finish(self) -> None:
        """Waits until the run is written."""
        wandb.finish()

    def _log(self, loss: Any) -> None:
        wandb.log({"loss": loss, "learning_rate": self._group["lr"]})
