"""The tile of memory: the most that was taken, what is left, what is wasted, and whether it leaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.views.machine.gpu_names import label_of
from stepscope.views.machine.leaks import leaks_of
from stepscope.views.overview.tile import Tile, unknown_tile, worst_state
from stepscope.views.run_figures import SPARKS, spark_of
from stepscope.views.wording import duration, percent, size

if TYPE_CHECKING:
    from stepscope.views.overview.tile import State
    from stepscope.views.run_context import RunContext

USED, TOTAL = "gpu/memory_used_bytes", "gpu/memory_total_bytes"
PEAK, RESERVED, ALLOCATED = "memory/peak_bytes", "memory/reserved_bytes", "memory/allocated_bytes"
RESIDENT, HOST_USED = "process/rss_bytes", "memory/used_bytes"
HOST_TOTAL, CGROUP_LIMIT = "memory/total_bytes", "memory/cgroup_limit_bytes"

TIGHT, FULL = 0.92, 0.97
"""Shares of the memory there is from which there is little, or no, room left."""

MEMORY_OF = {
    ALLOCATED: "memory of tensors",
    "process/uss_bytes": "process memory",
    RESIDENT: "process memory",
}
"""What a sentence calls the memory that is watched for leaks."""

WASTED = 0.2
"""A share of reserved memory that no tensor has is worth a word."""


def memory_tile(context: RunContext, remaining_s: float | None) -> Tile:
    """How much memory a run takes of the GPU that is fullest; of the host where there is none."""
    used = context.of_own_gpus(context.summaries.max_by_place(USED))
    totals = context.of_own_gpus(context.summaries.max_by_place(TOTAL))
    shares = {place: most / totals[place] for place, most in used.items() if totals.get(place)}
    if not shares:
        return _without_gpu(context, remaining_s)
    fullest = max(shares, key=lambda place: shares[place])
    name = label_of(fullest, context.gpus, several_hosts=len({host for host, _ in shares}) > 1)
    detail = [f"peak of {name}"] if len(shares) > 1 else ["peak"]
    detail.append(f"{size(totals[fullest] - used[fullest])} left")
    detail += _wasted(context)
    state, told = _judged(shares[fullest])
    leak_state, leak = _leak(context, remaining_s)
    return Tile(
        "memory",
        "GPU memory",
        f"{size(used[fullest])} of {size(totals[fullest])}",
        (*detail, *leak),
        worst_state(state, leak_state),
        leak[0] if leak and leak_state != "ok" else told,
        spark_of(context.run.buckets(USED, SPARKS, host=fullest[0], device=fullest[1], axis="seconds")),
        None,
        USED,
    )


def _without_gpu(context: RunContext, remaining_s: float | None) -> Tile:
    """The memory of the processes, against that of the host or its container."""
    resident = context.summaries.max_by_place(RESIDENT)
    key = RESIDENT if resident else HOST_USED
    by_host: dict[str, float] = {}
    for (host, _), most in (resident or context.summaries.max_by_place(key)).items():
        by_host[host] = max(by_host.get(host, 0.0), most)
    if not by_host:
        return unknown_tile("memory", "Memory", "no memory was read")
    host = max(by_host, key=lambda one: by_host[one])
    total = context.summaries.max_by_place(HOST_TOTAL).get((host, ""), 0.0)
    group = context.summaries.max_by_place(CGROUP_LIMIT).get((host, ""), 0.0)
    # Of the host's memory other programs take their share.
    used = max(by_host[host], context.summaries.max_by_place(HOST_USED).get((host, ""), 0.0))
    limits = [(limit, taken) for limit, taken in ((total, used), (group, by_host[host])) if limit > 0]
    leak_state, leak = _leak(context, remaining_s)
    detail = ["peak of a process" if resident else "peak of the host"]
    state: State = "unknown"
    told, value = "no limit is known", size(by_host[host])
    if limits:
        limit, taken = min(limits, key=lambda one: one[0] - one[1])
        detail.append(f"{size(max(limit - taken, 0.0))} left")
        value = f"{value} of {size(limit)}"
        state, told = _judged(taken / limit)
    return Tile(
        "memory",
        "Memory",
        value,
        (*detail, *leak),
        worst_state(state, leak_state),
        leak[0] if leak and leak_state != "ok" else told,
        spark_of(context.run.buckets(key, SPARKS, host=host, axis="seconds")),
        None,
        key,
    )


def _judged(share: float) -> tuple[State, str]:
    if share >= FULL:
        return "bad", f"{percent(share)} full: the next step may fail"
    if share >= TIGHT:
        return "warn", f"{percent(share)} full"
    return "ok", f"{percent(1 - share)} headroom"


def _wasted(context: RunContext) -> list[str]:
    """Memory that PyTorch holds back and no tensor has, when it held most."""
    reserved = [one for one in context.summaries.logged(RESERVED) if one.maximum]
    if not reserved:
        return []
    most = max(reserved, key=lambda one: one.maximum or 0.0)
    key = PEAK if context.summaries.logged(PEAK) else ALLOCATED
    held = [one.maximum for one in context.summaries.logged(key, most.source.rank) if one.maximum is not None]
    if not held or most.maximum is None:
        return []
    idle = max(most.maximum - max(held), 0.0)
    return [f"{size(idle)} reserved and not in use"] if idle >= WASTED * most.maximum else []


def _leak(context: RunContext, remaining_s: float | None) -> tuple[State, list[str]]:
    """What the worst series of memory says; nothing where none certainly grows."""
    for verdict in leaks_of(context.run, remaining_s, context.now_ns):
        growth = verdict.growth
        if growth.per_hour is None or not growth.goes_on:
            continue
        told = f"{MEMORY_OF.get(verdict.key, 'memory')} grows by {size(growth.per_hour.value)} an hour"
        if verdict.is_leak and verdict.seconds_to_limit is not None:
            return "bad", [f"{told}, and is full in {duration(verdict.seconds_to_limit)}"]
        return ("warn" if verdict.is_leak is None else "ok"), [told]
    return "ok", []
