"""Turns settings into plain data and back, to hand them to another process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from stepscope.config.sections import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the whole tree as dicts and lists that JSON can carry."""
    return dataclasses.asdict(settings)


def from_dict(data: Mapping[str, Any]) -> Settings:
    """Rebuilds what `to_dict` returned, without checking it again."""
    settings: Settings = _built(Settings, data)
    return settings


def _built(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {name: _built(hints[name], part) for name, part in value.items()}
        return hint(**parts)  # type: ignore[operator]  # a dataclass type, never an instance
    if get_origin(hint) is dict:
        return {name: _built(get_args(hint)[1], part) for name, part in value.items()}
    return value
