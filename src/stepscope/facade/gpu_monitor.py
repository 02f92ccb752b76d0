"""`GPUMonitor`: watches one GPU from within a process, with a short history and without a run."""

from __future__ import annotations

import logging
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.agent.sampling import Poller
from stepscope.config.find import DISABLED_VARIABLE, is_disabled
from stepscope.devices.find_gpus import find_gpus
from stepscope.devices.gpu_driver import visible_gpus
from stepscope.errors import RecorderError
from stepscope.exporters.metrics_files import GPU_FIELDS, RotatedLines, gpu_line
from stepscope.guard import shown
from stepscope.recorder.values import as_number
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import Notice, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.devices.find_gpus import GpusFound
    from stepscope.devices.gpu import GpuFacts

log = logging.getLogger("stepscope.gpu")

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 600.0


@dataclass(frozen=True)
class GPUMetrics:
    """One reading of the GPU; unavailable values are None."""

    timestamp: float
    gpu_index: int
    utilization_percent: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    memory_percent: float | None = None
    temperature_celsius: float | None = None
    power_draw_watts: float | None = None
    fan_speed_percent: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None


class GPUMonitor:
    """Samples a GPU in a separate thread.

        with GPUMonitor(gpu_index=0, sample_interval=1.0) as gpu:
            train()
        print(gpu.get_summary())

    `gpu_index` is the index within this process: 0 is cuda:0, as CUDA_VISIBLE_DEVICES selects it. With
    `log_dir`, each reading is a line of `gpu_metrics_*.jsonl` there. If there is no GPU, `reason` says why
    and everything else is empty.
    """

    def __init__(
        self,
        gpu_index: int = 0,
        sample_interval: float = 1.0,
        history_size: int = 300,
        log_dir: str | os.PathLike[str] | None = None,
        *,
        _find: Callable[..., GpusFound] = find_gpus,
        _environment: Mapping[str, str] = os.environ,
    ) -> None:
        _check_count("gpu_index", gpu_index)
        _check_count("history_size", history_size)
        seconds = as_number(sample_interval)
        if seconds is None or not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
            value = shown(sample_interval)
            raise RecorderError(
                f"sample_interval is {value}; it must be a number of seconds from 0.1 to 600."
            )
        if not isinstance(log_dir, str | os.PathLike | None):
            raise RecorderError(f"log_dir is {shown(log_dir)}; it must be the path of a folder.")
        self.gpu_index, self.sample_interval = gpu_index, sample_interval
        self.log_dir = None if log_dir is None else Path(log_dir)
        self.reason: str | None = None
        """Why nothing is read; None while readings arrive, or before the first one."""
        self._find, self._environment = _find, _environment
        self._history: deque[GPUMetrics] = deque(maxlen=history_size)
        self._lines = None if self.log_dir is None else RotatedLines(self.log_dir, "gpu_metrics")
        self._uuid: str | None = None
        self._poller: Poller | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, such as one in another process, samples the same GPU and has its own history."""
        return type(self), (self.gpu_index, self.sample_interval, self._history.maxlen, self.log_dir)

    def start(self) -> None:
        """Starts sampling; does nothing if it is already started, or disabled by STEPSCOPE_DISABLED."""
        if is_disabled(self._environment):
            self.reason = f"{DISABLED_VARIABLE} is set."
        elif self._poller is None:
            # The agent reads the SM counters: a second reader would take them away.
            sampler = GpuSampler(performance_counters=False, _find=self._find_and_choose)
            try:
                poller = Poller("gpu", sampler, self.sample_interval, self._take)
            except RuntimeError as error:  # no further thread may be started
                self._warn(f"The GPU is not watched: {error}.")
                return
            self._poller = poller
            poller.configure(self.sample_interval, ())

    def stop(self) -> None:
        """Stops sampling; the history is kept."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.ask_to_stop()
            poller.join()

    def __enter__(self) -> GPUMonitor:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def history(self) -> list[GPUMetrics]:
        """The newest readings, oldest first; at most `history_size`."""
        return list(self._history)

    def get_current_metrics(self) -> GPUMetrics | None:
        """The newest reading; None before the first, and without a GPU."""
        return self._history[-1] if self._history else None

    def get_summary(self) -> dict[str, dict[str, float]]:
        """Average, minimum and maximum of each metric over the history, if it has values."""
        summary = {}
        for field in (*GPU_FIELDS, "sm_clock_mhz", "memory_clock_mhz"):
            readings = [getattr(metrics, field) for metrics in self._history]
            values = [value for value in readings if value is not None]
            if values:
                summary[field] = {
                    "average": sum(values) / len(values),
                    "min": min(values),
                    "max": max(values),
                }
        return summary

    def _find_and_choose(self, **options: bool) -> GpusFound:
        gpus = self._find(**options)
        self._uuid = self._chosen([gpu.facts for gpu in gpus.gpus])
        return gpus

    def _chosen(self, gpus: list[GpuFacts]) -> str | None:
        """The GPU with this index in this process; by the driver's order if CUDA's is not known."""
        visible = visible_gpus(self._environment, gpus)
        if 0 <= self.gpu_index < len(visible):
            by_count = next((gpu.uuid for gpu in gpus if gpu.index == self.gpu_index), None)
            return visible[self.gpu_index] or by_count
        if gpus:
            self._warn(f"This process sees {len(visible)} GPUs, so there is no cuda:{self.gpu_index}.")
        return None

    def _take(self, taken: SamplerReadings) -> None:
        for reading in taken.readings:
            if isinstance(reading, Notice):
                self._warn(reading.text)
            elif isinstance(reading, Sample) and reading.device == self._uuid and reading.owner is None:
                self._keep(taken.time_ns, reading.values)

    def _keep(self, time_ns: int, figures: Mapping[str, float]) -> None:
        self.reason = None
        line = gpu_line(time_ns, self.gpu_index, figures)
        fields = {name: value for name, value in line.items() if name != "timestamp"}
        for name in ("sm_clock", "memory_clock"):
            hertz = figures.get(f"gpu/{name}_hertz")
            fields[f"{name}_mhz"] = None if hertz is None else hertz / 1e6
        self._history.append(GPUMetrics(timestamp=time_ns / 1e9, **fields))  # type: ignore[arg-type]  # numbers all
        if self._lines is not None:
            try:
                self._lines.write([line])
            except OSError as error:
                self._lines = None
                self._warn(f"{self.log_dir} cannot be written ({error.strerror}); the GPU is still watched.")

    def _warn(self, text: str) -> None:
        if text != self.reason:
            self.reason = text
            log.warning("%s", text)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecorderError(f"{name} is {shown(value)}; it must be a whole number, 0 or more.")
