"""Finds the configuration of a run, nested and flat, and the number of steps it will do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.reading import PARAMS, merged_params
from stepscope.schema.total_steps import CONFIG, TOTAL_STEPS, total_steps_of
from stepscope.views.json_values import as_mapping, clean, json_tree, scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepscope.reading import Run
    from stepscope.schema.run import Process
    from stepscope.views.json_values import Scalar

LOADER = "loader"
"""The kind of event that describes a data loader."""

MAX_ENTRIES = 500
MAX_DEPTH = 8
MAX_LISTED = 300
"""Maximum number of characters of a list that is shown as one value."""

_NOT_CONFIG = {"kind", "step", "time", "host"}


def first_process(run: Run) -> Process | None:
    """Returns the process that represents a run: the lowest rank of its newest segment, if it has ranks."""
    return main_process(run.segments[-1].processes) if run.segments else None


def main_process(processes: Iterable[Process]) -> Process | None:
    """Returns the lowest rank; if there is none, the launcher or another process."""
    order = {"rank": 0, "launcher": 1, "machine": 2, "worker": 3}
    return min(
        processes,
        key=lambda process: (order.get(process.role, 9), process.rank, process.started_ns),
        default=None,
    )


@dataclass(frozen=True)
class Setup:
    """The set-up that a run recorded."""

    nested: dict[str, Any]
    """Its newest configuration; `loader` describes its data loader."""
    flat: dict[str, Scalar]
    """The same configuration with one dotted name for each value."""
    total_steps: int | None
    """How many steps the run will do; None if it is not known."""


def setup_of(run: Run) -> Setup:
    """Returns the set-up of a run, from its newest segment and its events."""
    process = first_process(run)
    facts = process.facts if process is not None else {}
    config = dict(as_mapping(facts.get(CONFIG)))
    loader: dict[str, Any] = {}
    events = run.events((CONFIG, LOADER, TOTAL_STEPS, PARAMS))
    for event in events:
        fields = event.fields
        if not event.by_user:
            fields = {name: value for name, value in fields.items() if name not in _NOT_CONFIG}
        if event.kind == CONFIG:
            config.update(fields)
        elif event.kind == LOADER:
            loader = loader if event.by_user else fields
    params = (event for event in events if event.kind == PARAMS and not event.by_user)
    config.update(merged_params(params, run.segments))
    if loader:
        config.setdefault(LOADER, loader)
    nested: dict[str, Any] = json_tree(config)
    return Setup(nested, flattened(nested), total_steps_of(facts, events))


def flattened(nested: Mapping[str, Any]) -> dict[str, Scalar]:
    """Returns a configuration with one name for each value, such as `optimizer.lr`; lists become text."""
    flat: dict[str, Scalar] = {}
    for name, value in _leaves(nested, "", MAX_DEPTH):
        if len(flat) >= MAX_ENTRIES:
            break
        flat[name] = value
    return flat


def _leaves(value: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Scalar]]:
    for name, part in value.items():
        full_name = f"{prefix}{clean(name, 200)}"
        if isinstance(part, dict) and part and depth > 1:
            yield from _leaves(part, f"{full_name}.", depth - 1)
        elif isinstance(part, dict | list):
            yield full_name, clean(json.dumps(part, ensure_ascii=False), MAX_LISTED)
        else:
            yield full_name, scalar(part)
