"""Names the GPUs of a run for people, and decides which of them count for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.devices.gpu_driver import visible_gpus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from stepscope.devices.gpu import GpuFacts
    from stepscope.reading import Run
    from stepscope.views.metrics.series_summaries import HostDevice, SeriesSummaries

PROCESS_KEYS = ("gpu/process_memory_bytes", "gpu/process_utilization_ratio")
"""Keys of a GPU that are sampled only if a process of the run uses it."""


def label_of(host_device: HostDevice, facts: Mapping[HostDevice, GpuFacts], *, several_hosts: bool) -> str:
    """Returns a label such as `gpu 3`, with the host if there are several; the id of an unknown device."""
    host, device = host_device
    known = facts.get(host_device)
    name = device or "gpu"
    if known is not None:
        name = f"gpu {known.index}"
        if known.parent_uuid is not None:
            name += f" slice {known.gpu_instance}"
    return f"{host} {name}" if several_hosts else name


def own_gpus(run: Run, summaries: SeriesSummaries, facts: Mapping[HostDevice, GpuFacts]) -> set[HostDevice]:
    """Returns the GPUs that a process of the run used; otherwise those it could see, otherwise all."""
    used = {
        (summary.source.host, summary.source.device)
        for key in PROCESS_KEYS
        for summary in summaries.sampled(key)
        if summary.source.rank is not None
    }
    if used:
        return used
    seen = {
        (summary.source.host, summary.source.device)
        for summary in summaries.sampled("gpu/utilization_ratio") + summaries.sampled("gpu/memory_used_bytes")
        if summary.source.device
    }
    return _visible(run, seen, facts) or seen


def _visible(run: Run, gpus: Collection[HostDevice], facts: Mapping[HostDevice, GpuFacts]) -> set[HostDevice]:
    if not gpus or any(host_device not in facts for host_device in gpus):
        return set()
    visible: set[HostDevice] = set()
    for segment in run.segments[-1:]:
        for process in segment.processes:
            host_gpus = [facts[host_device] for host_device in gpus if host_device[0] == process.host]
            uuids = visible_gpus(process.facts.get("environment", {}), host_gpus)
            if process.role == "worker" or None in uuids:
                continue
            visible.update((process.host, uuid) for uuid in uuids if uuid is not None)
    return visible & set(gpus)
