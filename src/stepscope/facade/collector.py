"""`RealTimeMetricsCollector`: a monitor with the names of an older interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError
from stepscope.guard import shown
from stepscope.recorder.monitor import TrainingMonitor

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

BYTES_PER_ROW = 112
"""Size of a row of ten values in a journal."""
MIN_BYTES = 64 * 1024


class RealTimeMetricsCollector:
    """Collects metrics in the background with a `TrainingMonitor`, which is the attribute `monitor`.

    `buffer_size` is the number of rows in a journal file (recorder.segment_bytes), `flush_interval` the
    seconds until they are in the store (agent.interval_s), `sample_interval` the seconds between two readings
    of the machine (samplers.default.interval_s). Collected values survive a crash of the process immediately,
    independent of these intervals.
    """

    def __init__(
        self,
        buffer_size: int | None = None,
        flush_interval: float | None = None,
        sample_interval: float | None = None,
        *,
        run: str | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        config: dict[str, Any] = {}
        if buffer_size is not None:
            if not isinstance(buffer_size, int) or isinstance(buffer_size, bool):
                raise ConfigError(
                    f"argument: buffer_size is {shown(buffer_size)}; it must be a whole number."
                )
            config["recorder"] = {"segment_bytes": max(buffer_size * BYTES_PER_ROW, MIN_BYTES)}
        if flush_interval is not None:
            config["flush_interval"] = flush_interval
        if sample_interval is not None:
            config["sample_interval"] = sample_interval
        self.monitor = TrainingMonitor(config or None, run=run, directory=directory)

    def start(self) -> None:
        """Starts collecting."""
        self.monitor.start_monitoring()

    def stop(self) -> None:
        """Stops collecting; when it returns, all values are in the store."""
        self.monitor.stop_monitoring()

    def collect(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Records the numbers of a step; without `step`, each call is one step."""
        self.monitor.log(metrics, step)

    def __enter__(self) -> RealTimeMetricsCollector:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.monitor.__exit__(kind, error, trace)
