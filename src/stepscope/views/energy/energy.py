"""Reports the energy, carbon dioxide and cost of a run, each with the method behind the figure."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stepscope.config.sections import Energy, recorded_energy
from stepscope.schema.run import deciding_process
from stepscope.views.energy.attribution import CPU_RULES, GPU_RULES, cpu_share, gpus_of, known_gpus
from stepscope.views.energy.cost import NO_ENERGY, Rented, carbon_dioxide, electricity, rent
from stepscope.views.energy.figure import Figure, unknown
from stepscope.views.energy.metering import from_counter, from_rate
from stepscope.views.energy.prices import load_tables
from stepscope.views.machine.readings import Readings
from stepscope.views.steps.workload import Counted, Workload, workload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.reading import Run
    from stepscope.views.energy.attribution import CpuRule, GpuRule
    from stepscope.views.energy.metering import Metered
    from stepscope.views.machine.readings import HostSegment, Meter

KWH = 3.6e6
"""Joules in a kilowatt-hour."""

GPU_COUNTER = "gpu/energy_joules_total"
GPU_POWER = "gpu/power_watts"

Kind = Literal["gpu", "cpu", "dram"]

NAMES: dict[Kind, str] = {"gpu": "GPU", "cpu": "CPU", "dram": "DRAM"}
COUNTERS: dict[Kind, str] = {"cpu": "energy/cpu_joules_total", "dram": "energy/dram_joules_total"}
NOT_MEASURED: dict[Kind, str] = {
    "gpu": "neither energy nor power of its GPUs was read",
    "cpu": "no energy counter (RAPL) of its hosts was read; the run's notices say why",
    "dram": "no energy counter of its hosts' memory was read; not all processors have one",
}

MIN_COUNTER_COVERAGE = 0.9
"""An energy counter that covers this share of the time is used; below it, power readings may cover more."""


@dataclass(frozen=True)
class DeviceEnergy:
    """The energy one device used for a run."""

    kind: Kind
    host: str
    device: str
    """UUID of a GPU; empty for the CPUs or the memory of a host."""
    name: str | None
    kwh: float | None
    """The run's share of the energy; None if it was not measured."""
    method: str | None
    live_seconds: float
    """How long the run used the device, without the time between segments."""
    covered_seconds: float
    """How much of `live_seconds` the measurements cover."""
    share_ratio: float
    """The share of the device's energy that is attributed to the run."""

    @property
    def covered_ratio(self) -> float:
        """The share of `live_seconds` that the measurements cover."""
        return self.covered_seconds / self.live_seconds if self.live_seconds else 0.0


@dataclass(frozen=True)
class EnergyReport:
    """The energy of a run, per device and in total, with its cost and emissions."""

    total: Figure
    gpu: Figure
    cpu: Figure
    dram: Figure
    covered_ratio: float | None
    """The share of the time that the measurements cover; None if no device was measured."""
    live_seconds: float
    """How long the run was live, without the time between its segments."""
    devices: tuple[DeviceEnergy, ...]
    workload: Workload
    per_step: Figure
    per_thousand_samples: Figure
    carbon_dioxide: Figure
    electricity: Figure
    cloud: Figure
    rented: tuple[Rented, ...]
    """The GPU-hours of each GPU model, and their price."""

    def cost(self, currency: str | None = None) -> Figure:
        """Returns the rent of the GPUs, or the cost of electricity where no rent is known in the currency."""
        for figure in (self.cloud, self.electricity):
            if figure.value is not None and currency in (None, figure.unit):
                return figure
        known = [figure.unit for figure in (self.cloud, self.electricity) if figure.value is not None]
        if known:
            why = f"it is known in {' and '.join(known)} only; set energy.gpu_price_per_hour"
            return unknown(currency or "", why)
        return self.electricity if self.electricity.how == NO_ENERGY else self.cloud

    def described(self) -> dict[str, Any]:
        """Returns the report as plain dictionaries, for JSON."""
        plain = asdict(self)
        for described, device in zip(plain["devices"], self.devices, strict=True):
            described["covered_ratio"] = device.covered_ratio
        return plain


