"""Goes through the words of a condition, and reads its smallest parts: names, numbers and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.alerts.conditions.tokens import COUNTS, DURATIONS, SCALES, Token, mistake, tokens_of
from stepscope.alerts.conditions.tree import RESERVED, Name, Number, Window, looks_divided

if TYPE_CHECKING:
    from stepscope.errors import ConfigError

LONGEST_S, MAX_POINTS = 7 * 86400.0, 100_000
"""The widest windows."""


class Cursor:
    """A place in a text, and what stands there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0

    @property
    def token(self) -> Token:
        """The word that is next."""
        return self._tokens[self._next]

    def is_next(self, *signs: str) -> bool:
        """Whether one of these signs or words is next."""
        return self.token.kind in ("sign", "name") and self.token.text in signs

    def is_call(self) -> bool:
        """Whether a function is next: a word and an opening parenthesis."""
        if self.token.kind != "name" or self.token.text in ("and", "or", "not"):
            return False
        after = self._tokens[self._next + 1]
        return after.kind == "sign" and after.text == "("

    def take(self) -> Token:
        """The word that is next; the cursor goes on."""
        token = self.token
        self._next += token.kind != "end"
        return token

    def accept(self, sign: str) -> bool:
        """Whether a sign is next, which then is taken."""
        is_next = self.is_next(sign)
        if is_next:
            self.take()
        return is_next

    def demand(self, sign: str, what: str) -> None:
        """Takes a sign; an error where another is next."""
        if not self.accept(sign):
            raise self.expected(what)

    def expect_end(self, what: str) -> None:
        """An error where anything is left."""
        if self.token.kind != "end":
            raise self.expected(what)

    def mark(self) -> int:
        """Where the cursor is, to come back to."""
        return self._next

    def back_to(self, mark: int) -> None:
        """Goes back."""
        self._next = mark

    def mistake(self, at: int, complaint: str) -> ConfigError:
        """An error that points at a character."""
        return mistake(self._text, at, complaint)

    def expected(self, what: str) -> ConfigError:
        """An error that says what should be next."""
        found = "the end" if self.token.kind == "end" else repr(self.token.text)
        return self.mistake(self.token.at, f"Expected {what}, not {found}.")

    def name(self) -> Name:
        """A metric name, or several with bars between them."""
        keys = [self._key()]
        while self.accept("|"):
            keys.append(self._key())
        return Name(tuple(keys))

    def _key(self) -> str:
        token = self.token
        if token.kind == "quoted" and not token.text:
            raise self.mistake(token.at, "A name has at least one character.")
        if token.kind == "name" and looks_divided(token.text):
            left, _, right = token.text.rpartition("/")
            raise self.mistake(
                token.at + len(left),
                f"{token.text!r} reads as one name: a slash without spaces belongs to it. To divide, write "
                f"{left} / {right}; if it is a name, put it in backquotes.",
            )
        if token.kind != "quoted" and (token.kind != "name" or token.text in RESERVED):
            raise self.expected("a metric name")
        return self.take().text

    def plain_number(self) -> Number:
        """A number with or without a unit."""
        token = self.token
        if token.unit in COUNTS:
            raise self.mistake(token.at, "A number of points is a window: the second argument of a function.")
        self.take()
        return Number(_scaled(token))

    def window(self) -> Window | None:
        """A duration or a number of points; None where something else is next."""
        token = self.token
        if token.kind != "number" or not (token.unit in DURATIONS or token.unit in COUNTS):
            return None
        if token.unit in COUNTS:
            if not (token.value.is_integer() and 1 <= token.value <= MAX_POINTS):
                raise self.mistake(token.at, f"A window has 1 to {MAX_POINTS:,} points.")
            self.take()
            return Window(points=int(token.value))
        seconds = _scaled(token)
        if not 0 < seconds <= LONGEST_S:
            raise self.mistake(token.at, f"A window is longer than 0 and at most {LONGEST_S:.0f}s.")
        self.take()
        return Window(seconds=seconds)


def _scaled(token: Token) -> float:
    if not token.unit:
        return token.value
    times, over = SCALES[token.unit]
    return token.value * times / over
