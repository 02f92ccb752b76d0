"""Describes values, and the allowed values, for messages."""

from __future__ import annotations

import dataclasses
import difflib
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from stepscope.config.bounds import Form
from stepscope.config.secret import CHANNELS, HIDDEN, redacted
from stepscope.config.shape import Key, dotted, leaves, names_in, without_none

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.config.bounds import Range

MAX_SHOWN = 80


def shown(value: Any, key: Key) -> str:
    """Formats a value for a message: short, on one line, without secrets."""
    names = [part for part in key if isinstance(part, str)]
    if isinstance(value, str | list | dict) and _may_be_secret(names):
        return HIDDEN
    safe = redacted(value, names)
    text = HIDDEN if safe == HIDDEN else yaml_text(safe)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def yaml_text(value: Any) -> str:
    """Formats a value as in a YAML file."""
    return json.dumps(value, ensure_ascii=False)


def no_such_setting(key: Key, siblings: list[str], older_names: Iterable[str] = ()) -> str:
    """A message for an unknown key, with the key that was probably meant."""
    nested = (*key[:-1], *str(key[-1]).split("."))
    if nested != key and nested in leaves():
        section = dotted(nested[:-1])
        return f"there is no setting {dotted(key)!r}; write {nested[-1]!r} below {section!r}, as a section."
    suggestion = meant_setting(key, siblings, older_names)
    rest = f"there are {', '.join(siblings)}." if suggestion is None else f"did you mean {suggestion!r}?"
    return f"there is no setting {dotted(key)!r}; {rest}"


def meant_setting(key: Key, siblings: list[str], older_names: Iterable[str] = ()) -> str | None:
    """Returns the setting that was probably meant by an unknown key, None when nothing is close."""
    suggestion = nearest(key[-1], [*siblings, *older_names])
    if suggestion is not None:
        return dotted((*key[:-1], suggestion))
    return next((dotted(leaf) for leaf in leaves() if leaf[-1] == key[-1]), None)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name that was probably meant, None when nothing is close."""
    matches = difflib.get_close_matches(name[:80], list(names), n=1, cutoff=0.75)
    return matches[0] if matches else None


def allowed(hint: Any) -> str:
    """Describes the values that a setting of this type allows."""
    inner = without_none(hint)
    if inner is not hint:
        return f"{allowed(inner)}, or null"
    if dataclasses.is_dataclass(inner):
        return f"a section with the settings {', '.join(names_in(inner))}"
    args = get_args(inner)
    kind = get_origin(inner) or inner
    if kind is Annotated:
        return args[1].words if isinstance(args[1], Form) else _allowed_number(*args)
    words = {
        bool: "true or false",
        str: "text",
        dict: "a section",
        Literal: f"one of {', '.join(map(str, args))}",
    }
    if kind is list:
        return f"a list, each item {allowed(args[0])}"
    return words.get(kind, "text, a number, true, false, a list or a section")


def _allowed_number(kind: type, bounds: Range) -> str:
    words = "a whole number" if kind is int else "a number"
    if bounds.low is None:
        return words
    if bounds.high is None:
        return f"{words}, at least {bounds.low:.15g}"
    return f"{words} from {bounds.low:.15g} to {bounds.high:.15g}"


def _may_be_secret(names: list[str]) -> bool:
    """Whether a value may be secret: misplaced values of these sections are often keys or webhooks."""
    return tuple(names[:2]) == CHANNELS or names[:1] == ["exporters"]
