"""Converts settings to plain data and back, to pass them to another process."""

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
"""The alert settings that are recorded, with their types."""


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the whole tree as dicts and lists, for JSON."""
    return dataclasses.asdict(settings)


def from_dict(data: Mapping[str, Any]) -> Settings:
    """Rebuilds what `to_dict` returned, without validation."""
    settings: Settings = _built(Settings, data)
    return settings


def recorded_alerts(facts: Mapping[str, Any]) -> Alerts:
    """The alert settings that a run was recorded with, without those that may be secret."""
    recorded = facts.get("alerts")
    if not isinstance(recorded, dict):
        return Alerts()
    # A record may be damaged, or written by another version: values of another type are left out.
    return Alerts(
        **{name: recorded[name] for name, kind in _RECORDED.items() if isinstance(recorded.get(name), kind)}
    )


def _built(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {name: _built(hints[name], part) for name, part in value.items()}
        return hint(**parts)  # type: ignore[operator]  # a dataclass type, never an instance
    if get_origin(hint) is dict:
        return {name: _built(get_args(hint)[1], part) for name, part in value.items()}
    return value
