"""The tile of GPU utilization, mean and worst; of CPU utilization where there is no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.number_format import number
from stepscope.views.formatting import percent
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.overview.tile import Tile, unknown_tile
from stepscope.views.run_figures import SPARKS, UTILIZATION, spark_of

if TYPE_CHECKING:
    from stepscope.views.metrics.series_summaries import HostDevice
    from stepscope.views.overview.tile import State
    from stepscope.views.run_context import RunContext

MAX_IDLE_RATIO, MAX_LOW_RATIO = 0.3, 0.6
"""Below the first ratio GPUs are mostly idle, below the second they are underused."""

MAX_BELOW_MEAN = 0.2
"""A GPU whose utilization is this far below the mean of all GPUs is named."""

ACTIVE = "gpu/sm_active_ratio"
POWER, POWER_LIMIT, ENERGY = "gpu/power_watts", "gpu/power_limit_watts", "gpu/energy_joules_total"
CPU, IO_WAIT = "cpu/utilization_ratio", "cpu/iowait_ratio"


def gpu_tile(context: RunContext) -> Tile:
    """Returns the tile of GPU utilization."""
    means = utilization_by_gpu(context)
    if not means:
        return _cpu_tile(context)
    mean = sum(means.values()) / len(means)
    worst = min(means, key=lambda host_device: (means[host_device], host_device))
    detail = []
    if len(means) > 1:
        detail.append(f"worst {_label(context, worst, means)}: {percent(means[worst])}")
    active = context.keep_own_gpus(context.summaries.mean_by_device(ACTIVE))
    if active:
        detail.append(f"compute units busy {percent(sum(active.values()) / len(active))}")
    detail += _power(context)
    state, state_text = _state(mean, means[worst], _label(context, worst, means))
    return Tile(
        "gpu",
        "GPU" if len(means) == 1 else f"{len(means)} GPUs",
        percent(mean),
        tuple(detail),
        state,
        state_text,
        _spark(context, UTILIZATION),
        None,
        UTILIZATION,
    )


def utilization_by_gpu(context: RunContext) -> dict[HostDevice, float]:
    """Returns the mean utilization of each GPU that counts for the run."""
    return context.keep_own_gpus(context.summaries.mean_by_device(UTILIZATION))


def utilization_by_host(context: RunContext) -> dict[HostDevice, float]:
    """Returns the mean utilization of the processors of each host."""
    means = context.summaries.mean_by_device(CPU)
    return {host_device: mean for host_device, mean in means.items() if not host_device[1]}


def _cpu_tile(context: RunContext) -> Tile:
    means = utilization_by_host(context)
    if not means:
        return unknown_tile("gpu", "GPU", "no GPU was seen, the CPU was not read")
    mean = sum(means.values()) / len(means)
    detail = ["no GPU was seen"]
    waits = {
        host_device: mean
        for host_device, mean in context.summaries.mean_by_device(IO_WAIT).items()
        if not host_device[1]
    }
    if waits:
        detail.append(f"waiting for disks {percent(max(waits.values()))}")
    if len(means) > 1:
        least_busy = min(means, key=lambda host_device: means[host_device])
        detail.append(f"least busy {least_busy[0]}: {percent(means[least_busy])}")
    return Tile(
        "gpu",
        "CPU",
        percent(mean),
        tuple(detail),
        "none",
        "of the whole machine",
        _spark(context, CPU),
        None,
        CPU,
    )


def _state(mean: float, worst: float, name: str) -> tuple[State, str]:
    if mean < MAX_IDLE_RATIO:
        return "bad", "mostly idle"
    if worst < mean - MAX_BELOW_MEAN:
        return "warn", f"{name} is less busy than the others"
    return ("warn", "underused") if mean < MAX_LOW_RATIO else ("ok", "busy")


def _power(context: RunContext) -> list[str]:
    power = context.keep_own_gpus(context.summaries.mean_by_device(POWER))
    if not power:
        return []
    limits = context.keep_own_gpus(context.summaries.max_by_device(POWER_LIMIT))
    drawn = f"{number(round(sum(power.values())))} W"
    if limits:
        drawn += f" of {number(round(sum(limits.values())))} W"
    used = _watt_hours(context)
    return [drawn if used is None else f"{drawn} · {number(used, 3)} Wh"]


def _watt_hours(context: RunContext) -> float | None:
    """Returns the energy from the GPUs' counters, summed over segments."""
    used_joules = [
        summary.maximum - summary.minimum
        for summary in context.summaries.sampled(ENERGY)
        if summary.maximum is not None
        and summary.minimum is not None
        and (summary.source.host, summary.source.device) in context.own_gpus
    ]
    return sum(used_joules) / 3600 if used_joules else None


def _label(context: RunContext, host_device: HostDevice, means: dict[HostDevice, float]) -> str:
    return label_of(host_device, context.gpus, several_hosts=len({host for host, _ in means}) > 1)


def _spark(context: RunContext, key: str) -> tuple[float | None, ...]:
    device = None if key == UTILIZATION else ""
    return spark_of(context.run.buckets(key, SPARKS, device=device, axis="seconds"))
