"""PyTorch profiler windows, model profile, quantisation impact, loader throughput."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # as type checkers read it; importing typing would take longer than this
if TYPE_CHECKING:
    from stepscope.profiling.batches_taken import Limits
    from stepscope.profiling.loader import loader_throughput
    from stepscope.profiling.model import ModelProfiler
    from stepscope.profiling.quantisation import quantisation_impact
    from stepscope.profiling.timings import Repeats
    from stepscope.profiling.window import ProfilerWindow

__all__ = ["Limits", "loader_throughput", "ModelProfiler", "ProfilerWindow", "quantisation_impact", "Repeats"]  # noqa: RUF022 - sorted as people read

__getattr__ = lazy_names(
    globals(),
    {
        "Limits": "stepscope.profiling.batches_taken",
        "loader_throughput": "stepscope.profiling.loader",
        "ModelProfiler": "stepscope.profiling.model",
        "ProfilerWindow": "stepscope.profiling.window",
        "quantisation_impact": "stepscope.profiling.quantisation",
        "Repeats": "stepscope.profiling.timings",
    },
)
