"""Reads settings from variables such as STEPSCOPE_DASHBOARD__PORT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.config import document, document_keys
from stepscope.config.entry import ENVIRONMENT, MAX_DEPTH, Entry, Problem, flatten, plain
from stepscope.config.find import (
    DISABLED_VARIABLE,
    FILE_VARIABLE,
    PREFIX,
    RESERVED,
    SHORT_NAMES,
    is_disabled,
    is_switch_malformed,
)
from stepscope.config.reference import MAX_SHOWN, Key, hint_at, is_text, leaves, names_in, nearest, yaml_text
from stepscope.config.secret import CHANNELS, HIDDEN, is_secret, redacted
from stepscope.config.sections import Sampler
from stepscope.errors import ConfigError
from stepscope.schema.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONG_NAMES = {PREFIX + key.upper(): name for name, key in SHORT_NAMES.items() if key not in name.lower()}
"""Names a user might write who does not know the short name."""


def variable_of(key: Key) -> str:
    """Returns the variable that sets a key."""
    short = {setting: name for name, setting in SHORT_NAMES.items()}
    return short.get(key[0], PREFIX + "__".join(key).upper())


def entries_of(environment: Mapping[str, str], problems: list[Problem]) -> Iterator[Entry]:
    """Yields a setting for each variable; an empty variable counts as not set."""
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in RESERVED or not text:
            continue
        origin = f"{ENVIRONMENT} {name}"
        key = _key_of(name)
        if key is None:
            problems.append(Problem(origin, _no_such_variable(name)))
            continue
        yield from _entries_at(key, text, origin, problems)


def switched_off(environment: Mapping[str, str], problems: list[Problem]) -> Iterator[Entry]:
    """Yields the setting that switches everything off, if STEPSCOPE_DISABLED does."""
    origin = f"{ENVIRONMENT} {DISABLED_VARIABLE}"
    if is_disabled(environment):
        key = ("recorder", "enabled")
        yield Entry(key, False, key, lambda _key: origin)  # noqa: FBT003 - the value of a setting
    elif is_switch_malformed(environment):
        text = "it must be 1, true, yes or on to switch stepscope off, else 0, false, no, off or empty."
        problems.append(Problem(origin, text))


def assignment(name: str, text: str) -> str:
    """Formats a variable with its value for a message: short, on one line, without secrets."""
    # Also for a misspelt variable: it may contain a key, or the URL of a webhook, whose path is its password.
    words = name.removeprefix(PREFIX).lower().split("__")
    may_be_secret = is_secret(name) or any(nearest(word, ("channels", "exporters")) for word in words)
    safe = HIDDEN if may_be_secret else yaml_text(redact_text(redacted(text, CHANNELS)))
    return f"{name}={safe if len(safe) <= MAX_SHOWN else f'{safe[: MAX_SHOWN - 3]}...'}"


def _key_of(name: str) -> Key | None:
    if name in SHORT_NAMES:
        return (SHORT_NAMES[name],)
    key = tuple(name.removeprefix(PREFIX).lower().split("__"))
    if name in LONG_NAMES or len(key) > MAX_DEPTH or not all(key):
        return None
    known = hint_at(key) is not None or _is_sampler_option(key) or document_keys.is_inert(key)
    return key if known else None


def _is_sampler_option(key: Key) -> bool:
    return key[0] == "samplers" and len(key) > 2 and key[2] not in names_in(Sampler)


def _no_such_variable(name: str) -> str:
    suggestion = LONG_NAMES.get(name)
    if suggestion is None:
        # Without the common prefix: with it, any two short names look similar.
        names = [*map(variable_of, leaves()), FILE_VARIABLE, DISABLED_VARIABLE]
        closest = nearest(name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in names])
        suggestion = None if closest is None else PREFIX + closest
    return "there is no such setting" + (f"; did you mean {suggestion}?" if suggestion else ".")


def _entries_at(key: Key, text: str, origin: str, problems: list[Problem]) -> Iterator[Entry]:
    def origin_of(_key: Key) -> str:
        return origin

    value = plain(_value(key, text), origin_of, problems, key)
    if isinstance(value, dict) and value:
        yield from flatten(value, origin_of, key)
    else:
        yield Entry(key, value, key, origin_of)


def _value(key: Key, text: str) -> Any:
    if is_text(hint_at(key)) or is_secret(key[-1]):
        return text
    try:
        return document.parse(text, "").data
    except ConfigError:
        return text
