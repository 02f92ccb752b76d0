"""Trains the same model in Lightning's own loop: unwatched, and recorded by our callback."""

import logging
import warnings
from collections.abc import Generator
from typing import Any

import lightning  # type: ignore[import-not-found, unused-ignore]  # noqa: TID253 - a peer

import stepscope
from benchmarks.step_contenders import Contender, Took, Work, exclude_pause
from benchmarks.step_peers.trainer_thread import TrainerThread


class LightningTrainer(Contender):
    """A Trainer without callbacks and without a logger."""

    name = "lightning"
    package = "lightning"
    base = "lightning"
    logs_loss = False
    """Whether the step hands its loss to `self.log`, which costs more than the monitors do."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")

    def blocks(self, model: Any, optimizer: Any, work: Work) -> Generator[Took, None, None]:
        """Fits the model, on and on in one epoch."""
        trainer = lightning.Trainer(
            accelerator="gpu" if work.device.startswith("cuda") else "cpu",
            devices=1,
            max_epochs=1,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            **self.options(),
        )
        module = Module(model, optimizer, work.forwards, logs_loss=self.logs_loss)
        thread = TrainerThread(work, self.resume)
        return thread.blocks(lambda: trainer.fit(module, _Batches(thread)))

    def options(self) -> dict[str, Any]:
        """Further arguments of the Trainer."""
        return {"logger": False}


class LightningCallback(LightningTrainer):
    """The same with `StepscopeCallback`."""

    name = "lightning_callback"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._monitor = stepscope.TrainingMonitor(run="overhead", directory=folder)
        self._monitor.start_monitoring()

    def options(self) -> dict[str, Any]:
        """The callback, which leaves the monitor open after a fit."""
        from stepscope.integrations.lightning import StepscopeCallback

        return {"logger": False, "callbacks": [StepscopeCallback(self._monitor)]}

    def resume(self, pause: Took) -> None:
        """Our clocks stood still while others trained."""
        exclude_pause(self._monitor, pause)

    def finish(self) -> None:
        """Ends the run."""
        self._monitor.stop_monitoring()


class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]  # Any where it is not installed
    """The step of the plain loop."""

    def __init__(self, model: Any, optimizer: Any, forwards: int, *, logs_loss: bool) -> None:
        super().__init__()
        self._model = model
        self._made_optimizer = optimizer
        self._forwards = forwards
        self._logs_loss = logs_loss

    def training_step(self, batch: Any, index: int) -> Any:
        """The loss, logged in the way Lightning's first example shows, or not."""
        loss = self._model(batch).square().mean()
        for _ in range(self._forwards - 1):
            loss = loss + self._model(batch).square().mean()
        if self._logs_loss:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """That of the plain loop."""
        return self._made_optimizer


class _Batches:
    """Data of a thread, as a loader that Lightning accepts."""

    def __init__(self, thread: TrainerThread) -> None:
        self._thread = thread

    def __iter__(self) -> Any:
        return self._thread.data()
