"""Draws docs/metrics.md from what the samplers declare, with `python -m tests.guards.metrics_page`."""

from __future__ import annotations

from stepscope import plugins
from stepscope.agent import exporter_reports, own_cost
from stepscope.samplers.base import Sampler

HEAD = """# Metrics

The metrics that each sampler reads from a machine while a run is live. A metric that a machine or a device
does not report is absent, never zero. The unit is at the end of the name: ratios are from 0 to 1, bytes are
bytes, and a name that ends in `_total` is a counter. How to read, export and set them: [Watching the
machine](machine.md).

Names are added, never changed.
"""


def drawn() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in plugins.names("samplers"):
        metrics = plugins.load("samplers", name, Sampler).metrics
        parts.append(f"\n## {name}\n\n| metric | meaning |\n|---|---|\n")
        parts += [f"| `{metric.key}` | {metric.sentence} |\n" for metric in metrics]
    parts.append("\n## Overhead of stepscope\n\n| metric | meaning |\n|---|---|\n")
    parts += [f"| `{metric.key}` | {metric.sentence} |\n" for metric in own_cost.METRICS]
    parts.append("\n## Exporters\n\n| metric | meaning |\n|---|---|\n")
    parts += [f"| `{metric.key}` | {metric.sentence} |\n" for metric in exporter_reports.METRICS]
    return "".join(parts)


if __name__ == "__main__":
    print(drawn(), end="")
