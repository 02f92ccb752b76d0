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
    from stepscope.facade.monitoring_dashboard import MonitoringDashboard
    from stepscope.facade.performance_alerting import PerformanceAlerting, RealTimeMonitor
    from stepscope.facade.performance_analyzer import PerformanceAnalyzer
    from stepscope.facade.performance_monitor import AlertSystem, PerformanceMonitor
    from stepscope.facade.prometheus_monitor import PrometheusMonitor
    from stepscope.facade.recommendations import (
        generate_performance_recommendations,
        save_recommendations_report,
    )
    from stepscope.facade.system_monitor import SystemMonitor, monitor_resources
    from stepscope.facade.tensorboard_monitor import TensorBoardMonitor
    from stepscope.facade.tracker import alert, finish, init, log, watch
    from stepscope.facade.tracker_run import AlertLevel
    from stepscope.integrations.ray import monitor_ray_cluster
    from stepscope.model_stats.gradient_monitor import GradientMonitor
    from stepscope.profiling.model.model import ModelProfiler
    from stepscope.reading import open_store
    from stepscope.recorder.monitor import TrainingMonitor
    from stepscope.schema.record import TrainingMetrics

_HOMES = {
    "AlertSystem": "stepscope.facade.performance_monitor",
    "generate_performance_recommendations": "stepscope.facade.recommendations",
    "GPUMonitor": "stepscope.facade.gpu_monitor",
    "GradientMonitor": "stepscope.model_stats.gradient_monitor",
    "load_ipython_extension": "stepscope.notebook.magics",
    "MetricsDatabase": "stepscope.facade.metrics_database",
    "ModelProfiler": "stepscope.profiling.model.model",
    "monitor_ray_cluster": "stepscope.integrations.ray",
    "monitor_resources": "stepscope.facade.system_monitor",
    "MonitoringDashboard": "stepscope.facade.monitoring_dashboard",
    "open_store": "stepscope.reading",
    "PerformanceAlerting": "stepscope.facade.performance_alerting",
    "PerformanceAnalyzer": "stepscope.facade.performance_analyzer",
    "PerformanceMonitor": "stepscope.facade.performance_monitor",
    "PrometheusMonitor": "stepscope.facade.prometheus_monitor",
    "RealTimeMetricsCollector": "stepscope.facade.collector",
    "RealTimeMonitor": "stepscope.facade.performance_alerting",
    "save_recommendations_report": "stepscope.facade.recommendations",
    "StepscopeError": "stepscope.errors",
    "SystemMonitor": "stepscope.facade.system_monitor",
    "TensorBoardMonitor": "stepscope.facade.tensorboard_monitor",
    "TrainingMetrics": "stepscope.schema.record",
    "TrainingMonitor": "stepscope.recorder.monitor",
    "TrainingMonitorCallback": "stepscope.facade.callback",
}

_TRACKER_NAMES = (
    "alert", "AlertLevel", "Api", "Artifact", "ArtifactTTL", "Audio", "box3d", "Classes",
    "CommError", "controller", "data_types", "define_metric", "Error", "finish", "Graph",
    "Histogram", "Html", "Image", "init", "join", "JoinedTable", "link_model", "log",
    "log_artifact", "log_code", "log_gpu", "log_model", "log_system", "login", "mark_preempting",
    "Markdown", "Molecule", "Object3D", "plot", "plot_table", "Plotly", "require", "restore", "run",
    "Run", "save", "sdk", "Settings", "setup", "show", "summary", "sweep", "Table", "teardown",
    "termerror", "termlog", "termsetup", "termwarn", "unwatch", "UsageError", "use_artifact",
    "use_model", "util", "Video", "watch",
)  # fmt: skip
"""Names that a script uses which was made for W&B or trackio: `import stepscope as wandb`."""
_HOMES.update(dict.fromkeys(_TRACKER_NAMES, "stepscope.facade.tracker"))

__all__ = [  # noqa: RUF022 - sorted as people read
    "__version__",
    "alert",
    "AlertLevel",
    "AlertSystem",
    "finish",
    "generate_performance_recommendations",
    "GPUMonitor",
    "GradientMonitor",
    "init",
    "log",
    "MetricsDatabase",
    "ModelProfiler",
    "monitor_ray_cluster",
    "monitor_resources",
    "MonitoringDashboard",
    "open_store",
    "PerformanceAlerting",
    "PerformanceAnalyzer",
    "PerformanceMonitor",
    "PrometheusMonitor",
    "RealTimeMetricsCollector",
    "RealTimeMonitor",
    "save_recommendations_report",
    "StepscopeError",
    "SystemMonitor",
    "TensorBoardMonitor",
    "TrainingMetrics",
    "TrainingMonitor",
    "TrainingMonitorCallback",
    "watch",
]


__getattr__ = lazy_names(globals(), _HOMES, changing=("run", "summary"))


def __dir__() -> list[str]:
    return sorted(__all__)
