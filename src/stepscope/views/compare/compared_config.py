"""Compares configurations entry by entry; entries that differ come first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.views.json_values import Scalar

MAX_LINES = 1_000


@dataclass(frozen=True)
class ConfigDifference:
    """A configuration entry with its value in each run; None for a run without it."""

    key: str
    values: tuple[str | None, ...]
    same: bool
    types_differ: bool
    """Whether runs have values of different types, such as 1 and "1"."""


def config_lines(configs: Sequence[Mapping[str, Scalar]]) -> tuple[ConfigDifference, ...]:
    """Returns all entries of several configurations."""
    keys = dict.fromkeys(key for config in configs for key in config)
    lines = [_line(key, configs) for key in sorted(keys)]
    return tuple(sorted(lines, key=lambda line: line.same))[:MAX_LINES]


def _line(key: str, configs: Sequence[Mapping[str, Scalar]]) -> ConfigDifference:
    kinds = {kind_of(config[key]) for config in configs if key in config and config[key] is not None}
    is_everywhere = all(key in config for config in configs)
    # 1 and 1.0 are the same value, 1 and "1" are not.
    first = configs[0].get(key)
    same = is_everywhere and all(
        config[key] == first and kind_of(config[key]) == kind_of(first) for config in configs
    )
    # Text is quoted if another run has a number: both would look the same.
    write = quoted if len(kinds) > 1 else shown
    values = tuple(write(config[key]) if key in config else None for config in configs)
    return ConfigDifference(key, values, same, len(kinds) > 1)


def kind_of(value: Scalar) -> str:
    """Returns the type of a value; integers and floats have the same type."""
    if isinstance(value, bool):
        return "switch"
    return "number" if isinstance(value, int | float) else type(value).__name__


def shown(value: Scalar) -> str:
    """Returns a value as text."""
    return value if isinstance(value, str) else quoted(value)


def quoted(value: Scalar) -> str:
    """Returns a value as JSON, in which text is quoted."""
    return json.dumps(value, ensure_ascii=False)
