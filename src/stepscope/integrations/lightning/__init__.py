"""Callbacks and a logger for Lightning, for `lightning.pytorch` and for `pytorch_lightning`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.lazy_names import lazy_names

if TYPE_CHECKING:
    from stepscope.integrations.lightning.baseline import compare_with_baseline, write_baseline
    from stepscope.integrations.lightning.callback import StepscopeCallback
    from stepscope.integrations.lightning.logger import StepscopeLogger
    from stepscope.integrations.lightning.profiler import ProfilerCallback
    from stepscope.integrations.lightning.resources import ResourceMonitorCallback
    from stepscope.integrations.lightning.throughput import ThroughputMonitorCallback

_HOMES = {
    "compare_with_baseline": "stepscope.integrations.lightning.baseline",
    "ProfilerCallback": "stepscope.integrations.lightning.profiler",
    "ResourceMonitorCallback": "stepscope.integrations.lightning.resources",
    "StepscopeCallback": "stepscope.integrations.lightning.callback",
    "StepscopeLogger": "stepscope.integrations.lightning.logger",
    "ThroughputMonitorCallback": "stepscope.integrations.lightning.throughput",
    "write_baseline": "stepscope.integrations.lightning.baseline",
}

__all__ = [  # noqa: RUF022 - sorted as people read
    "compare_with_baseline",
    "ProfilerCallback",
    "ResourceMonitorCallback",
    "StepscopeCallback",
    "StepscopeLogger",
    "ThroughputMonitorCallback",
    "write_baseline",
]

__getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
