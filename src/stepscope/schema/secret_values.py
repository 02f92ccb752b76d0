"""Finds what text gives to a secret name: `password=…`, `"api_key": "…"`, `--token …`, `AccountKey=…;`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepscope.schema.secret_names import hides_numbers, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

HINTS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "cookie",
    "salt",
    "bearer",
    "jwt",
    "sig",
)
"""In small letters; a text without any of them names no secret."""

# A name is taken from its first character on, so that a long run of letters is looked at once.
_NAME = re.compile(
    r"(?<![\w.-])(?P<dashes>-{0,2})"
    r"(?P<name>(?:(?i:api|access|secret|private|account|auth) )?\w[\w.-]*)"
    r"(?:(?P<sign>[\"'\\]{0,4}[ \t]{0,3}(?:=>|:=|==?|:(?![:/]))[ \t]{0,3})"
    r"|(?P<gap>[\"'],[ \t]{0,3}|[ \t]{1,3}))?",
    re.ASCII,
)
_OPENING = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,7}(?:\"\"\"|'''|[\"']))")
_UNQUOTED = re.compile(r"(?:[^\s;&,]|[;&,](?!\s|\Z|[\w .-]{1,40}[=:]))+")
_NEXT = re.compile(r"[\w.-]{1,80}=[^=\s]")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_AFTER_VALUE = "\"')]}>,.\\"

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]{0,8}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?|nan|inf)%?", re.I)
_CALL = re.compile(r"[a-z_][\w.]{0,60}\(")
"""A line of a program, as tracebacks show them; no key looks like one."""
_PROSE = re.compile(r"[a-z]+(?:'[a-z]+)?[.,:;!?]?")
_NOTHING = frozenset(
    ["", "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "***", "****", "..."]
)
_SIGNATURES = frozenset(["sig", "signature"])
_SHORTEST_SIGNATURE = 20
_LONG = 80


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where values of secret names begin and end."""
    at = 0
    while (found := _NAME.search(text, at)) is not None:
        at = max(found.end("name"), found.start() + 1)
        if not _gives_something(found):
            continue
        start, end = _value(text, found.end())
        if start < end and _is_secret(found, text, start, end):
            yield start, end
            at = end
        elif end - start > _LONG:
            at = end  # looked at once: a value rejected again and again would take quadratic time


def is_nothing(value: str) -> bool:
    """Says whether a value under a secret name hides nothing: empty, true, a reference to a variable."""
    return len(value) < _LONG and (value.lower() in _NOTHING or value.startswith(("$", "%(", "{{")))


def is_working_directory(name: str, value: str) -> bool:
    """Says whether a value is a folder under a name that passwords share with it."""
    return name.lower().endswith("pwd") and value.startswith(("/", "~", "."))


def is_number(value: str) -> bool:
    """Says whether a text is a plain number, too short to be a key."""
    return _NUMBER.fullmatch(value) is not None


def _value(text: str, at: int) -> tuple[int, int]:
    """Begin and end of the value at a place: quoted, bracketed, or up to a blank or the next assignment."""
    opening = _OPENING.match(text, at)
    if opening is not None:
        return opening.end(), _closing_quote(text, opening.end(), opening["quote"])
    if text[at : at + 1] in _BRACKETS:
        end = text.find(_BRACKETS[text[at]], at)
        return at, end + 1 if end >= 0 else _line_end(text, at)
    found = _UNQUOTED.match(text, at)
    if found is None:
        return at, at
    return at, at + len(found[0].rstrip(_AFTER_VALUE))


def _closing_quote(text: str, at: int, quote: str) -> int:
    """Where a quoted value ends; without a closing quote, at the end of the line."""
    place = text.find(quote, at)
    # A quote behind an odd number of backslashes belongs to the value.
    while place >= 0 and not quote.startswith("\\") and _backslashes_before(text, place, at) % 2:
        place = text.find(quote, place + 1)
    return place if place >= 0 else _line_end(text, at)


def _backslashes_before(text: str, place: int, least: int) -> int:
    count = 0
    while place - count > least and text[place - count - 1] == "\\":
        count += 1
    return count


def _line_end(text: str, at: int) -> int:
    place = text.find("\n", at)
    return place if place >= 0 else len(text)


def _gives_something(found: re.Match[str]) -> bool:
    """Whether a value may follow, and the name is one of a secret."""
    if found["sign"] == "= " and _NEXT.match(found.string, found.end()):
        return False  # nothing was given: the next assignment follows
    is_flag = bool(found["gap"] and found["dashes"] and found.string[found.end() : found.end() + 1] != "-")
    if found["sign"] is None and not is_flag:
        return False
    return is_secret_name(found["name"]) or found["name"].lower() in _SIGNATURES


def _is_secret(found: re.Match[str], text: str, start: int, end: int) -> bool:
    name, value = found["name"].lower(), text[start:end]
    if is_nothing(value) or is_working_directory(name, value):
        return False
    if name in _SIGNATURES:
        return len(value) >= _SHORTEST_SIGNATURE and "(" not in value
    if hides_numbers(found["name"]):
        return True
    return not (is_number(value) or _CALL.match(value) or _is_prose(found, text, end))


def _is_prose(found: re.Match[str], text: str, end: int) -> bool:
    """Whether a sentence goes on after a colon, as in `invalid token: expected a name`."""
    sign = found["sign"]
    if not sign or ":" not in sign or not sign.endswith((" ", "\t")):
        return False
    rest = text[end : end + _LONG].partition("\n")[0].strip(_AFTER_VALUE + ":;!? \t\r")
    return bool(rest) and _PROSE.fullmatch(text, found.end(), end) is not None
