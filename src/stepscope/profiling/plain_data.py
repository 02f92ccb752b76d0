"""Converts results into JSON types: dictionaries, lists, text and numbers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def described(value: Any) -> Any:
    """A result with all nested values, by field name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: described(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): described(part) for key, part in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [described(part) for part in value]
    return str(value) if isinstance(value, Path) else value


class Described:
    """A result that can be converted to plain data."""

    def described(self) -> dict[str, Any]:
        """All its values by name, ready for JSON."""
        plain: dict[str, Any] = described(self)
        return plain
