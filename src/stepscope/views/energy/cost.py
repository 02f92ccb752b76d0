"""Computes what the energy and the GPUs of a run cost, and how much carbon dioxide they emit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.views.energy.figure import Figure, unknown
from stepscope.views.energy.prices import CarbonIntensity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.config.sections import Energy
    from stepscope.views.energy.prices import Tables

NO_ENERGY = "the energy of the run is not known"
NO_REGION = "set energy.region or energy.carbon_grams_per_kwh to estimate it"
NO_ELECTRICITY_PRICE = "set energy.electricity_price_per_kwh to estimate it"
NO_GPU_PRICE = "set energy.gpu_price_per_hour to estimate it"


@dataclass(frozen=True)
class Rented:
    """The GPU-hours of one GPU model, and what they would cost in a cloud."""

    gpu: str | None
    gpu_hours: float
    amount: float | None
    """None if no price is known."""
    per_hour: float | None
    currency: str | None
    provider: str | None
    offer: str | None
    date: str | None
    source: str | None


def carbon_dioxide(energy: Figure, settings: Energy, tables: Tables) -> Figure:
    """Returns the kilograms of carbon dioxide, from the mean carbon intensity of the region's grid."""
    if energy.value is None:
        return unknown("kg", NO_ENERGY)
    carbon = _carbon(settings, tables)
    if isinstance(carbon, str):
        return unknown("kg", carbon)
    label = carbon.region if carbon.year is None else f"{carbon.region}, {carbon.year}"
    return Figure(
        energy.value * settings.pue * carbon.grams_per_kwh / 1000,
        "kg",
        label,
        f"energy x {settings.pue:g} (PUE) x {carbon.grams_per_kwh:g} g/kWh ({carbon.name})",
        carbon.source,
    )


def electricity(energy: Figure, settings: Energy) -> Figure:
    """Returns the cost of the energy."""
    price = settings.electricity_price_per_kwh
    if price is None:
        return unknown(settings.currency, NO_ELECTRICITY_PRICE)
    if energy.value is None:
        return unknown(settings.currency, NO_ENERGY)
    return Figure(
        energy.value * settings.pue * price,
        settings.currency,
        "electricity",
        f"energy x {settings.pue:g} (PUE) x {price:g} {settings.currency}/kWh",
        "energy.electricity_price_per_kwh",
    )


def rent(gpus: Iterable[tuple[str | None, float]], tables: Tables) -> tuple[tuple[Rented, ...], Figure]:
    """Returns what GPUs, given as name and seconds, would cost in a cloud: per model and in total."""
    seconds: dict[str | None, float] = {}
    for name, live_seconds in gpus:
        seconds[name] = seconds.get(name, 0.0) + live_seconds
    rentals = tuple(_rented(name, live_seconds / 3600, tables) for name, live_seconds in seconds.items())
    return rentals, _sum(rentals)


def _rented(gpu: str | None, gpu_hours: float, tables: Tables) -> Rented:
    price = None if gpu is None else tables.price_of(gpu)
    if price is None:
        return Rented(gpu, gpu_hours, None, None, None, None, None, None, None)
    return Rented(
        gpu,
        gpu_hours,
        gpu_hours * price.per_hour,
        price.per_hour,
        price.currency,
        price.provider,
        price.offer or None,
        price.date or None,
        price.source,
    )


def _sum(rentals: tuple[Rented, ...]) -> Figure:
    currencies = sorted({rental.currency for rental in rentals if rental.currency is not None})
    unit = currencies[0] if len(currencies) == 1 else ""
    if not rentals:
        return unknown(unit, "no GPU is attributed to the run")
    unpriced = [rental.gpu or "a GPU without a name" for rental in rentals if rental.amount is None]
    if unpriced:
        return unknown(unit, f"no price is known for {', '.join(unpriced)}; {NO_GPU_PRICE}")
    if len(currencies) > 1:
        return unknown("", f"prices are in {' and '.join(currencies)}, which cannot be added up")
    return Figure(
        sum(rental.amount or 0.0 for rental in rentals),
        unit,
        "cloud",
        "GPU-hours while the run was live x price per hour; list prices at their date",
        "; ".join(sorted({rental.source for rental in rentals if rental.source is not None})),
    )


def _carbon(settings: Energy, tables: Tables) -> CarbonIntensity | str:
    """Returns the carbon intensity of the grid, or why it is not known."""
    grams_per_kwh, region = settings.carbon_grams_per_kwh, settings.region
    if grams_per_kwh is not None:
        region_name = region or "settings"
        return CarbonIntensity(
            region_name, "your settings", grams_per_kwh, None, "energy.carbon_grams_per_kwh"
        )
    if region is None:
        return NO_REGION
    carbon = tables.carbon_of(region)
    if carbon is None:
        return f"energy.region is {region!r}, which is not in the table; {NO_REGION}"
    return carbon
