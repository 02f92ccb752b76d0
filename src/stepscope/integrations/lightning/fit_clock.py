"""Follows the batches of a fit: how many there were, with how many samples, and how long they took."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepscope.steps.evidence.batch_contents import count_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.recorder.monitor import TrainingMonitor
    from stepscope.steps.step_timer import StepTimer

MAX_DEPTH = 4
"""How deep loaders may be nested in lists and mappings."""


class ReportedBatches:
    """Stands for batches that Lightning fetches itself; the clock reports when each begins and ends."""

    def __init__(self, trainer: Any) -> None:
        self._fit_loop = trainer.fit_loop
        self.is_timed = not uses_torch_loaders(trainer.train_dataloader)
        """Whether the clock reports the wait for each batch."""

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        """The batch itself is set when Lightning has it."""

    def __getattr__(self, name: str) -> Any:
        """Attributes of PyTorch's own iterator, from which the set-up and the queue of a loader are read."""
        if name == "_fit_loop":  # not set yet
            raise AttributeError(name)
        try:
            # There is no public way to it; a version of Lightning without these names has no description.
            return getattr(self._fit_loop._combined_loader._iterator.iterators[0], name)  # noqa: SLF001
        except (AttributeError, IndexError, TypeError):
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Totals:
    """What a trainer has done so far; evaluations are not included."""

    batches: int
    samples: int
    seconds: float

    def since(self, before: Totals) -> Totals:
        """What was done after an earlier reading."""
        return Totals(
            self.batches - before.batches, self.samples - before.samples, self.seconds - before.seconds
        )


