"""PyTorch profiler windows, model profiles, quantisation impact, data loader throughput."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # as type checkers read it; importing typing would take longer than this
if TYPE_CHECKING:
    from stepscope.profiling.loader.batch_timing import Limits
    from stepscope.profiling.loader.loader import loader_throughput
    from stepscope.profiling.model.model import ModelProfiler
    from stepscope.profiling.model.quantisation import quantisation_impact
    from stepscope.profiling.model.timings import Repeats
    from stepscope.profiling.window.profiler_window import ProfilerWindow

__all__ = ["Limits", "loader_throughput", "ModelProfiler", "ProfilerWindow", "quantisation_impact", "Repeats"]  # noqa: RUF022 - sorted as people read

__getattr__ = lazy_names(
    globals(),
    {
        "Limits": "stepscope.profiling.loader.batch_timing",
        "loader_throughput": "stepscope.profiling.loader.loader",
        "ModelProfiler": "stepscope.profiling.model.model",
        "ProfilerWindow": "stepscope.profiling.window.profiler_window",
        "quantisation_impact": "stepscope.profiling.model.quantisation",
        "Repeats": "stepscope.profiling.model.timings",
    },
)
