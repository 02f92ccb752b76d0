"""Trains the same model in Lightning's own loop, unwatched: what its monitors are compared with."""

import copy
import logging
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import lightning  # type: ignore[import-not-found, unused-ignore]  # noqa: TID253 - a peer

from benchmarks.step_contenders import Contender, Took, Work


class LightningTrainer(Contender):
    """One Trainer that goes on block by block, without callbacks and without a logger."""

    name = "lightning"
    package = "lightning"
    base = "lightning"
    logs_loss = False
    """Whether the step hands its loss to `self.log`, which costs more than the monitors do."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._module: Any = None
        self._trainer: Any = None
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")

    def begin(self, model: Any, optimizer: Any) -> None:
        """Copies the model: after each fit Lightning moves its own to the CPU."""
        if self._module is None:
            self._module = Module(
                copy.deepcopy(model), type(optimizer), optimizer.defaults, logs_loss=self.logs_loss
            )

    def blocks(self, model: Any, optimizer: Any, work: Work) -> Generator[Took, None, None]:
        """Fits one epoch more for each block; the step of an added batch ends the time of the last."""
        if self._trainer is None:
            self._trainer = lightning.Trainer(
                accelerator="gpu" if work.device.startswith("cuda") else "cpu",
                devices=1,
                max_epochs=0,
                enable_progress_bar=False,
                enable_checkpointing=False,
                enable_model_summary=False,
                **self.options(),
            )
        data = [work.data[step % len(work.data)] for step in range(work.steps + 1)]
        while True:
            batches = Clocked(data)
            self._trainer.fit_loop.max_epochs += 1
            self._trainer.fit(self._module, batches)
            yield batches.at[-1] - batches.at[0]

    def options(self) -> dict[str, Any]:
        """What the Trainer is told beyond the loop."""
        return {"logger": False}


class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
    """The step of the plain loop."""

    def __init__(self, model: Any, optimizer: Any, defaults: dict[str, Any], *, logs_loss: bool) -> None:
        super().__init__()
        self._model = model
        self._optimizer = optimizer
        self._defaults = defaults
        self._logs_loss = logs_loss

    def training_step(self, batch: Any, index: int) -> Any:
        """The loss, logged in the way Lightning's first example shows, or not."""
        loss = self._model(batch).square().mean()
        if self._logs_loss:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """An optimizer like that of the plain loop, for the copy."""
        return self._optimizer(self._model.parameters(), **self._defaults)


class Clocked:
    """Batches that note when each was asked for."""

    def __init__(self, data: list[Any]) -> None:
        self._data = data
        self.at: list[Took] = []

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._data:
            self.at.append(Took.now())
            yield batch
