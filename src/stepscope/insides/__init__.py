"""What goes on inside a model: gradients, weights, activations, attention."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # as type checkers read it; importing typing would take longer than this
if TYPE_CHECKING:
    from stepscope.insides.activations import Activations
    from stepscope.insides.gradient_monitor import GradientMonitor
    from stepscope.insides.histograms import Histograms

__all__ = ["Activations", "GradientMonitor", "Histograms"]

__getattr__ = lazy_names(
    globals(),
    {
        "Activations": "stepscope.insides.activations",
        "GradientMonitor": "stepscope.insides.gradient_monitor",
        "Histograms": "stepscope.insides.histograms",
    },
)
