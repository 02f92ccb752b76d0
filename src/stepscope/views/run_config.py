"""How a run was configured and started: configuration, command, versions, hosts, loader and model."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.config.secret import redacted
from stepscope.number_format import number
from stepscope.views.energy.attribution import known_gpus
from stepscope.views.formatting import size
from stepscope.views.json_values import clean, json_tree
from stepscope.views.run_exporters import exporters_of
from stepscope.views.run_setup import first_process, flattened, setup_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.devices.gpu import GpuFacts
    from stepscope.reading import Run
    from stepscope.schema.record import Event

MAX_PROCESSES = 256

_LIBRARIES = "libraries"
_SHOWN_ELSEWHERE = {"command", "python", "platform", "environment", "commit", "mark", "config", _LIBRARIES}
"""Facts that have their own sections."""


@dataclass(frozen=True)
class ConfigItem:
    """One line of a section."""

    label: str
    value: str
    copy: bool = False
    """Whether the page offers to copy it."""


@dataclass(frozen=True)
class ConfigSection:
    """Lines under one title."""

    title: str
    items: tuple[ConfigItem, ...]


@dataclass(frozen=True)
class RunConfig:
    """How a run was configured and started."""

    config: dict[str, Any]
    """Nested as it was recorded; leaves are single values."""
    sections: tuple[ConfigSection, ...]


def config_of(run: Run) -> RunConfig:
    """Returns the set-up of a run, from its newest segment."""
    process = first_process(run)
    facts: dict[str, Any] = json_tree(redacted(process.facts)) if process is not None else {}
    events: dict[str, list[Event]] = {}
    for event in run.own_events(("loader", "census", "notice")):
        events.setdefault(event.kind, []).append(event)
    sections = [
        ConfigSection("Launch", tuple(_launch(facts))),
        ConfigSection(
            "Libraries",
            tuple(ConfigItem(name, str(value), copy=True) for name, value in _of(facts, _LIBRARIES)),
        ),
        ConfigSection("Environment variables", tuple(_variables(facts))),
        ConfigSection("Processes", tuple(_processes(run))),
        ConfigSection("GPUs", tuple(_gpu(host_device, gpu) for host_device, gpu in known_gpus(run).items())),
        ConfigSection("Data loader", tuple(_flat(_newest(events.get("loader"))))),
        ConfigSection("Model and PyTorch", tuple(_flat(_newest(events.get("census"))))),
        ConfigSection(
            "Recorded with", tuple(_flat({k: v for k, v in facts.items() if k not in _SHOWN_ELSEWHERE}))
        ),
        ConfigSection(
            "Exporters", tuple(ConfigItem(exporter.name, exporter.text) for exporter in exporters_of(run))
        ),
        ConfigSection("Notices", tuple(_notices(events.get("notice", ())))),
    ]
    return RunConfig(setup_of(run).nested, tuple(section for section in sections if section.items))


def _launch(facts: Mapping[str, Any]) -> Iterable[ConfigItem]:
    command = facts.get("command")
    if isinstance(command, list) and command:
        yield ConfigItem("Command", clean(shlex.join(map(str, command)), 8_000), copy=True)
    for label, name in (("Commit", "commit"), ("Python", "python"), ("Platform", "platform")):
        if facts.get(name):
            yield ConfigItem(label, clean(facts[name]), copy=name == "commit")


def _variables(facts: Mapping[str, Any]) -> Iterable[ConfigItem]:
    for name, value in _of(facts, "environment"):
        yield ConfigItem(name, clean(value), copy=True)


def _processes(run: Run) -> Iterable[ConfigItem]:
    for segment in run.segments[-1:]:
        for process in segment.processes[:MAX_PROCESSES]:
            role = f"rank {process.rank}" if process.role == "rank" else process.role
            lost = (
                f", {process.dropped + process.lost:,} records lost"
                if process.dropped or process.lost
                else ""
            )
            yield ConfigItem(
                f"{role} · {clean(process.host, 200)}", f"process {process.pid}, {process.status}{lost}"
            )


def _gpu(host_device: tuple[str, str], facts: GpuFacts) -> ConfigItem:
    details = [facts.name]
    if facts.memory_total_bytes is not None:
        details.append(size(facts.memory_total_bytes))
    if facts.power_limit_watts is not None:
        details.append(f"{number(facts.power_limit_watts)} W")
    details += [f"driver {facts.driver}"] if facts.driver else []
    details += [f"PCI {facts.pci_bus_id}"] if facts.pci_bus_id else []
    details.append(facts.uuid)
    return ConfigItem(
        f"gpu {facts.index} · {clean(host_device[0], 200)}", clean(", ".join(details)), copy=True
    )


def _flat(nested: Mapping[str, Any]) -> Iterable[ConfigItem]:
    for name, value in flattened(json_tree(nested)).items():
        if name not in ("kind", "step"):
            yield ConfigItem(name, value if isinstance(value, str) else json.dumps(value))


def _notices(events: Iterable[Event]) -> Iterable[ConfigItem]:
    notices = dict.fromkeys(
        (clean(event.fields.get("host", ""), 200), clean(event.fields.get("text", ""))) for event in events
    )
    return (ConfigItem(host or "host", text) for host, text in notices)


def _newest(events: list[Event] | None) -> dict[str, Any]:
    return events[-1].fields if events else {}


def _of(facts: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    section = facts.get(name)
    return section.items() if isinstance(section, dict) else ()
