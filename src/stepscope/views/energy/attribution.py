"""Says which GPUs a run answers for, and which share of the processors it shared with others."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from stepscope.devices.gpu import GpuFacts
from stepscope.devices.visible import visible_gpus
from stepscope.views.energy.metering import from_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.reading import Run
    from stepscope.views.machine.readings import Part, Readings

TREE = "tree/cpu_ratio"
HOST = "cpu/utilization_ratio"

GpuRule = Literal["process", "visible", "host"]
CpuRule = Literal["share", "whole"]

GPU_RULES: Mapping[GpuRule, str] = {
    "process": "the GPUs on which a process of the run was seen",
    "visible": "all GPUs the run could see, as it is not known which of them it used",
    "host": "all GPUs of its hosts, as it is not known which of them it could see",
}
CPU_RULES: Mapping[CpuRule, str] = {
    "share": "by the run's share of the processor time on its hosts",
    "whole": "all of it, as the run's share of the processor time is not known",
}

_FACTS = {one.name for one in fields(GpuFacts)}
_NEEDED = {"uuid", "index", "name", "vendor"}


def known_gpus(run: Run) -> dict[tuple[str, str], GpuFacts]:
    """What the GPUs of a run said of themselves, by host and UUID; the last word counts."""
    found = {}
    for event in run.own_events("device"):
        told = {name: value for name, value in event.fields.items() if name in _FACTS}
        if told.keys() >= _NEEDED:
            found[str(event.fields.get("host", "")), str(told["uuid"])] = GpuFacts(**told)
    return found


def gpus_of(
    readings: Readings, part: Part, known: Mapping[tuple[str, str], GpuFacts]
) -> tuple[list[str], GpuRule]:
    """The GPUs that count for a part, and by which rule."""
    used = readings.devices(part, "gpu/process_")
    if used:
        return used, "process"
    here = [device for device in readings.devices(part, "gpu/") if device]
    facts = [known[part.host, device] for device in here if (part.host, device) in known]
    seen: set[str | None] = set()
    for process in part.processes:
        seen.update(visible_gpus(process.facts.get("environment", {}), facts))
    if None in seen or len(facts) < len(here):
        return here, "host"
    return sorted(device for device in seen if device is not None), "visible"


def cpu_share(readings: Readings, part: Part) -> tuple[float, CpuRule]:
    """How much of a host's busy processor time was the run's; all of it where that was not read."""
    trees, hosts = readings.places(part, TREE), readings.places(part, HOST, device="")
    cores = next((cpus for one in part.processes if (cpus := one.facts.get("cpus"))), None)
    if not trees or not hosts or cores is None:
        return 1.0, "whole"
    own = readings.metered(part, trees, TREE, from_rate).amount
    busy = readings.metered(part, hosts, HOST, from_rate).amount * cores
    # Both are read at slightly different moments, so the one may seem larger than the whole.
    return (min(own / busy, 1.0), "share") if busy > 0 else (1.0, "whole")
