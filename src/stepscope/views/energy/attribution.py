"""Decides which GPUs, and which share of the CPU energy of its hosts, count for a run."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from stepscope.devices.gpu import GpuFacts
from stepscope.devices.gpu_driver import visible_gpus
from stepscope.views.energy.metering import from_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run
    from stepscope.views.machine.readings import HostSegment, Readings

PROCESS_TREE_CPU = "tree/cpu_ratio"
HOST_CPU = "cpu/utilization_ratio"

GpuRule = Literal["process", "visible", "host"]
CpuRule = Literal["share", "whole"]

GPU_RULES: Mapping[GpuRule, str] = {
    "process": "the GPUs that a process of the run used",
    "visible": "all GPUs the run could see, as it is not known which of them it used",
    "host": "all GPUs of its hosts, as it is not known which of them it could see",
}
CPU_RULES: Mapping[CpuRule, str] = {
    "share": "by the run's share of the processor time on its hosts",
    "whole": "all of it, as the run's share of the processor time is not known",
}

_FACT_NAMES = {field.name for field in fields(GpuFacts)}
_REQUIRED_FACTS = {"uuid", "index", "name", "vendor"}


def known_gpus(run: Run) -> dict[tuple[str, str], GpuFacts]:
    """Returns the facts of a run's GPUs by host and UUID; the newest report of a GPU counts."""
    gpus = {}
    for event in run.own_events("device"):
        facts = {name: value for name, value in event.fields.items() if name in _FACT_NAMES}
        if facts.keys() >= _REQUIRED_FACTS:
            gpus[str(event.fields.get("host", "")), str(facts["uuid"])] = GpuFacts(**facts)
    return gpus


def gpus_of(
    readings: Readings, host_segment: HostSegment, known: Mapping[tuple[str, str], GpuFacts]
) -> tuple[list[str], GpuRule]:
    """Returns the GPUs that count for a host of a segment, and the rule that selected them."""
    used = readings.devices(host_segment, "gpu/process_")
    if used:
        return used, "process"
    host_gpus = [device for device in readings.devices(host_segment, "gpu/") if device]
    facts = [known[host_segment.host, device] for device in host_gpus if (host_segment.host, device) in known]
    visible: set[str | None] = set()
    for process in host_segment.processes:
        visible.update(visible_gpus(process.facts.get("environment", {}), facts))
    if None in visible or len(facts) < len(host_gpus):
        return host_gpus, "host"
    return sorted(device for device in visible if device is not None), "visible"


def cpu_share(readings: Readings, host_segment: HostSegment) -> tuple[float, CpuRule]:
    """Returns the run's share of a host's busy CPU time; 1 where that was not measured."""
    tree_sources, host_sources = (
        readings.sources(host_segment, PROCESS_TREE_CPU),
        readings.sources(host_segment, HOST_CPU, device=""),
    )
    cores = next((cpus for process in host_segment.processes if (cpus := process.facts.get("cpus"))), None)
    if not tree_sources or not host_sources or cores is None:
        return 1.0, "whole"
    run_seconds = readings.metered(host_segment, tree_sources, PROCESS_TREE_CPU, from_rate).amount
    host_seconds = readings.metered(host_segment, host_sources, HOST_CPU, from_rate).amount * cores
    # Both are read at slightly different moments, so the run's time may exceed the host's.
    return (min(run_seconds / host_seconds, 1.0), "share") if host_seconds > 0 else (1.0, "whole")
