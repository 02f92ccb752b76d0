"""`PrometheusMonitor`: metrics for Prometheus from figures that a program passes itself."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepscope.errors import ConfigError
from stepscope.exporters.base import Table
from stepscope.guard import shown
from stepscope.prometheus.families import MIB, PERCENT
from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.metrics_server import HOST, MetricsServer
from stepscope.recorder.values import as_number
from stepscope.schema.identity import run_id
from stepscope.schema.keys import STEP_SECONDS
from stepscope.schema.run import Process
from stepscope.schema.sample import DeviceFacts
from stepscope.schema.series import Source

if TYPE_CHECKING:
    from types import TracebackType

PORT = 8000
SEGMENT = "1"
WAIT_S = 5.0


class PrometheusMonitor:
    """Serves `training_loss`, `training_steps_total`, `training_step_duration_seconds` and more on a port.

        monitor = PrometheusMonitor(port=8000)
        monitor.update_metrics(
            loss=0.5, gpu_metrics={0: {"memory_allocated": 4096}}, cpu_percent=35.0, step_duration=0.12
        )
        monitor.close()

    Only this machine can read the port. A run that a `TrainingMonitor` records needs no such calls: set
    `exporters.prometheus.port`.
    """

    def __init__(self, port: int = PORT, *, run: str = "training", project: str = "default") -> None:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
            raise ConfigError(f"argument: port is {shown(port)}; it must be a number from 0 to 65535.")
        self._run_id, self._host = run_id(project, run), os.uname().nodename
        self._steps = 0
        self._state = LiveState()
        process = Process(
            self._run_id, run, project, SEGMENT, 0, self._host, os.getpid(), "rank", time.time_ns()
        )
        self._state.begin(process)
        self._server = MetricsServer(self._state, HOST, port)
        self._server.wait_until_serving(WAIT_S if not port else 0.5)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def update_metrics(
        self,
        loss: Any = None,
        gpu_metrics: Mapping[Any, Mapping[str, Any]] | None = None,
        cpu_percent: float | None = None,
        step_duration: float | None = None,
    ) -> None:
        """Takes the figures of a step; `memory_allocated` of each GPU is in MiB. None is left out."""
        if not isinstance(gpu_metrics, Mapping | None):
            raise ConfigError(f"argument: gpu_metrics is {shown(gpu_metrics)}; it must be a mapping.")
        step = {"loss": as_number(loss), STEP_SECONDS: as_number(step_duration)}
        self._take({key: value for key, value in step.items() if value is not None}, rank=0)
        self._steps += 1
        if (percent := as_number(cpu_percent)) is not None:
            self._take({"cpu/utilization_ratio": percent / PERCENT})
        for gpu, figures in (gpu_metrics or {}).items():
            used_mb = as_number(figures.get("memory_allocated")) if isinstance(figures, Mapping) else None
            if used_mb is not None and math.isfinite(used_mb):
                self._state.describe(DeviceFacts(f"gpu{gpu}", {"index": gpu}))
                self._take({"gpu/memory_used_bytes": used_mb * MIB}, device=f"gpu{gpu}")

    def close(self) -> None:
        """Stops serving."""
        self._server.close()

    def __enter__(self) -> PrometheusMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, figures: Mapping[str, float], rank: int | None = None, device: str = "") -> None:
        axis = "step" if rank is not None else "seconds"
        source = Source(self._run_id, SEGMENT, rank, self._host, device, axis)  # type: ignore[arg-type]  # one of two literals
        steps, times_ns = np.array([self._steps], np.int64), np.array([time.time_ns()], np.int64)
        self._state.take(Table(source, tuple(figures), steps, times_ns, np.array([list(figures.values())])))
