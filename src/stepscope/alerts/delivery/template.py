"""Fills in message templates of alerts: `{loss:.2f}`, `{gpu/temperature_celsius:.0f}`, `{value}`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.lexer import NAME
from stepscope.errors import ConfigError
from stepscope.number_format import number

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARACTERS = 2000
UNKNOWN = "?"
"""Replaces a value that is missing."""

_PART = re.compile(
    rf"""(?P<brace>\{{\{{|\}}\}})
    |\{{(?:(?P<name>{NAME})|`(?P<quoted>[^`{{}}]+)`)(?::(?P<form>[^{{}}]*))?\}}
    |(?P<wrong>\{{[^}}]*\}}?|\}})""",
    re.VERBOSE,
)
# Widths have at most two digits, so that a message cannot fill the memory.
_FORM = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?[0-9]{0,2}[,_]?(?:\.[0-9]{1,2})?[a-zA-Z%]?")
_HIDDEN = re.compile(r"(?:^|[./])__")


def check_template(template: str) -> None:
    """Raises ConfigError if a template contains anything but text and names in braces."""
    if len(template) > MAX_CHARACTERS:
        raise ConfigError(f"it has {len(template):,} characters; at most {MAX_CHARACTERS:,} are allowed.")
    for part in _PART.finditer(template):
        name = part["name"] or ""
        if part["wrong"] is not None or _HIDDEN.search(name):
            raise ConfigError(
                f"{part.group()!r} cannot be filled in; write a metric name in braces, with an optional "
                "format, as in {loss:.2f} or {gpu/temperature_celsius}; put unusual names in backquotes, and "
                "write {{ for a brace."
            )


def names_in(template: str) -> tuple[str, ...]:
    """Returns the names in a template."""
    names = (part["name"] or part["quoted"] for part in _PART.finditer(template))
    return tuple(dict.fromkeys(name for name in names if name))


def render(template: str, values: Mapping[str, Any]) -> str:
    """Returns the template with its names replaced by values.

    A name without a value becomes `?`; a format that does not fit a value is ignored. Names are looked up as
    a whole, including dots and slashes: a template cannot access attributes of a value.
    """

    def filled(part: re.Match[str]) -> str:
        if part["brace"] is not None:
            return part["brace"][0]
        name = part["name"] or part["quoted"]
        if name is None or _HIDDEN.search(name):
            return part.group()
        return _shown(values.get(name), part["form"] or "")

    return _PART.sub(filled, template)


def _shown(value: Any, form: str) -> str:
    if value is None:
        return UNKNOWN
    if form and _FORM.fullmatch(form):
        try:
            return format(value, form)
        except (TypeError, ValueError):
            return str(value)
    return number(value) if type(value) is float else str(value)
