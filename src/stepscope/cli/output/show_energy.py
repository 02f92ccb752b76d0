"""Formats the energy, carbon dioxide and cost of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.cli.output.text import safe

if TYPE_CHECKING:
    from stepscope.views.energy.energy import EnergyReport
    from stepscope.views.energy.figure import Figure


def energy_lines(report: EnergyReport) -> list[str]:
    """Three to five lines; none where no energy was measured."""
    if report.total.value is None:
        return []
    parts = {"GPU": report.gpu, "CPU": report.cpu, "DRAM": report.dram}
    measured = [
        f"{name} {_kwh(figure)} by {figure.method}"
        for name, figure in parts.items()
        if figure.value is not None
    ]
    lines = [f"energy   {_kwh(report.total)} ({', '.join(measured)})"]
    rates = [
        f"{figure.value:.3g} {figure.unit} a {thing}"
        for thing, figure in (("step", report.per_step), ("thousand samples", report.per_thousand_samples))
        if figure.value is not None
    ]
    if rates:
        lines.append(f"         {', '.join(rates)}")
    if report.carbon_dioxide.value is None:
        lines.append(f"CO2      unknown: {report.carbon_dioxide.how}")
    else:
        lines.append(f"CO2      {report.carbon_dioxide.value:.3g} kg ({report.carbon_dioxide.method})")
    lines += _cost_lines(report)
    return [safe(line) for line in lines]


def _cost_lines(report: EnergyReport) -> list[str]:
    lines = []
    if report.electricity.value is not None:
        lines.append(f"cost     {report.electricity.value:.4g} {report.electricity.unit} of electricity")
    for rent in report.rented:
        hours = f"{rent.gpu_hours:.3g} GPU-hours of {rent.gpu or 'a GPU without a name'}"
        if rent.amount is None:
            lines.append(f"cost     unknown: {hours}, and no price; set energy.gpu_price_per_hour")
        else:
            source = ", ".join(part for part in (rent.provider, rent.date) if part)
            price = f"{rent.per_hour:g} an hour ({source})"
            lines.append(f"cost     {rent.amount:.4g} {rent.currency}: {hours} at {price}")
    return lines


def _kwh(figure: Figure) -> str:
    value = figure.value or 0.0
    return f"{value:.3g} kWh" if value >= 0.01 else f"{value * 1000:.3g} Wh"
