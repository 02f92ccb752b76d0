"""Splits a condition into tokens, moves over them, and shows where a mistake is."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from stepscope.schema.notation import (
    COMPARISONS,
    DURATIONS,
    LONG_DURATION,
    NUMBER,
    PERCENT,
    QUOTED,
    SIZES,
    UNIT,
    NotationError,
    Scales,
    number_in,
)

MAX_CHARACTERS = 2000
"""Maximum length of a condition."""

SHOWN_CHARACTERS = 90
"""How much of a long condition is shown around a mistake."""

SCALES = {**DURATIONS, **PERCENT, **SIZES}
"""All units of numbers, except for counts."""

COUNTS = ("points", "point", "steps", "step")
"""Units that make a number a window of points."""

NAME = r"[^\W\d]\w*(?:[./]\w+)*"
"""A metric name that needs no backquotes: a slash or a dot between two name characters belongs to it."""

Kind = Literal["number", "name", "quoted", "text", "sign", "end"]

_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?P<long>{LONG_DURATION})
    |(?P<number>{NUMBER})(?:[ ]*(?P<unit>(?:{UNIT})(?!\w)))?
    |(?P<name>{NAME})
    |`(?P<quoted>(?:[^`]|``)*)`
    |{QUOTED}
    |(?P<sign>{"|".join(COMPARISONS)}|[-+*/(),|])""",
    re.VERBOSE,
)
_INSTEAD = {
    "=": "write == to compare",
    "!": "write not, or != to compare",
    "&": "write and",
    "^": "powers are not part of this language",
    "`": "a name in backquotes needs a closing backquote",
    '"': "text needs a closing quote",
    "'": "text needs a closing quote",
    "[": "names are written without brackets; put unusual names in backquotes",
}


class Token(NamedTuple):
    """A token of a condition."""

    kind: Kind
    text: str
    """The text without quotes."""
    at: int
    """Position in the condition."""
    value: float = 0.0
    """The value of a number, without its unit."""
    unit: str = ""


def mistake(text: str, at: int, problem: str) -> NotationError:
    """Creates an error that shows the text with a caret under the wrong character."""
    begin = max(0, min(at - SHOWN_CHARACTERS // 2, len(text) - SHOWN_CHARACTERS))
    shown = text[begin : begin + SHOWN_CHARACTERS]
    line = "".join(sign if sign.isprintable() else " " for sign in shown)
    word = _TOKEN.match(text, at)
    end = at + 1 if word is None or word.lastgroup == "space" else word.end()
    return NotationError(problem, at, end, shown=f"{problem}\n  {line}\n  {' ' * (at - begin)}^")


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text; the last one is of kind `end`."""
    if len(text) > MAX_CHARACTERS:
        problem = f"A condition may have at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}."
        raise NotationError(problem, MAX_CHARACTERS, len(text))
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            hint = _INSTEAD.get(text[at])
            raise mistake(text, at, f"{text[at]!r} has no meaning here" + (f": {hint}." if hint else "."))
        token, end = _token(match, at)
        if token is not None:
            tokens.append(token)
        at = end
    return [*tokens, Token("end", "", len(text))]


class Cursor:
    """A position in the tokens of a text, for a parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._next]

    def is_next(self, *signs: str) -> bool:
        """Whether the next token is one of these signs or words."""
        return self.token.kind in ("sign", "name") and self.token.text in signs

    def is_call(self) -> bool:
        """Whether a function call is next: a name and an opening parenthesis."""
        if self.token.kind != "name" or self.token.text in ("and", "or", "not"):
            return False
        after = self._tokens[self._next + 1]
        return after.kind == "sign" and after.text == "("

    def take(self) -> Token:
        """Returns the next token and moves on."""
        token = self.token
        self._next += token.kind != "end"
        return token

    def accept(self, sign: str) -> bool:
        """Takes a sign if it is next; returns whether it was."""
        is_next = self.is_next(sign)
        if is_next:
            self.take()
        return is_next

    def demand(self, sign: str, what: str) -> None:
        """Takes a sign; raises an error if something else is next."""
        if not self.accept(sign):
            raise self.expected(what)

    def expect_end(self, what: str) -> None:
        """Raises an error if any token is left."""
        if self.token.kind != "end":
            raise self.expected(what)

    def mark(self) -> int:
        """Returns the current position, for `back_to`."""
        return self._next

    def back_to(self, mark: int) -> None:
        """Moves back to a position."""
        self._next = mark

    def mistake(self, at: int, problem: str) -> NotationError:
        """Creates an error that points at a character."""
        return mistake(self._text, at, problem)

    def expected(self, what: str) -> NotationError:
        """Creates an error that says what was expected."""
        actual = "the end" if self.token.kind == "end" else repr(self.token.text)
        return self.mistake(self.token.at, f"Expected {what}, not {actual}.")


def _token(match: re.Match[str], at: int) -> tuple[Token | None, int]:
    kind, text = match.lastgroup, match.group()
    if kind == "space":
        return None, match.end()
    if kind == "long" or match["number"] is not None:
        return _number(match, at)
    if kind == "name":
        return Token("name", text, at), match.end()
    if kind == "quoted":
        return Token("quoted", match["quoted"].replace("``", "`"), at), match.end()
    if kind in ("double", "single"):
        return Token("text", match[kind], at), match.end()
    return Token("sign", text, at), match.end()


def _number(match: re.Match[str], at: int) -> tuple[Token, int]:
    unit, end = match["unit"] or "", match.end()
    if match["long"] is not None:
        return Token("number", match["long"], at, _value(match, match["long"], DURATIONS), "s"), end
    if unit in ("and", "or"):
        unit, end = "", match.end("number")
    if unit and unit not in SCALES and unit not in COUNTS:
        raise mistake(
            match.string,
            match.start("unit"),
            f"{unit!r} is not a unit; there are {', '.join(SCALES)}, points and steps.",
        )
    value = _value(match, match["number"], {"": (1, 1)})
    return Token("number", match["number"], at, value, unit), end


def _value(match: re.Match[str], text: str, scales: Scales) -> float:
    try:
        return number_in(text, scales)
    except ValueError:
        raise mistake(match.string, match.start(), "This number is too large.") from None
