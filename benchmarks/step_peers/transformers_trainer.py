"""Trains the same model in the loop of Transformers: unwatched, and recorded by our callback."""

from collections.abc import Generator, Iterator
from typing import Any

import torch  # noqa: TID253 - what is watched
import transformers  # noqa: TID253 - a peer
from torch import nn  # noqa: TID253 - what is watched

import stepscope
from benchmarks.step_contenders import Contender, Took, Work, exclude_pause
from benchmarks.step_peers.trainer_thread import TrainerThread

STEPS = 10**9


class TransformersTrainer(Contender):
    """A Trainer that logs and saves nothing."""

    name = "transformers"
    package = "transformers"
    base = "transformers"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        transformers.logging.set_verbosity_error()

    def blocks(self, model: Any, optimizer: Any, work: Work) -> Generator[Took, None, None]:
        """Trains the model, on and on in one epoch."""
        thread = TrainerThread(work, self.resume)
        options = transformers.TrainingArguments(
            output_dir=self.folder,
            max_steps=STEPS,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=not work.device.startswith("cuda"),
        )
        trainer = _Trainer(
            model=Model(model, work.forwards),
            args=options,
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
            callbacks=self.callbacks(),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.batches = _Batches(thread)
        return thread.blocks(trainer.train)

    def callbacks(self) -> list[Any]:
        """Those that the Trainer calls beside its own."""
        return []


class TransformersCallback(TransformersTrainer):
    """The same with `StepscopeCallback`."""

    name = "transformers_callback"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._monitor = stepscope.TrainingMonitor(run="overhead", directory=folder)
        self._monitor.start_monitoring()

    def callbacks(self) -> list[Any]:
        """Ours, which leaves the monitor open after a training."""
        from stepscope.integrations.transformers import StepscopeCallback

        return [StepscopeCallback(self._monitor)]

    def resume(self, pause: Took) -> None:
        """Our clocks stood still while others trained."""
        exclude_pause(self._monitor, pause)

    def finish(self) -> None:
        """Ends the run."""
        self._monitor.stop_monitoring()


class Model(nn.Module):
    """The step of the plain loop, as a model that returns its loss."""

    def __init__(self, model: Any, forwards: int) -> None:
        super().__init__()
        self._model = model
        self._forwards = forwards

    def forward(self, x: Any) -> dict[str, Any]:
        """The loss of a batch."""
        loss = self._model(x).square().mean()
        for _ in range(self._forwards - 1):
            loss = loss + self._model(x).square().mean()
        return {"loss": loss}


class _NoMoreTurns(Exception):
    """Ends the training of a Trainer."""


class _Batches:
    """Data of a thread, as a loader that the Trainer accepts."""

    def __init__(self, thread: TrainerThread) -> None:
        self._thread = thread

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._thread.data():
            yield {"x": batch}
        raise _NoMoreTurns  # the Trainer would begin another epoch


class _Trainer(transformers.Trainer):  # type: ignore[misc, name-defined, unused-ignore]
    """Takes the batches of the plain loop."""

    batches: Any = None

    def get_train_dataloader(self) -> Any:
        """Loaders of the Trainer's own would fetch ahead while others train."""
        return self.batches
