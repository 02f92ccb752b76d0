"""Turns settings into plain data and back, to hand them to another process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from stepscope.config.sections import Alerts, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_RECORDED: dict[str, type] = {
    "enabled": bool,
    "rules": list,
    "thresholds": dict,
    "disabled": list,
    "quiet_hours": str,
}
"""What is recorded of the settings of alerts."""


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the whole tree as dicts and lists that JSON can carry."""
    return dataclasses.asdict(settings)


def from_dict(data: Mapping[str, Any]) -> Settings:
    """Rebuilds what `to_dict` returned, without checking it again."""
    settings: Settings = _built(Settings, data)
    return settings


def recorded_alerts(facts: Mapping[str, Any]) -> Alerts:
    """The settings of alerts that a run was recorded with, without those that may be secret."""
    said = facts.get("alerts")
    if not isinstance(said, dict):
        return Alerts()
    # A record may be damaged, or written by another version: what has another type is left out.
    return Alerts(
        **{name: said[name] for name, kind in _RECORDED.items() if isinstance(said.get(name), kind)}
    )


def _built(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {name: _built(hints[name], part) for name, part in value.items()}
        return hint(**parts)  # type: ignore[operator]  # a dataclass type, never an instance
    if get_origin(hint) is dict:
        return {name: _built(get_args(hint)[1], part) for name, part in value.items()}
    return value
