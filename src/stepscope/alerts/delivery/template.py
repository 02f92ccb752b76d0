"""Fills in the message of an alert: `{loss:.2f}`, `{gpu/temperature_celsius:.0f}`, `{value}`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from stepscope.alerts.conditions.tokens import NAME
from stepscope.errors import ConfigError
from stepscope.number_format import number

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARACTERS = 2000
UNKNOWN = "?"
"""What stands for a value that there is none of."""

_PART = re.compile(
    rf"""(?P<brace>\{{\{{|\}}\}})
    |\{{(?:(?P<name>{NAME})|`(?P<quoted>[^`{{}}]+)`)(?::(?P<form>[^{{}}]*))?\}}
    |(?P<wrong>\{{[^}}]*\}}?|\}})""",
    re.VERBOSE,
)
# Widths of two digits: a message must not be made to fill the memory.
_FORM = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?[0-9]{0,2}[,_]?(?:\.[0-9]{1,2})?[a-zA-Z%]?")
_HIDDEN = re.compile(r"(?:^|[./])__")


def check_template(template: str) -> None:
    """Raises ConfigError where a template is more than text with names in braces."""
    if len(template) > MAX_CHARACTERS:
        raise ConfigError(f"it has {len(template):,} characters; at most {MAX_CHARACTERS:,} are allowed.")
    for part in _PART.finditer(template):
        name = part["name"] or ""
        if part["wrong"] is not None or _HIDDEN.search(name):
            raise ConfigError(
                f"{part.group()!r} cannot be filled in; write a metric name in braces, with a format if you "
                "like, as in {loss:.2f} or {gpu/temperature_celsius}, odd names in backquotes as well; and "
                "{{ for a brace."
            )


def names_in(template: str) -> tuple[str, ...]:
    """The names a template has values filled in for."""
    names = (part["name"] or part["quoted"] for part in _PART.finditer(template))
    return tuple(dict.fromkeys(name for name in names if name))


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text with values in the place of their names.

    A name without a value becomes `?`; a format that does not suit a value is left out of account. Names are
    looked up as they stand, dots and slashes included: nothing of a value but its text can be had.
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
