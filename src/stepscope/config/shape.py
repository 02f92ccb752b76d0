"""Looks up which settings the tree has, and their types."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin

from stepscope.config.sections import Sampler, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

Key: TypeAlias = tuple[typing.Any, ...]
"""The path of a setting: names, and integers for list items."""


def dotted(key: Key) -> str:
    """Writes a key as text: `alerts.rules[2].name`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.isprintable() else ascii(part)
            text += f".{name}" if text else name
    return text


@functools.cache
def hints_of(section: type) -> dict[str, Any]:
    """Returns the type of every setting of a section."""
    return typing.get_type_hints(section, include_extras=True)


def hint_at(key: Key) -> Any:
    """Returns the type of the setting at a key, None where there is no such setting."""
    hint: Any = Settings
    for part in key:
        hint = _inside(without_none(hint), part)
    return hint


def without_none(hint: Any) -> Any:
    """Returns X for the type `X | None`."""
    if get_origin(hint) in {Union, types.UnionType}:
        [hint] = [kind for kind in get_args(hint) if kind is not type(None)]
    return hint


def is_section(hint: Any) -> bool:
    """Whether a setting of this type contains keys."""
    return dataclasses.is_dataclass(hint) or get_origin(hint) is dict


def is_text(hint: Any) -> bool:
    """Whether a setting of this type is text, which must not be parsed as a number."""
    hint = without_none(hint)
    return hint is str or get_origin(hint) is Literal


def leaves(section: type = Settings, above: Key = ()) -> Iterator[Key]:
    """Yields every setting that is not itself a section; samplers appear as `default`."""
    for name in names_in(section):
        key, hint = (*above, name), hints_of(section)[name]
        if dataclasses.is_dataclass(hint):
            yield from leaves(typing.cast("type", hint), key)
        elif get_args(hint)[-1:] == (Sampler,):
            yield from leaves(Sampler, (*key, "default"))
        else:
            yield key


def names_in(section: Any) -> list[str]:
    """Returns the names of a section's settings."""
    return [setting.name for setting in dataclasses.fields(section)]


def _inside(hint: Any, part: Any) -> Any:
    if hint is Any:
        return Any
    if dataclasses.is_dataclass(hint):
        return hints_of(typing.cast("type", hint)).get(part)
    if isinstance(part, int) and get_origin(hint) is list:
        return get_args(hint)[0]
    if get_origin(hint) is dict:
        return get_args(hint)[1]
    return None
