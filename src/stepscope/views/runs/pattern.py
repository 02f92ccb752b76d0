"""Matches small regular expressions in time that grows with the text alone, whatever the expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_CHARACTERS = 200
MAX_DEPTH = 20
MAX_REPEATS = 100
MAX_PARTS = 2_000
MAX_TEXT = 1_000
"""Of a text so many characters are looked at."""
MAX_KEPT = 2_000
"""So many steps of the matching are remembered."""

_CLASSES = {"d": str.isdecimal, "w": lambda sign: sign.isalnum() or sign == "_", "s": str.isspace}
_SIGNS = {"n": "\n", "t": "\t", "r": "\r"}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternError(ValueError):
    """An expression that has no meaning, with the place of the mistake in it."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class _Letters:
    """Which characters fit: single ones, ranges and classes, or all others."""

    singles: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    is_negated: bool = False

    def fit(self, signs: Iterable[str]) -> bool:
        """Whether a character, in one of the cases it is given in, is among them."""
        return any(self._has(sign) for sign in signs) != self.is_negated

    def _has(self, sign: str) -> bool:
        return (
            sign in self.singles
            or any(low <= sign <= high for low, high in self.ranges)
            or any(_CLASSES[name.lower()](sign) != name.isupper() for name in self.classes)
        )


class _Part(NamedTuple):
    """One instruction: take a character, go on at either of two places, or be at an end of the text."""

    kind: str
    letters: _Letters = _Letters()
    first: int = 0
    second: int = 0


_Places = frozenset[int]


class Pattern:
    """An expression made ready. All ways through it are followed at once, so none is ever tried again."""

    def __init__(self, parts: Sequence[_Part], *, ignores_case: bool) -> None:
        self._parts, self._ignores_case = parts, ignores_case
        self._fresh = self._reached({0})
        self._steps: dict[tuple[_Places, str], _Places] = {}

    def is_in(self, text: str) -> bool:
        """Whether some part of a text matches."""
        text = text[:MAX_TEXT]
        places = self._reached({0}, at_begin=True)
        for sign in text:
            if self._is_over(places):
                return True
            places = self._after(places, sign)
        return self._is_over(self._reached(places, at_begin=not text, at_end=True))

    def _after(self, places: _Places, sign: str) -> _Places:
        """Where one is after a character; a match may also begin there."""
        known = self._steps.get((places, sign))
        if known is not None:
            return known
        cases = {sign, *(one for one in (sign.lower(), sign.upper()) if self._ignores_case)}
        taken = {
            place + 1
            for place in places
            if self._parts[place].kind == "take" and self._parts[place].letters.fit(cases)
        }
        if len(self._steps) >= MAX_KEPT:
            self._steps.clear()
        found = self._steps[places, sign] = self._reached(taken) | self._fresh
        return found

    def _is_over(self, places: _Places) -> bool:
        return any(self._parts[place].kind == "over" for place in places)

    def _reached(self, begin: set[int] | _Places, *, at_begin: bool = False, at_end: bool = False) -> _Places:
        """Everything that can be got to without taking a character."""
        found: set[int] = set()
        waiting = list(begin)
        while waiting:
            place = waiting.pop()
            if place in found:
                continue
            found.add(place)
            part = self._parts[place]
            if part.kind == "fork":
                waiting += [part.first, part.second]
            elif (part.kind == "begin" and at_begin) or (part.kind == "end" and at_end):
                waiting.append(place + 1)
        return frozenset(found)


def compile_pattern(text: str, *, ignores_case: bool = False) -> Pattern:
    """Makes an expression ready: signs, `.`, `[a-z]`, classes, `^ $`, groups, `|`, `* + ? {2,5}`."""
    if len(text) > MAX_CHARACTERS:
        raise PatternError(f"It has {len(text)} characters; at most {MAX_CHARACTERS} are allowed.", 0)
    parser = _Parser(text)
    parts = parser.alternatives(0)
    if parser.at < len(parser.text):
        raise PatternError("This bracket closes nothing.", parser.at)
    return Pattern((*parts, _Part("over")), ignores_case=ignores_case)


