"""Compares configurations entry by entry, those that differ first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.views.json_values import Scalar

MAX_LINES = 1_000


@dataclass(frozen=True)
class ConfigLine:
    """One entry, as each run has it; None where a run has none."""

    key: str
    values: tuple[str | None, ...]
    same: bool
    types_differ: bool
    """Whether one has a number where another has text, as with 1 and "1"."""


def config_lines(configs: Sequence[Mapping[str, Scalar]]) -> tuple[ConfigLine, ...]:
    """All entries of some configurations."""
    keys = dict.fromkeys(key for config in configs for key in config)
    lines = [_line(key, configs) for key in sorted(keys)]
    return tuple(sorted(lines, key=lambda line: line.same))[:MAX_LINES]


def _line(key: str, configs: Sequence[Mapping[str, Scalar]]) -> ConfigLine:
    kinds = {kind_of(config[key]) for config in configs if key in config and config[key] is not None}
    is_everywhere = all(key in config for config in configs)
    # 1 and 1.0 are one value, 1 and "1" are two.
    first = configs[0].get(key)
    same = is_everywhere and all(
        config[key] == first and kind_of(config[key]) == kind_of(first) for config in configs
    )
    # Beside a number, text is quoted: both would look alike.
    write = quoted if len(kinds) > 1 else shown
    values = tuple(write(config[key]) if key in config else None for config in configs)
    return ConfigLine(key, values, same, len(kinds) > 1)


def kind_of(value: Scalar) -> str:
    """What sort of value it is; whole and other numbers are of one sort."""
    if isinstance(value, bool):
        return "switch"
    return "number" if isinstance(value, int | float) else type(value).__name__


def shown(value: Scalar) -> str:
    """A value as text."""
    return value if isinstance(value, str) else quoted(value)


def quoted(value: Scalar) -> str:
    """The same, in which text cannot be taken for a number."""
    return json.dumps(value, ensure_ascii=False)
