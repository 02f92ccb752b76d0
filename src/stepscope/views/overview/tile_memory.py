"""The memory tile: peak usage, free and unused memory, and leaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.analysis.verdict import rank_of
from stepscope.views.formatting import percent, size
from stepscope.views.json_values import clean
from stepscope.views.machine.gpu_names import label_of
from stepscope.views.overview.tile import Tile, state_of_finding, unknown_tile, worst_state
from stepscope.views.run_figures import SPARKS, spark_of

if TYPE_CHECKING:
    from stepscope.views.overview.tile import State
    from stepscope.views.run_context import RunContext

USED, TOTAL = "gpu/memory_used_bytes", "gpu/memory_total_bytes"
PEAK, RESERVED, ALLOCATED = "memory/peak_bytes", "memory/reserved_bytes", "memory/allocated_bytes"
RESIDENT, HOST_USED = "process/rss_bytes", "memory/used_bytes"
HOST_TOTAL, CGROUP_LIMIT = "memory/total_bytes", "memory/cgroup_limit_bytes"

MIN_TIGHT_RATIO, MIN_FULL_RATIO = 0.92, 0.97
"""Used shares of the memory from which little, or almost none, is free."""

LEAKS = ("hostmem.leak", "mem.leak")
"""The checks that judge whether memory grows without end."""

MIN_UNUSED_RATIO = 0.2
"""A larger share of reserved memory without tensors is mentioned."""


def memory_tile(context: RunContext) -> Tile:
    """Returns the memory of the fullest GPU; of the host where there is no GPU."""
    used = context.keep_own_gpus(context.summaries.max_by_device(USED))
    totals = context.keep_own_gpus(context.summaries.max_by_device(TOTAL))
    shares = {
        host_device: used_bytes / totals[host_device]
        for host_device, used_bytes in used.items()
        if totals.get(host_device)
    }
    if not shares:
        return _host_tile(context)
    fullest = max(shares, key=lambda host_device: shares[host_device])
    name = label_of(fullest, context.gpus, several_hosts=len({host for host, _ in shares}) > 1)
    detail = [f"peak of {name}"] if len(shares) > 1 else ["peak"]
    detail.append(f"{size(totals[fullest] - used[fullest])} left")
    detail += _unused_memory(context)
    state, state_text = _state(shares[fullest])
    leak_state, leak = _leak(context)
    return Tile(
        "memory",
        "GPU memory",
        f"{size(used[fullest])} of {size(totals[fullest])}",
        (*detail, *leak),
        worst_state(state, leak_state),
        leak[0] if leak and leak_state != "ok" else state_text,
        spark_of(context.run.buckets(USED, SPARKS, host=fullest[0], device=fullest[1], axis="seconds")),
        None,
        USED,
    )


def _host_tile(context: RunContext) -> Tile:
    """Returns the memory of the processes, compared with that of the host or its container."""
    resident = context.summaries.max_by_device(RESIDENT)
    key = RESIDENT if resident else HOST_USED
    by_host: dict[str, float] = {}
    for (host, _), used_bytes in (resident or context.summaries.max_by_device(key)).items():
        by_host[host] = max(by_host.get(host, 0.0), used_bytes)
    if not by_host:
        return unknown_tile("memory", "Memory", "no memory was read")
    host = max(by_host, key=lambda name: by_host[name])
    total = context.summaries.max_by_device(HOST_TOTAL).get((host, ""), 0.0)
    group = context.summaries.max_by_device(CGROUP_LIMIT).get((host, ""), 0.0)
    # Other programs use part of the host's memory.
    used = max(by_host[host], context.summaries.max_by_device(HOST_USED).get((host, ""), 0.0))
    limits = [(limit, taken) for limit, taken in ((total, used), (group, by_host[host])) if limit > 0]
    leak_state, leak = _leak(context)
    detail = ["peak of a process" if resident else "peak of the host"]
    state: State = "unknown"
    state_text, value = "no limit is known", size(by_host[host])
    if limits:
        limit, taken = min(limits, key=lambda limit_and_use: limit_and_use[0] - limit_and_use[1])
        detail.append(f"{size(max(limit - taken, 0.0))} left")
        value = f"{value} of {size(limit)}"
        state, state_text = _state(taken / limit)
    return Tile(
        "memory",
        "Memory",
        value,
        (*detail, *leak),
        worst_state(state, leak_state),
        leak[0] if leak and leak_state != "ok" else state_text,
        spark_of(context.run.buckets(key, SPARKS, host=host, axis="seconds")),
        None,
        key,
    )


def _state(share: float) -> tuple[State, str]:
    if share >= MIN_FULL_RATIO:
        return "bad", f"{percent(share)} full: the next step may fail"
    if share >= MIN_TIGHT_RATIO:
        return "warn", f"{percent(share)} full"
    return "ok", f"{percent(1 - share)} headroom"


def _unused_memory(context: RunContext) -> list[str]:
    """Returns how much memory PyTorch had reserved without tensors, at the peak of reserved memory."""
    reserved = [summary for summary in context.summaries.logged(RESERVED) if summary.maximum]
    if not reserved:
        return []
    largest = max(reserved, key=lambda summary: summary.maximum or 0.0)
    key = PEAK if context.summaries.logged(PEAK) else ALLOCATED
    in_use = [
        summary.maximum
        for summary in context.summaries.logged(key, largest.source.rank)
        if summary.maximum is not None
    ]
    if not in_use or largest.maximum is None:
        return []
    unused = max(largest.maximum - max(in_use), 0.0)
    return [f"{size(unused)} reserved but unused"] if unused >= MIN_UNUSED_RATIO * largest.maximum else []


def _leak(context: RunContext) -> tuple[State, list[str]]:
    """Returns the state and text of the worst leak that a check has found; "ok" if there is none."""
    leaks = [context.findings[name] for name in LEAKS if name in context.findings]
    if not leaks:
        return "ok", []
    worst = min(leaks, key=lambda finding: rank_of(str(finding.get("severity"))))
    return state_of_finding(worst), [clean(worst.get("headline"), 300).removesuffix(".")]