class _Parser:
    """Reads an expression from left to right; places in what it makes are relative until they are joined."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def alternatives(self, depth: int) -> tuple[_Part, ...]:
        if depth > MAX_DEPTH:
            raise PatternError(f"Groups lie more than {MAX_DEPTH} deep in each other.", self.at)
        found = self._sequence(depth)
        while self._next_is("|"):
            self.at += 1
            other = self._sequence(depth)
            found = self._checked(_either(found, other))
        return found

    def _sequence(self, depth: int) -> tuple[_Part, ...]:
        found: tuple[_Part, ...] = ()
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            found = self._checked(_joined(found, self._repeated(self._single(depth))))
        return found

    def _repeated(self, single: tuple[_Part, ...]) -> tuple[_Part, ...]:
        begin = self.at
        bounds = self._bounds()
        if bounds is None:
            return single
        least, most = bounds
        if (most is not None and (most < least or most > MAX_REPEATS)) or least > MAX_REPEATS:
            raise PatternError(f"It repeats more than {MAX_REPEATS} times, or backwards.", begin)
        found: tuple[_Part, ...] = ()
        for _ in range(least):
            found = self._checked(_joined(found, single))
        if most is None:
            return self._checked(_joined(found, _star(single)))
        for _ in range(most - least):
            found = self._checked(_joined(found, _either(single, ())))
        return found

    def _bounds(self) -> tuple[int, int | None] | None:
        sign = self.text[self.at : self.at + 1]
        if sign in _REPEATS and sign:
            self.at += 1
            bounds = _REPEATS[sign]
        elif sign == "{":
            end = self.text.find("}", self.at)
            low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
            if not _is_count(low) or not (high == "" or _is_count(high)):
                raise PatternError(
                    "Write how often it repeats as {2} or {2,5}; a bare brace as \\{.", self.at
                )
            self.at = end + 1
            bounds = int(low), (int(high) if high else None if comma else int(low))
        else:
            return None
        if self._next_is("?"):  # reluctant or not: whether it matches is the same
            self.at += 1
        if self.text[self.at : self.at + 1] in ("*", "+", "?", "{"):
            raise PatternError("What repeats is repeated again; put it into a group.", self.at)
        return bounds

    def _single(self, depth: int) -> tuple[_Part, ...]:
        begin, sign = self.at, self.text[self.at]
        self.at += 1
        if sign == "(":
            return self._group(begin, depth)
        if sign == "[":
            return (_Part("take", self._letters(begin)),)
        if sign == "\\":
            return (_Part("take", self._escaped(begin)),)
        if sign in "*+?{":
            raise PatternError(f"There is nothing before {sign!r} that could be repeated.", begin)
        if sign == ".":
            return (_Part("take", _Letters(is_negated=True)),)
        if sign in "^$":
            return (_Part("begin" if sign == "^" else "end"),)
        return (_Part("take", _Letters(frozenset(sign))),)

    def _group(self, begin: int, depth: int) -> tuple[_Part, ...]:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._next_is("?"):
            raise PatternError("Of the groups that begin with (? there is (?: alone.", begin)
        found = self.alternatives(depth + 1)
        if not self._next_is(")"):
            raise PatternError("This bracket is never closed.", begin)
        self.at += 1
        return found

    def _escaped(self, begin: int) -> _Letters:
        sign = self.text[self.at : self.at + 1]
        self.at += 1
        if not sign:
            raise PatternError("A backslash stands at the end, before nothing.", begin)
        if sign.lower() in _CLASSES:
            return _Letters(classes=(sign,))
        if sign in _SIGNS:
            return _Letters(frozenset(_SIGNS[sign]))
        if sign.isalnum():
            raise PatternError(f"\\{sign} is not part of this language.", begin)
        return _Letters(frozenset(sign))

    def _letters(self, begin: int) -> _Letters:
        is_negated = self._next_is("^")
        self.at += is_negated
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        classes: list[str] = []
        is_first = True
        while is_first or not self._next_is("]"):
            if self.at >= len(self.text):
                raise PatternError("This bracket is never closed.", begin)
            is_first = False
            low = self._letter(classes)
            if low and self._next_is("-") and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._letter(classes)
                if not high or high < low:
                    raise PatternError("This range runs backwards.", begin)
                ranges.append((low, high))
            else:
                singles.update(low)
        self.at += 1
        return _Letters(frozenset(singles), tuple(ranges), tuple(classes), is_negated)

    def _letter(self, classes: list[str]) -> str:
        """One character of a set; empty for a class, which is added to the classes."""
        begin, sign = self.at, self.text[self.at]
        self.at += 1
        if sign != "\\":
            return sign
        found = self._escaped(begin)
        classes += found.classes
        return next(iter(found.singles), "")

    def _next_is(self, sign: str) -> bool:
        return self.text[self.at : self.at + 1] == sign

    def _checked(self, parts: tuple[_Part, ...]) -> tuple[_Part, ...]:
        if len(parts) > MAX_PARTS:
            raise PatternError("It says too much at once; leave out some of its repeats.", 0)
        return parts


def _joined(one: tuple[_Part, ...], other: tuple[_Part, ...]) -> tuple[_Part, ...]:
    return one + _moved(other, len(one))


def _either(one: tuple[_Part, ...], other: tuple[_Part, ...]) -> tuple[_Part, ...]:
    begin_other = 2 + len(one)
    end = begin_other + len(other)
    fork, leap = _Part("fork", first=1, second=begin_other), _Part("fork", first=end, second=end)
    return (fork, *_moved(one, 1), leap, *_moved(other, begin_other))


def _star(one: tuple[_Part, ...]) -> tuple[_Part, ...]:
    end = len(one) + 2
    return (_Part("fork", first=1, second=end), *_moved(one, 1), _Part("fork", first=0, second=end))


def _moved(parts: tuple[_Part, ...], by: int) -> tuple[_Part, ...]:
    return tuple(
        part._replace(first=part.first + by, second=part.second + by) if part.kind == "fork" else part
        for part in parts
    )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4