def energy_of(run: Run, settings: Energy, now_ns: int | None = None) -> EnergyReport:
    """Returns the energy report of a run; a live run is measured until now.

    Without prices in the settings, those that the run was started with count.
    """
    settings = settings if settings != Energy() else recorded_prices(run)
    readings = Readings(run, time.time_ns() if now_ns is None else now_ns)
    tables = load_tables(settings)
    gpus, gpu = _gpus(run, readings)
    hosts, cpu, dram = _hosts(readings)
    total = _total({"gpu": gpu, "cpu": cpu, "dram": dram})
    workload = workload_of(run)
    rentals, cloud = rent([(gpu_energy.name, gpu_energy.live_seconds) for gpu_energy in gpus], tables)
    return EnergyReport(
        total=total,
        gpu=gpu,
        cpu=cpu,
        dram=dram,
        covered_ratio=_covered_ratio([*gpus, *hosts]),
        live_seconds=readings.live_seconds,
        devices=(*gpus, *hosts),
        workload=workload,
        per_step=_energy_per(total, workload.steps, KWH, "J"),
        per_thousand_samples=_energy_per(total, workload.samples, 1e6, "Wh"),
        carbon_dioxide=carbon_dioxide(total, settings, tables),
        electricity=electricity(total, settings),
        cloud=cloud,
        rented=rentals,
    )


def recorded_prices(run: Run) -> Energy:
    """Returns the energy settings that a run was started with."""
    process = deciding_process(process for segment in run.segments for process in segment.processes)
    return recorded_energy({} if process is None else process.facts)


def _gpus(run: Run, readings: Readings) -> tuple[list[DeviceEnergy], Figure]:
    known = known_gpus(run)
    rules: dict[GpuRule, str] = {}
    measured = []
    for host_segment in readings.host_segments:
        devices, rule = gpus_of(readings, host_segment, known)
        for device in devices:
            rules[rule] = GPU_RULES[rule]
            name = known[host_segment.host, device].name if (host_segment.host, device) in known else None
            measured.append(_gpu(readings, host_segment, device, name))
    gpus = _by_device(measured)
    if gpus:
        return gpus, _sum(gpus, " and ".join(rules.values()), NOT_MEASURED["gpu"])
    if any(readings.devices(host_segment, "gpu/") for host_segment in readings.host_segments):
        return [], Figure(0.0, "kWh", "none visible", "the run could see none of its hosts' GPUs")
    return [], unknown("kWh", "no GPU was read")


def _gpu(readings: Readings, host_segment: HostSegment, device: str, name: str | None) -> DeviceEnergy:
    """Reads a GPU's energy counter, or its power where that covers more of the time."""
    counted = _read(readings, host_segment, GPU_COUNTER, device, from_counter)
    measured, method = counted, "counter"
    if counted.covered_seconds < MIN_COUNTER_COVERAGE * host_segment.seconds:
        integrated = _read(readings, host_segment, GPU_POWER, device, from_rate)
        if integrated.covered_seconds > counted.covered_seconds:
            measured, method = integrated, "power"
    return _device(
        DeviceEnergy("gpu", host_segment.host, device, name, None, None, host_segment.seconds, 0.0, 1.0),
        measured,
        method,
    )


def _hosts(readings: Readings) -> tuple[list[DeviceEnergy], Figure, Figure]:
    rules: dict[CpuRule, str] = {}
    measured = []
    for host_segment in readings.host_segments:
        share, rule = cpu_share(readings, host_segment)
        rules[rule] = CPU_RULES[rule]
        measured.append(_host(readings, host_segment, "cpu", share))
        measured.append(_host(readings, host_segment, "dram", share))
    hosts = _by_device(measured)
    how = " and ".join(rules.values())
    kinds: tuple[Kind, Kind] = ("cpu", "dram")
    cpu, dram = (
        _sum([device for device in hosts if device.kind == kind], how, NOT_MEASURED[kind]) for kind in kinds
    )
    return hosts, cpu, dram