class FitClock:
    """Counts the batches of one trainer, once for all callbacks that use it.

    While a monitor is set, batches are reported to it, and the times are those that it records. Each callback
    passes on every hook; the first call for a batch counts.
    """

    def __init__(self) -> None:
        self._done_batches = self._done_samples = self._done_ns = 0
        self.monitor: TrainingMonitor | None = None
        """Records the steps, if there is one."""
        self.before_end: Callable[..., None] | None = None
        """Called before a batch ends: with trainer and outputs, and `ends_step` if a step ends with it."""
        self.counts_batches = False
        """Whether a callback reads the totals."""
        self._pass: Iterator[Any] | None = None
        self._source: ReportedBatches | None = None
        self._is_in_epoch = self._is_in_batch = self._was_evaluated = False
        self._since_ns = self._paused_ns = 0
        self._asked: tuple[int, int] | None = None
        """When the next batch was asked for, and when the current step had begun by then."""
        self._batches = self._samples = self._global_step = 0
        self._steps_made = 0
        self._sees_steps = False
        """Whether the monitor sees the steps of the only optimizer."""

    @property
    def totals(self) -> Totals:
        """What the trainer has done so far, in complete steps."""
        return Totals(self._done_batches, self._done_samples, self._done_ns * 1e-9)

    def begin_epoch(self, trainer: Any) -> None:
        """Begins a pass over the training data."""
        if self._is_in_epoch:
            return
        self._is_in_epoch = True
        self._since_ns, self._global_step, self._sees_steps = monotonic_ns(), trainer.global_step, False
        if self.monitor is not None:
            self._steps_made = self.monitor.timer.steps_made
            self._source = self._source or ReportedBatches(trainer)
            self._pass = iter(self.monitor.batches(self._source))
            next(self._pass)
            self.monitor.timer.on_batch = None  # a batch without an optimizer step is part of the next step
            self._ask()

    def begin_batch(self, trainer: Any, batch: Any) -> None:
        """Notes that Lightning has fetched a batch."""
        if self._is_in_batch:
            return
        if not self._is_in_epoch:
            self.begin_epoch(trainer)  # a fit that resumes within an epoch does not call its hook
        self._is_in_batch = True
        if self.monitor is not None:
            if self._was_evaluated:
                self._end_evaluation()
            if self._asked is not None:
                self._take_wait()
            self.monitor.timer.held = batch
        if self.counts_batches:
            self._samples += count_samples(batch)[0] or 0

    def end_batch(self, trainer: Any, outputs: Any) -> None:
        """Ends a batch, and with it a step if an optimizer has stepped."""
        if not self._is_in_batch:
            return
        self._is_in_batch = False
        self._batches += 1
        if self.monitor is None or self._pass is None:
            ended_ns = monotonic_ns()
            self._add(ended_ns - self._since_ns)
            self._since_ns = ended_ns
            return
        timer = self.monitor.timer
        if not (timer.is_made and self._sees_steps):
            self._compare_steps(trainer, timer)
        began_ns = timer.began_ns
        if self.before_end is not None:
            self.before_end(trainer, outputs, ends_step=timer.is_made)
        next(self._pass)
        if self.counts_batches and timer.began_ns != began_ns:
            self._add(timer.began_ns - began_ns)
        if self._source is not None and self._source.is_timed:
            self._ask()

    def _compare_steps(self, trainer: Any, timer: StepTimer) -> None:
        """Makes a step that the monitor has not seen: skipped by a scaler, or made by another optimizer."""
        steps = trainer.global_step  # reading it takes as long as the rest of a hook
        if timer.is_made:
            self._sees_steps = len(trainer.optimizers) == 1
        elif steps - self._global_step != timer.steps_made - self._steps_made:
            timer.make_step()
        self._global_step, self._steps_made = steps, timer.steps_made

    def begin_evaluation(self) -> None:
        """Stops the clock: what follows is not training."""
        self._paused_ns = self._paused_ns or monotonic_ns()

    def end_evaluation(self) -> None:
        """Starts the clock again."""
        if self._paused_ns:
            self._since_ns += monotonic_ns() - self._paused_ns
            self._paused_ns, self._was_evaluated = 0, True

    def end_epoch(self) -> None:
        """Ends a pass over the training data, also one that was left early."""
        if self.monitor is not None:
            self._end_evaluation()
        self._is_in_epoch = self._is_in_batch = False
        self._pass = self._asked = None

    def leave(self) -> None:
        """Ends the recording of a fit."""
        self.end_epoch()
        self.monitor = self.before_end = self._source = None

    def _end_evaluation(self) -> None:
        if self._was_evaluated and self.monitor is not None:
            self._was_evaluated = False
            self.monitor.end_evaluation()

    def _add(self, took_ns: int) -> None:
        self._done_batches += self._batches
        self._done_samples += self._samples
        self._done_ns += took_ns
        self._batches = self._samples = 0

    def _ask(self) -> None:
        """Begins the wait for the next batch, if only the hooks of the trainer show it."""
        if self.monitor is None or self._source is None or not self._source.is_timed:
            return
        timer = self.monitor.timer
        self._asked = monotonic_ns(), timer.began_ns
        if timer.on_asked is not None:
            timer.on_asked()

    def _take_wait(self) -> None:
        """Ends that wait; an evaluation within it has moved the start of the step by its own time."""
        if self.monitor is None or self._asked is None:
            return
        timer = self.monitor.timer
        (asked_ns, began_ns), self._asked = self._asked, None
        if timer.on_got is not None:
            timer.on_got()
        else:
            timer.waited_ns += max(monotonic_ns() - asked_ns - (timer.began_ns - began_ns), 0)


_clocks: WeakKeyDictionary[Any, FitClock] = WeakKeyDictionary()


def clock_of(trainer: Any) -> FitClock:
    """The clock of a trainer, which all callbacks share."""
    clock = _clocks.get(trainer)
    if clock is None:
        clock = _clocks[trainer] = FitClock()
    return clock


def uses_torch_loaders(loaders: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether all loaders are PyTorch's, which are timed themselves."""
    if isinstance(loaders, sys.modules["torch.utils.data"].DataLoader):
        return True
    parts = getattr(loaders, "flattened", loaders)  # of Lightning's CombinedLoader
    if isinstance(parts, Mapping):
        parts = list(parts.values())
    if not isinstance(parts, list | tuple) or not depth:
        return False
    return all(uses_torch_loaders(part, depth - 1) for part in parts)
