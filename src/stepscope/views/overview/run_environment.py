"""The card on the environment and set-up of a run: GPUs, versions, ranks, precision, batch size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.number_format import number
from stepscope.steps.evidence.batch_contents import SAMPLES
from stepscope.views.formatting import size
from stepscope.views.json_values import as_list, as_mapping, clean
from stepscope.views.run_setup import first_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepscope.views.run_context import RunContext

MAX_HOSTS = 4


@dataclass(frozen=True)
class Labelled:
    """A fact with its name: one line of the card."""

    label: str
    value: str


def environment_of(context: RunContext) -> tuple[Labelled, ...]:
    """Returns the lines that are known, the most important first."""
    process = first_process(context.run)
    facts = process.facts if process is not None else {}
    lines = [
        *_gpus(context),
        *_software(context, facts),
        *_place(context, facts),
        *_training(context),
        *_code(facts),
    ]
    return tuple(Labelled(label, clean(value, 400)) for label, value in lines if value)


def _gpus(context: RunContext) -> Iterator[tuple[str, str]]:
    known = [facts for host_device, facts in context.gpus.items() if host_device in context.own_gpus]
    models = Counter(
        (facts.name, None if facts.memory_total_bytes is None else size(facts.memory_total_bytes))
        for facts in known
    )
    descriptions = [
        f"{count} × {name}" + (f" ({memory})" if memory else "") for (name, memory), count in models.items()
    ]
    yield "GPUs", ", ".join(descriptions) or "none seen"
    yield "Driver", ", ".join(sorted({facts.driver for facts in known if facts.driver}))


def _software(context: RunContext, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    libraries = as_mapping(facts.get("libraries"))
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())
    yield "Python", str(facts.get("python") or "")
    yield "Platform", str(facts.get("platform") or "")


def _place(context: RunContext, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    newest = context.run.segments[-1].processes
    hosts = list(dict.fromkeys(process.host for process in newest if process.role != "worker"))
    more = f" and {len(hosts) - MAX_HOSTS} more" if len(hosts) > MAX_HOSTS else ""
    yield "Hosts", ", ".join(hosts[:MAX_HOSTS]) + more
    world_size = facts.get("world_size")
    if isinstance(world_size, int) and world_size > 1:
        yield "World size", f"{world_size}"
    if facts.get("cpus"):
        yield "Processors", f"{facts['cpus']}"


def _training(context: RunContext) -> Iterator[tuple[str, str]]:
    setup = context.own_events["census"][-1].fields if "census" in context.own_events else {}
    yield "Precision", precision_of(setup)
    parameters = _count(setup.get("parameters"))
    if parameters:
        compiled = ", compiled" if setup.get("compiled") else ""
        yield "Model", f"{number(parameters)} parameters{compiled}"
    yield "Wrappers", ", ".join(map(str, as_list(setup.get("wrappers"))))
    optimizers = [as_mapping(optimizer) for optimizer in as_list(setup.get("optimizers"))]
    yield "Optimizer", ", ".join(str(optimizer["name"]) for optimizer in optimizers if "name" in optimizer)
    loader = context.own_events["loader"][-1].fields if "loader" in context.own_events else {}
    yield "Batch", _batch(context, loader)
    if loader.get("num_workers") is not None:
        yield "Loader workers", f"{loader['num_workers']}"


def precision_of(setup: Mapping[str, Any]) -> str:
    """Returns the number format a training computes in, from its setup event; empty if it is not known."""
    autocast = setup.get("autocast")
    if autocast and autocast != "off":
        return f"autocast {autocast}"
    dtypes = as_mapping(setup.get("parameter_dtypes"))
    return str(max(dtypes, key=lambda name: _count(dtypes[name]), default=""))


def _batch(context: RunContext, loader: Mapping[str, Any]) -> str:
    series = context.summaries.by_first_rank("batch_size") or context.summaries.by_first_rank(SAMPLES)
    samples = loader.get("batch_size")
    if samples is None and series and series[-1].last:
        samples = int(series[-1].last)
    if samples is None:
        return ""
    micro_steps = context.summaries.by_first_rank("micro_steps")
    accumulated = int(micro_steps[-1].last) if micro_steps and micro_steps[-1].last else 1
    ranks = f" on each of {len(context.ranks)} ranks" if len(context.ranks) > 1 else ""
    return f"{samples}" + (f" × {accumulated} accumulated" if accumulated > 1 else "") + ranks


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _code(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Commit", str(facts.get("commit") or "")[:12]
    yield "Command", " ".join(map(str, as_list(facts.get("command"))))
