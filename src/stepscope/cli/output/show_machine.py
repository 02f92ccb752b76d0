"""Formats the figures of the machine during a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.cli.output import text
from stepscope.cli.output.table import Column, table
from stepscope.views.formatting import size
from stepscope.views.machine.machine_figures import MachineFigure, machine_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.reading import Run

MAX_FIGURES = 40

_UNITS: dict[str, Callable[[float], str]] = {
    "_ratio": lambda value: f"{value:.0%}" if value >= 0.0995 or value == 0 else f"{value:.1%}",
    "_bytes_per_second": lambda value: f"{size(value)}/s",
    "_bytes": size,
    "_celsius": lambda value: f"{value:.0f} °C",
    "_watts": lambda value: f"{value:.0f} W",
    "_hertz": lambda value: f"{value / 1e6:.0f} MHz",
}


def device_lines(run: Run) -> list[str]:
    """A line for each GPU of the run."""
    lines = []
    for event in run.own_events("device"):
        fields = event.fields
        if "vendor" in fields:
            memory = fields.get("memory_total_bytes")
            capacity = f", {size(memory)}" if memory else ""
            driver = f", driver {fields['driver']}" if fields.get("driver") else ""
            lines.append(text.safe(f"gpu {fields['index']}: {fields['name']}{capacity}{driver}"))
    return list(dict.fromkeys(lines))


def machine_lines(run: Run, pattern: str | None, limit: int | None, sparks: int) -> list[str]:
    """A line for each figure: its device, mean, minimum, maximum and trend."""
    figures = list(machine_figures(run, pattern, sparks))
    if not figures:
        return []
    shown = figures[: MAX_FIGURES if limit is None else limit]
    columns = [
        Column("KEY", elastic=True),
        Column("OF"),
        Column("MEAN", right=True),
        Column("MIN", right=True),
        Column("MAX", right=True),
        Column("TREND"),
    ]
    lines = table(columns, [_cells(figure) for figure in shown], text.screen_width() - 2)
    if len(shown) < len(figures):
        more = f"{len(figures) - len(shown):,} more: choose with --keys, or raise --limit"
        lines.append(text.paint(more, "faint"))
    return lines


def _cells(figure: MachineFigure) -> list[str]:
    heights = text.bucket_heights(figure.buckets)
    numbers = [_number(figure.key, value) for value in (figure.mean, figure.minimum, figure.maximum)]
    return [figure.key, figure.label or "host", *numbers, text.sparkline(heights)]


def _number(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    for ending, form in _UNITS.items():
        if key.endswith(ending):
            return form(value)
    return text.number(value)
