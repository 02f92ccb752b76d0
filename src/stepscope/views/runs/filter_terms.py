"""Splits a filter into terms, each with its position, and parses the values that terms compare with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from stepscope.schema.notation import (
    COMPARISONS,
    DURATIONS,
    PERCENT,
    QUOTED,
    SIZES,
    NotationError,
    Scales,
    number_in,
)

MAX_CHARACTERS = 1_000
MAX_TERMS = 50

_SIGNS = (":", *COMPARISONS, "=")
_NAME = re.compile(r"(?:(?!!=)[^\s:<>=\"'])+")
_QUOTED = re.compile(QUOTED)
_BLANKS = re.compile(r"\s*")
_BARE = re.compile(r"\S+")

_BARE_NUMBER: Scales = {"": (1, 1)}
_KINDS: dict[str, tuple[Scales, str]] = {
    "count": (
        {**_BARE_NUMBER, "k": (10**3, 1), "K": (10**3, 1), "M": (10**6, 1), "G": (10**9, 1)},
        "a number such as 1000, 1e-3 or 10k",
    ),
    "size": (
        {**_BARE_NUMBER, **SIZES, "K": (2**10, 1), "M": (2**20, 1), "G": (2**30, 1), "T": (2**40, 1)},
        "a size such as 512MiB or 80GB",
    ),
    "share": ({**_BARE_NUMBER, **PERCENT}, "a share such as 50% or 0.5"),
    "length": ({**_BARE_NUMBER, **DURATIONS}, "a length of time such as 90s, 2h or 1h30m"),
}
"""Kinds of numbers, with their units and a description. `M` means another number of bytes than of steps."""


@dataclass(frozen=True)
class Moment:
    """A moment or a day; a relative one counts from when it is evaluated."""

    begin: float
    """Seconds since the epoch; seconds before now if it is relative."""
    seconds: float = 0.0
    """How long it lasts: 0 for a moment, or the length of a day."""
    is_relative: bool = False

    def at(self, now: float) -> tuple[float, float]:
        """Returns its begin and end."""
        begin = now - self.begin if self.is_relative else self.begin
        return begin, begin + self.seconds


def number_of(text: str, kind: str) -> float:
    """Parses a number of a kind; raises ValueError with what is expected. A share above 1 is in percent."""
    scales, expected = _KINDS[kind]
    try:
        value = number_in(text.removeprefix("-").removeprefix("+"), scales)
    except ValueError:
        raise ValueError(expected) from None
    value = -value if text.startswith("-") else value
    return value / 100 if kind == "share" and "%" not in text and abs(value) > 1 else value


def moment_of(text: str) -> Moment:
    """Parses a moment such as -2d, 2026-01-31, 2026-01-31T18:00 or seconds since the epoch."""
    if text.startswith("-"):
        return Moment(number_of(text[1:], "length"), is_relative=True)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            day = datetime.fromisoformat(text).astimezone()
            return Moment(day.timestamp(), (day + timedelta(days=1)).timestamp() - day.timestamp())
        if re.match(r"[0-9]{4}-", text):
            return Moment(datetime.fromisoformat(text).astimezone().timestamp())
        return Moment(number_in(text.removeprefix("+"), _BARE_NUMBER))
    except (ValueError, OverflowError, OSError):
        raise ValueError("a moment such as -2d, 2026-01-31 or 2026-01-31T18:00") from None


@dataclass(frozen=True)
class Term:
    """One term: a word, a regular expression between slashes, or a name with an operator and a value."""

    begin: int
    end: int
    is_excluded: bool
    name: str = ""
    """Before the operator; empty for a word or a regular expression."""
    sign: str = ""
    value: str = ""
    is_pattern: bool = False
    flags: str = ""

    def mistake(self, message: str) -> NotationError:
        """Returns an error about this term."""
        return NotationError(message, self.begin, self.end)


def terms_of(text: str) -> list[Term]:
    """Returns the terms of a filter."""
    if len(text) > MAX_CHARACTERS:
        raise NotationError(
            f"The filter has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed.",
            MAX_CHARACTERS,
            len(text),
        )
    terms: list[Term] = []
    position = _after_blanks(text, 0)
    while position < len(text):
        if len(terms) == MAX_TERMS:
            raise NotationError(f"The filter has more than {MAX_TERMS} terms.", position, len(text))
        term = _term(text, position)
        terms.append(term)
        position = _after_blanks(text, term.end)
    return terms


def _term(text: str, begin: int) -> Term:
    at, is_excluded = begin, text[begin] == "-"
    if is_excluded:
        at += 1
        if at == len(text) or text[at].isspace() or text[at] == "-":
            raise NotationError("A minus excludes a term, as in -word.", begin, at)
    if text[at] == "/":
        return _pattern(text, begin, at, is_excluded=is_excluded)
    if text[at] in "\"'":
        value, end = _quoted(text, at)
        return Term(begin, end, is_excluded, value=value)
    name = _NAME.match(text, at)
    if name is None:
        raise NotationError(
            f"A name is missing before {text[at]!r}, as in steps>1000.", begin, _word_end(text, at)
        )
    sign, after = _sign(text, name.end())
    if not sign:
        end = name.end()
        if end < len(text) and not text[end].isspace():
            raise NotationError(
                "There is a quote inside a word; quote the whole word.", begin, _word_end(text, at)
            )
        return Term(begin, end, is_excluded, value=name.group())
    value, end = _value(text, begin, after)
    return Term(begin, end, is_excluded, name.group(), sign, value)


def _sign(text: str, at: int) -> tuple[str, int]:
    """Returns the operator after a name and its end; spaces may precede any operator but a colon."""
    there = _after_blanks(text, at)
    for sign in _SIGNS:
        if text.startswith(sign, there) and (sign != ":" or there == at):
            return sign, there + len(sign)
    return "", at


def _value(text: str, begin: int, at: int) -> tuple[str, int]:
    if text[at - 1] != ":":
        at = _after_blanks(text, at)
    if at >= len(text) or text[at].isspace():
        raise NotationError("A value is missing at the end of this term.", begin, at)
    if text[at] in "\"'":
        return _quoted(text, at)
    end = _word_end(text, at)
    return text[at:end], end


def _quoted(text: str, at: int) -> tuple[str, int]:
    quoted = _QUOTED.match(text, at)
    if quoted is None:
        raise NotationError("The closing quote is missing.", at, len(text))
    value, end = quoted["double"] or quoted["single"], quoted.end()
    if not value:
        raise NotationError("There is nothing between these quotes.", at, end)
    if end < len(text) and not text[end].isspace():
        raise NotationError("A space is missing after the closing quote.", at, _word_end(text, end))
    return value, end


def _pattern(text: str, begin: int, at: int, *, is_excluded: bool) -> Term:
    end = at + 1
    while end < len(text) and text[end] != "/":
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise NotationError("The closing slash of this expression is missing.", begin, len(text))
    after = end + 1 + (text[end + 1 : end + 2] == "i")
    if after < len(text) and not text[after].isspace():
        raise NotationError(
            "Only i may follow an expression; put a name with slashes in quotes.",
            begin,
            _word_end(text, after),
        )
    if end == at + 1:
        raise NotationError("There is nothing between these slashes.", begin, after)
    inner = text[at + 1 : end].replace("\\/", "/")
    return Term(begin, after, is_excluded, value=inner, is_pattern=True, flags=text[end + 1 : after])


def _word_end(text: str, at: int) -> int:
    match = _BARE.match(text, at)
    return at if match is None else match.end()


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()
