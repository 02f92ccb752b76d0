"""Turns results into what JSON knows: dictionaries, lists, text and numbers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def described(value: Any) -> Any:
    """A result and all it holds, by the names of its fields; None where something is not known."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: described(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): described(part) for key, part in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [described(part) for part in value]
    return str(value) if isinstance(value, Path) else value


class Described:
    """A result that can be told as plain data."""

    def described(self) -> dict[str, Any]:
        """All its figures by name, ready for JSON."""
        plain: dict[str, Any] = described(self)
        return plain