def _host(readings: Readings, host_segment: HostSegment, kind: Kind, share: float) -> DeviceEnergy:
    measured = _read(readings, host_segment, COUNTERS[kind], "", from_counter)
    return _device(
        DeviceEnergy(kind, host_segment.host, "", None, None, None, host_segment.seconds, 0.0, share),
        measured,
        "RAPL",
    )


def _read(readings: Readings, host_segment: HostSegment, key: str, device: str, meter: Meter) -> Metered:
    return readings.metered(host_segment, readings.sources(host_segment, key, device), key, meter)


def _device(unmeasured: DeviceEnergy, measured: Metered, method: str) -> DeviceEnergy:
    if measured.covered_seconds <= 0:
        return unmeasured
    kwh = measured.amount * unmeasured.share_ratio / KWH
    return replace(unmeasured, kwh=kwh, method=method, covered_seconds=measured.covered_seconds)


def _by_device(parts: Iterable[DeviceEnergy]) -> list[DeviceEnergy]:
    """Combines the measurements of all segments into one for each device."""
    groups: dict[tuple[Kind, str, str], list[DeviceEnergy]] = {}
    for part in parts:
        groups.setdefault((part.kind, part.host, part.device), []).append(part)
    return [_over_segments(members) for members in groups.values()]


def _over_segments(parts: Sequence[DeviceEnergy]) -> DeviceEnergy:
    live_seconds = sum(part.live_seconds for part in parts)
    shares = sum(part.share_ratio * part.live_seconds for part in parts)
    return replace(
        parts[-1],
        kwh=_known_sum(part.kwh for part in parts),
        method=_methods(parts),
        live_seconds=live_seconds,
        covered_seconds=sum(part.covered_seconds for part in parts),
        share_ratio=shares / live_seconds if live_seconds else parts[-1].share_ratio,
    )


def _sum(devices: Sequence[DeviceEnergy], how: str, why_not: str) -> Figure:
    """Adds up devices of one kind; the text says how many were not measured."""
    measured = [device for device in devices if device.kwh is not None]
    if not measured:
        return unknown("kWh", why_not)
    if len(measured) < len(devices):
        how += f"; {len(devices) - len(measured)} of {len(devices)} not measured"
    ratio = _covered_ratio(measured)
    if ratio is not None and ratio < 0.995:
        how += f"; known for {ratio:.0%} of the time, nothing is added for the rest"
    return Figure(_known_sum(device.kwh for device in measured), "kWh", _methods(measured), how)


def _total(parts: dict[Kind, Figure]) -> Figure:
    known = [NAMES[kind] for kind, figure in parts.items() if figure.value is not None]
    missing = [f"{NAMES[kind]} ({figure.how})" for kind, figure in parts.items() if figure.value is None]
    if not known:
        return unknown("kWh", f"not measured: {'; '.join(missing)}")
    how = f"sum of {', '.join(known)}"
    if missing:
        how += f"; without {'; '.join(missing)}"
    return Figure(_known_sum(figure.value for figure in parts.values()), "kWh", "sum", how)


def _energy_per(energy: Figure, counted: Counted, scale: float, unit: str) -> Figure:
    """Returns the energy per step or per sample, in another unit."""
    if energy.value is None:
        return unknown(unit, NO_ENERGY)
    if not counted.value:
        return unknown(unit, counted.how)
    return Figure(energy.value * scale / counted.value, unit, None, f"energy / {counted.how}")


def _covered_ratio(devices: Sequence[DeviceEnergy]) -> float | None:
    measured = [device for device in devices if device.kwh is not None]
    live_seconds = sum(device.live_seconds for device in measured)
    return sum(device.covered_seconds for device in measured) / live_seconds if live_seconds else None


def _known_sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _methods(devices: Iterable[DeviceEnergy]) -> str | None:
    return " and ".join(sorted({device.method for device in devices if device.method is not None})) or None
