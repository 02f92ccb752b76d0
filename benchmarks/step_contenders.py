"""Those who watch the same training loop, each in the way its own documentation shows first."""

import importlib
import time
from collections.abc import Callable, Generator, Iterable
from itertools import cycle
from typing import Any, NamedTuple

import torch  # noqa: TID253 - what is watched

import stepscope

Log = Callable[[Any], None]


class Took(NamedTuple):
    """Seconds of the clock on the wall, and of the training thread on a processor."""

    wall_s: float
    thread_s: float

    @classmethod
    def now(cls) -> "Took":
        """What both clocks show."""
        return cls(time.perf_counter(), time.thread_time())

    def __sub__(self, began: "Took") -> "Took":
        return Took(self.wall_s - began.wall_s, self.thread_s - began.thread_s)


class Work(NamedTuple):
    """What a block trains with."""

    data: list[Any]
    steps: int
    device: str
    forwards: int
    """How often a step calls the model."""


class Contender:
    """Watches one model after the other; the base watches nothing."""

    name = ""
    base = "nothing"
    """Name of the contender it is compared with: the same loop with nobody watching."""
    package = ""
    """What pip calls it; empty for what comes with this project."""
    log: Log | None = None
    """Takes the loss of each step; None where it is not handed over."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def begin(self, model: Any, optimizer: Any) -> None:
        """A model is about to be trained."""

    def batches(self, data: Iterable[Any]) -> Iterable[Any]:
        """The data as the loop gets it."""
        return data

    def blocks(self, model: Any, optimizer: Any, work: Work) -> Generator[Took, None, None]:
        """Trains on and on in one pass over endless data; stops after each block and tells what it took."""
        log = self.log
        done = 0
        began = Took.now()
        for batch in self.batches(cycle(work.data)):
            x = batch.to(work.device, non_blocking=True)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            for _ in range(work.forwards - 1):
                loss = loss + model(x).square().mean()
            loss.backward()
            optimizer.step()
            if log is not None:
                log(loss.detach())
            done += 1
            if done == work.steps:
                if work.device == "cuda":
                    torch.cuda.synchronize()
                stopped = Took.now()
                yield stopped - began
                done = 0
                self.resume(Took.now() - stopped)
                began = Took.now()

    def resume(self, pause: Took) -> None:
        """The next block begins, after one of the others."""

    def end(self) -> None:
        """The model has been trained, and is as it was."""

    def finish(self) -> None:
        """All is over."""


def exclude_pause(monitor: stepscope.TrainingMonitor, pause: Took) -> None:
    """Sets our clocks back by a pause: it must not pay for probes, nor write rows."""
    pause_ns = round(pause.wall_s * 1e9)
    monitor.overhead.exclude(time.monotonic_ns() - pause_ns)
    monitor.timer.began_ns += pause_ns
    monitor.timer.due_ns += pause_ns


class Plain(Contender):
    """The loop as it is."""

    name = "nothing"


class Stepscope(Contender):
    """All that `watch` does unasked, the batches and the loss of every step."""

    name = "stepscope"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._monitor = stepscope.TrainingMonitor(run="overhead", directory=folder)
        self._monitor.start_monitoring()
        self.log = self._log

    def begin(self, model: Any, optimizer: Any) -> None:
        """Puts the hooks on."""
        self._monitor.watch(model, optimizer)

    def batches(self, data: Iterable[Any]) -> Iterable[Any]:
        """Times the wait for each."""
        return self._monitor.batches(data)

    def resume(self, pause: Took) -> None:
        """Our clocks stood still while others trained."""
        exclude_pause(self._monitor, pause)

    def end(self) -> None:
        """Takes the hooks off."""
        self._monitor.unwatch()

    def finish(self) -> None:
        """Ends the run."""
        self._monitor.stop_monitoring()

    def _log(self, loss: Any) -> None:
        self._monitor.log_training_step(loss=loss, learning_rate=1e-3)


class Watched(Stepscope):
    """What `watch` and `batches` add alone; the loop logs nothing."""

    name = "watch"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.log = None


class Logging(Stepscope):
    """Only the loss of every step and the time of batches, without `watch`."""

    name = "log alone"

    def begin(self, model: Any, optimizer: Any) -> None:
        """Nothing to put on."""

    def end(self) -> None:
        """Nothing to take off."""


class WithoutGradients(Stepscope):
    """The same without looks at gradients."""

    name = "no gradients"

    def begin(self, model: Any, optimizer: Any) -> None:
        """Puts the other hooks on."""
        self._monitor.watch(model, optimizer, gradients=False)


def _peer(place: str, package: str) -> Callable[[str], Contender]:
    """Makes the class at `module:Class` of `step_peers`, importing it only then."""

    def make(folder: str) -> Contender:
        module, kind = place.split(":")
        try:
            peer_module = importlib.import_module(f"benchmarks.step_peers.{module}")
        except ModuleNotFoundError as error:
            raise SystemExit(
                f"The contender needs the package {package}: {error}. "
                f"Install it with: python -m pip install {package}"
            ) from error
        contender: Contender = getattr(peer_module, kind)(folder)
        return contender

    return make


CONTENDERS: dict[str, Callable[[str], Contender]] = {
    "nothing": Plain,
    "stepscope": Stepscope,
    "watch": Watched,
    "log": Logging,
    "nograd": WithoutGradients,
    "process": _peer("unedited:OwnProcess", "torch"),
    "unedited": _peer("unedited:Unedited", "torch"),
    "wandb_watch": _peer("wandb_watch:WandbWatch", "wandb"),
    "traceml": _peer("traceml:TraceML", "traceml-ai"),
    "lightning": _peer("lightning_trainer:LightningTrainer", "lightning"),
    "lightning_callback": _peer("lightning_trainer:LightningCallback", "lightning"),
    "transformers": _peer("transformers_trainer:TransformersTrainer", "transformers"),
    "transformers_callback": _peer("transformers_trainer:TransformersCallback", "transformers"),
    "lightning_monitors": _peer("lightning_monitors:LightningMonitors", "lightning"),
    "lightning_every_step": _peer("lightning_monitors:LightningEveryStep", "lightning"),
    "lightning_with_loss": _peer("lightning_monitors:LightningWithLoss", "lightning"),
}
