"""Finds how many steps a run will do, in what it recorded about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepscope.schema.record import Event

CONFIG, PARAMS, TOTAL_STEPS = "config", "params", "total_steps"
"""Kinds of events; a configuration and the number of steps may also be facts of a process."""

TOTAL_STEPS_EVENTS = (CONFIG, PARAMS, TOTAL_STEPS)

NAMES = (TOTAL_STEPS, "max_steps", "num_training_steps", "train_steps")
"""Entries of a configuration with the number of steps; the first that a configuration has counts."""

MAX_DEPTH = 8


def total_steps_of(facts: Mapping[str, Any], events: Iterable[Event]) -> int | None:
    """Returns the number in the facts of a process; else in its events; else in its configuration."""
    by_name = dict(_counts(facts.get(CONFIG), MAX_DEPTH))
    from_event: int | None = None
    for event in events:
        if event.kind == TOTAL_STEPS:
            from_event = _count(event.fields.get(TOTAL_STEPS, event.fields.get("value"))) or from_event
        elif event.kind == CONFIG:
            by_name.update(_counts(event.fields, MAX_DEPTH))
        elif event.kind == PARAMS and not event.by_user:
            by_name.update(_counts(event.fields.get(PARAMS), MAX_DEPTH))
    configured = next((by_name[name] for name in NAMES if name in by_name), None)
    return _count(facts.get(TOTAL_STEPS)) or from_event or configured


def _counts(config: object, depth: int) -> Iterator[tuple[str, int]]:
    """Yields the entries of a nested configuration that may be a number of steps."""
    for name, value in config.items() if isinstance(config, dict) and depth else ():
        count = _count(value)
        if count is not None:
            yield str(name).rpartition(".")[2], count
        yield from _counts(value, depth - 1)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 < value < 2**53 else None
