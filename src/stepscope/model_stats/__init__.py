"""Statistics of a model: gradients, weights, activations, attention."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # as type checkers read it; importing typing would take longer than this
if TYPE_CHECKING:
    from stepscope.model_stats.activations import Activations
    from stepscope.model_stats.gradient_monitor import GradientMonitor
    from stepscope.model_stats.histograms import Histograms

__all__ = ["Activations", "GradientMonitor", "Histograms"]

__getattr__ = lazy_names(
    globals(),
    {
        "Activations": "stepscope.model_stats.activations",
        "GradientMonitor": "stepscope.model_stats.gradient_monitor",
        "Histograms": "stepscope.model_stats.histograms",
    },
)
