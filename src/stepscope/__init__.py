"""Watches a model being trained: what the loop, the machine and the GPUs do, at almost no cost.

Importing this loads no torch, numpy, pydantic or sqlite3; each public name is loaded when it is first used.
"""

from __future__ import annotations

from stepscope.lazy_names import lazy_names
from stepscope.version import __version__

TYPE_CHECKING = False  # as type checkers read it; importing typing would double the time this takes
if TYPE_CHECKING:
    from stepscope.errors import StepscopeError
    from stepscope.facade.callback import TrainingMonitorCallback
    from stepscope.facade.collector import RealTimeMetricsCollector
    from stepscope.facade.gpu_monitor import GPUMonitor
    from stepscope.facade.metrics_database import MetricsDatabase
    from stepscope.model_stats.gradient_monitor import GradientMonitor
    from stepscope.profiling.model.model import ModelProfiler
    from stepscope.reading import open_store
    from stepscope.recorder.monitor import TrainingMonitor
    from stepscope.schema.record import TrainingMetrics

_HOMES = {
    "GPUMonitor": "stepscope.facade.gpu_monitor",
    "GradientMonitor": "stepscope.model_stats.gradient_monitor",
    "MetricsDatabase": "stepscope.facade.metrics_database",
    "ModelProfiler": "stepscope.profiling.model.model",
    "open_store": "stepscope.reading",
    "RealTimeMetricsCollector": "stepscope.facade.collector",
    "StepscopeError": "stepscope.errors",
    "TrainingMetrics": "stepscope.schema.record",
    "TrainingMonitor": "stepscope.recorder.monitor",
    "TrainingMonitorCallback": "stepscope.facade.callback",
}

__all__ = [  # noqa: RUF022 - sorted as people read
    "__version__",
    "GPUMonitor",
    "GradientMonitor",
    "MetricsDatabase",
    "ModelProfiler",
    "open_store",
    "RealTimeMetricsCollector",
    "StepscopeError",
    "TrainingMetrics",
    "TrainingMonitor",
    "TrainingMonitorCallback",
]


__getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
