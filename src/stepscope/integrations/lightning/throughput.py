"""`ThroughputMonitorCallback`: logs samples and batches per second, batch time and memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from stepscope.config.sections import MIB
from stepscope.integrations.lightning.feeding import feed
from stepscope.integrations.lightning.fit_clock import Totals, clock_of
from stepscope.integrations.lightning.framework import LightningCallback, guarded
from stepscope.integrations.lightning.options import check_counts, check_flags
from stepscope.number_format import duration, number


class ClockedCallback(LightningCallback):
    """A callback that counts the batches of a fit, together with all others of the trainer."""

    @guarded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins a pass over the data."""
        clock_of(trainer).begin_epoch(trainer)

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begins a batch."""
        clock_of(trainer).begin_batch(trainer, batch)

    @guarded
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends a batch."""
        clock_of(trainer).end_batch(trainer, outputs)
        self.after_batch(trainer, pl_module)

    def after_batch(self, trainer: Any, pl_module: Any) -> None:
        """Called after each batch of the training."""

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Stops the clock."""
        clock_of(trainer).begin_evaluation()

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Starts the clock again."""
        clock_of(trainer).end_evaluation()

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends a pass over the data."""
        clock_of(trainer).end_epoch()


class ThroughputMonitorCallback(ClockedCallback):
    """Logs how fast a fit is, every `log_interval` batches, and prints a summary at its end.

        trainer = Trainer(callbacks=[ThroughputMonitorCallback(log_interval=50)])

    Figures are means since the last time, without evaluations; rates are those of all processes together.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        log_interval: int = 50,
        track_memory: bool = True,
        track_timing: bool = True,
    ) -> None:
        check_flags(self, enabled=enabled, track_memory=track_memory, track_timing=track_timing)
        check_counts(self, 1, log_interval=log_interval)
        super().__init__(enabled=enabled)
        self._log_interval, self._track_memory, self._track_timing = log_interval, track_memory, track_timing
        self._first = self._last = Totals(0, 0, 0.0)
        self._batches = 0

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts counting."""
        clock = clock_of(trainer)
        clock.counts_batches = True
        self._first = self._last = clock.totals
        self._batches = 0

    def after_batch(self, trainer: Any, pl_module: Any) -> None:
        """Logs the figures if they are due."""
        self._batches += 1
        if self._batches % self._log_interval == 0:
            totals = clock_of(trainer).totals
            figures = throughput(totals.since(self._last), trainer.world_size)
            self._last = totals
            if not self._track_timing:
                figures.pop("throughput/avg_batch_time_ms", None)
            if self._track_memory:
                figures.update(memory(trainer.strategy.root_device))
            feed(trainer, figures, self._guard)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Prints the figures of the whole fit."""
        done = clock_of(trainer).totals.since(self._first)
        if done.seconds > 0:
            pl_module.print(f"Throughput: {summary(done, trainer.world_size)}.")


def throughput(done: Totals, processes: int) -> dict[str, float]:
    """Rates of all processes, and the mean time of a batch; samples only if they can be counted."""
    if done.seconds <= 0 or not done.batches:
        return {}
    figures = {
        "throughput/batches_per_sec": processes * done.batches / done.seconds,
        "throughput/avg_batch_time_ms": 1e3 * done.seconds / done.batches,
    }
    if done.samples:
        figures["throughput/samples_per_sec"] = processes * done.samples / done.seconds
    return figures


def summary(done: Totals, processes: int) -> str:
    """The same in words."""
    figures = throughput(done, processes)
    rates = [
        f"{number(figures[key], 3)} {unit}/s"
        for key, unit in (
            ("throughput/samples_per_sec", "samples"),
            ("throughput/batches_per_sec", "batches"),
        )
        if key in figures
    ]
    batch = duration(done.seconds / max(done.batches, 1))
    return f"{', '.join(rates)}, {batch} per batch ({done.batches:,} batches in {duration(done.seconds)})"


def memory(device: Any) -> dict[str, float]:
    """Memory of this process in MiB, and that of PyTorch's allocator on a GPU; waits for nothing."""
    resident_pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    figures = {"memory/process_rss_mb": resident_pages * os.sysconf("SC_PAGE_SIZE") / MIB}
    if getattr(device, "type", "") == "cuda":
        cuda = sys.modules["torch"].cuda
        figures["memory/allocated_mb"] = cuda.memory_allocated(device) / MIB
        figures["memory/reserved_mb"] = cuda.memory_reserved(device) / MIB
        figures["memory/peak_allocated_mb"] = cuda.max_memory_allocated(device) / MIB
    return figures
