"""Iterates over the tokens of a condition, and parses its smallest parts: names, numbers and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.alerts.conditions.tokens import COUNTS, DURATIONS, SCALES, Token, mistake, tokens_of
from stepscope.alerts.conditions.tree import RESERVED, Name, Number, Window, looks_divided

if TYPE_CHECKING:
    from stepscope.errors import ConfigError

LONGEST_S, MAX_POINTS = 7 * 86400.0, 100_000
"""Maximum size of a window, in seconds and in points."""


class Cursor:
    """A position in the tokens of a text."""

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

    def mistake(self, at: int, problem: str) -> ConfigError:
        """Creates an error that points at a character."""
        return mistake(self._text, at, problem)

    def expected(self, what: str) -> ConfigError:
        """Creates an error that says what was expected."""
        actual = "the end" if self.token.kind == "end" else repr(self.token.text)
        return self.mistake(self.token.at, f"Expected {what}, not {actual}.")

    def name(self) -> Name:
        """Parses a metric name, or several separated by `|`."""
        keys = [self._key()]
        while self.accept("|"):
            keys.append(self._key())
        return Name(tuple(keys))

    def _key(self) -> str:
        token = self.token
        if token.kind == "quoted" and not token.text:
            raise self.mistake(token.at, "A name must have at least one character.")
        if token.kind == "name" and looks_divided(token.text):
            left, _, right = token.text.rpartition("/")
            raise self.mistake(
                token.at + len(left),
                f"{token.text!r} is read as one name, because the slash has no spaces around it. To divide, "
                f"write {left} / {right}; if it is a name, put it in backquotes.",
            )
        if token.kind != "quoted" and (token.kind != "name" or token.text in RESERVED):
            raise self.expected("a metric name")
        return self.take().text

    def plain_number(self) -> Number:
        """Parses a number with or without a unit."""
        token = self.token
        if token.unit in COUNTS:
            raise self.mistake(token.at, "A number of points is a window: the second argument of a function.")
        self.take()
        return Number(_scaled(token))

    def window(self) -> Window | None:
        """Parses a duration or a number of points; returns None if something else is next."""
        token = self.token
        if token.kind != "number" or not (token.unit in DURATIONS or token.unit in COUNTS):
            return None
        if token.unit in COUNTS:
            if not (token.value.is_integer() and 1 <= token.value <= MAX_POINTS):
                raise self.mistake(token.at, f"A window must have 1 to {MAX_POINTS:,} points.")
            self.take()
            return Window(points=int(token.value))
        seconds = _scaled(token)
        if not 0 < seconds <= LONGEST_S:
            raise self.mistake(token.at, f"A window must be longer than 0 and at most {LONGEST_S:.0f}s.")
        self.take()
        return Window(seconds=seconds)


def _scaled(token: Token) -> float:
    if not token.unit:
        return token.value
    times, over = SCALES[token.unit]
    return token.value * times / over
