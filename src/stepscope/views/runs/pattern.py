"""Matches simple regular expressions in time linear in the text, whatever the expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_CHARACTERS = 200
MAX_DEPTH = 20
MAX_REPEATS = 100
MAX_INSTRUCTIONS = 2_000
MAX_TEXT = 1_000
"""Longer texts are cut."""
MAX_CACHED_STEPS = 2_000
"""Number of state transitions that are cached."""

_CLASSES = {"d": str.isdecimal, "w": lambda sign: sign.isalnum() or sign == "_", "s": str.isspace}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternError(ValueError):
    """An invalid regular expression, with the position of the error."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class _CharacterSet:
    """A set of characters: single ones, ranges and classes, or all others."""

    singles: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    is_negated: bool = False

    def matches(self, cases: Iterable[str]) -> bool:
        """Returns whether a character, in one of the given cases, is in the set."""
        return any(self._has(character) for character in cases) != self.is_negated

    def _has(self, character: str) -> bool:
        return (
            character in self.singles
            or any(low <= character <= high for low, high in self.ranges)
            or any(_CLASSES[name.lower()](character) != name.isupper() for name in self.classes)
        )


class _Instruction(NamedTuple):
    """One instruction: take a character, fork to two positions, or assert the begin or end of the text."""

    kind: str
    characters: _CharacterSet = _CharacterSet()
    first: int = 0
    second: int = 0


_States = frozenset[int]


class Pattern:
    """A compiled regular expression; it follows all alternatives at once, so it never backtracks."""

    def __init__(self, instructions: Sequence[_Instruction], *, ignores_case: bool) -> None:
        self._instructions, self._ignores_case = instructions, ignores_case
        self._start = self._reachable({0})
        self._transitions: dict[tuple[_States, str], _States] = {}

    def is_in(self, text: str) -> bool:
        """Returns whether some part of a text matches."""
        text = text[:MAX_TEXT]
        states = self._reachable({0}, at_begin=True)
        for character in text:
            if self._is_match(states):
                return True
            states = self._after(states, character)
        return self._is_match(self._reachable(states, at_begin=not text, at_end=True))

    def _after(self, states: _States, character: str) -> _States:
        """Returns the states after a character; a match may also begin there."""
        known = self._transitions.get((states, character))
        if known is not None:
            return known
        cases = {character, *(case for case in (character.lower(), character.upper()) if self._ignores_case)}
        taken = {
            state + 1
            for state in states
            if self._instructions[state].kind == "take"
            and self._instructions[state].characters.matches(cases)
        }
        if len(self._transitions) >= MAX_CACHED_STEPS:
            self._transitions.clear()
        reached = self._transitions[states, character] = self._reachable(taken) | self._start
        return reached

    def _is_match(self, states: _States) -> bool:
        return any(self._instructions[state].kind == "over" for state in states)

    def _reachable(
        self, begin: set[int] | _States, *, at_begin: bool = False, at_end: bool = False
    ) -> _States:
        """Returns all states that can be reached without taking a character."""
        reached: set[int] = set()
        pending = list(begin)
        while pending:
            state = pending.pop()
            if state in reached:
                continue
            reached.add(state)
            instruction = self._instructions[state]
            if instruction.kind == "fork":
                pending += [instruction.first, instruction.second]
            elif (instruction.kind == "begin" and at_begin) or (instruction.kind == "end" and at_end):
                pending.append(state + 1)
        return frozenset(reached)


def compile_pattern(text: str, *, ignores_case: bool = False) -> Pattern:
    """Compiles an expression of characters, `.`, `[a-z]`, classes, `^ $`, groups, `|`, `* + ? {2,5}`."""
    if len(text) > MAX_CHARACTERS:
        raise PatternError(f"It has {len(text)} characters; at most {MAX_CHARACTERS} are allowed.", 0)
    parser = _Parser(text)
    instructions = parser.alternatives(0)
    if parser.position < len(parser.text):
        raise PatternError("There is no opening bracket for this one.", parser.position)
    return Pattern((*instructions, _Instruction("over")), ignores_case=ignores_case)


class _Parser:
    """Parses an expression from left to right; jump targets are relative until instructions are joined."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def alternatives(self, depth: int) -> tuple[_Instruction, ...]:
        if depth > MAX_DEPTH:
            raise PatternError(f"Groups are nested more than {MAX_DEPTH} deep.", self.position)
        branches = self._sequence(depth)
        while self._next_is("|"):
            self.position += 1
            other = self._sequence(depth)
            branches = self._limited(_either(branches, other))
        return branches

    def _sequence(self, depth: int) -> tuple[_Instruction, ...]:
        instructions: tuple[_Instruction, ...] = ()
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            instructions = self._limited(_joined(instructions, self._repeated(self._single(depth))))
        return instructions

    def _repeated(self, single: tuple[_Instruction, ...]) -> tuple[_Instruction, ...]:
        begin = self.position
        bounds = self._bounds()
        if bounds is None:
            return single
        minimum, maximum = bounds
        if (maximum is not None and (maximum < minimum or maximum > MAX_REPEATS)) or minimum > MAX_REPEATS:
            raise PatternError(f"It repeats more than {MAX_REPEATS} times, or backwards.", begin)
        repeated: tuple[_Instruction, ...] = ()
        for _ in range(minimum):
            repeated = self._limited(_joined(repeated, single))
        if maximum is None:
            return self._limited(_joined(repeated, _star(single)))
        for _ in range(maximum - minimum):
            repeated = self._limited(_joined(repeated, _either(single, ())))
        return repeated

    def _bounds(self) -> tuple[int, int | None] | None:
        character = self.text[self.position : self.position + 1]
        if character in _REPEATS and character:
            self.position += 1
            bounds = _REPEATS[character]
        elif character == "{":
            end = self.text.find("}", self.position)
            low, comma, high = self.text[self.position + 1 : max(end, 0)].partition(",")
            if not _is_count(low) or not (high == "" or _is_count(high)):
                raise PatternError(
                    "Write how often it repeats as {2} or {2,5}; a bare brace as \\{.", self.position
                )
            self.position = end + 1
            bounds = int(low), (int(high) if high else None if comma else int(low))
        else:
            return None
        if self._next_is("?"):  # lazy repeats match the same texts
            self.position += 1
        if self.text[self.position : self.position + 1] in ("*", "+", "?", "{"):
            raise PatternError(
                "A repeat cannot follow a repeat; put the first one in a group.", self.position
            )
        return bounds

    def _single(self, depth: int) -> tuple[_Instruction, ...]:
        begin, character = self.position, self.text[self.position]
        self.position += 1
        if character == "(":
            return self._group(begin, depth)
        if character == "[":
            return (_Instruction("take", self._character_set(begin)),)
        if character == "\\":
            return (_Instruction("take", self._escaped(begin)),)
        if character in "*+?{":
            raise PatternError(f"There is nothing before {character!r} to repeat.", begin)
        if character == ".":
            return (_Instruction("take", _CharacterSet(is_negated=True)),)
        if character in "^$":
            return (_Instruction("begin" if character == "^" else "end"),)
        return (_Instruction("take", _CharacterSet(frozenset(character))),)

    def _group(self, begin: int, depth: int) -> tuple[_Instruction, ...]:
        if self.text.startswith("?:", self.position):
            self.position += 2
        elif self._next_is("?"):
            raise PatternError("Of the groups that begin with (? only (?: is supported.", begin)
        inner = self.alternatives(depth + 1)
        if not self._next_is(")"):
            raise PatternError("The closing bracket is missing.", begin)
        self.position += 1
        return inner

    def _escaped(self, begin: int) -> _CharacterSet:
        character = self.text[self.position : self.position + 1]
        self.position += 1
        if not character:
            raise PatternError("There is nothing after the backslash.", begin)
        if character.lower() in _CLASSES:
            return _CharacterSet(classes=(character,))
        if character in _ESCAPES:
            return _CharacterSet(frozenset(_ESCAPES[character]))
        if character.isalnum():
            raise PatternError(f"\\{character} is not supported.", begin)
        return _CharacterSet(frozenset(character))

    def _character_set(self, begin: int) -> _CharacterSet:
        is_negated = self._next_is("^")
        self.position += is_negated
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        classes: list[str] = []
        is_first = True
        while is_first or not self._next_is("]"):
            if self.position >= len(self.text):
                raise PatternError("The closing bracket is missing.", begin)
            is_first = False
            low = self._set_member(classes)
            if (
                low
                and self._next_is("-")
                and self.text[self.position + 1 : self.position + 2] not in ("]", "")
            ):
                self.position += 1
                high = self._set_member(classes)
                if not high or high < low:
                    raise PatternError("This range is reversed.", begin)
                ranges.append((low, high))
            else:
                singles.update(low)
        self.position += 1
        return _CharacterSet(frozenset(singles), tuple(ranges), tuple(classes), is_negated)

    def _set_member(self, classes: list[str]) -> str:
        """Reads one character of a set; returns "" for a class, which is added to `classes`."""
        begin, character = self.position, self.text[self.position]
        self.position += 1
        if character != "\\":
            return character
        escaped = self._escaped(begin)
        classes += escaped.classes
        return next(iter(escaped.singles), "")

    def _next_is(self, character: str) -> bool:
        return self.text[self.position : self.position + 1] == character

    def _limited(self, instructions: tuple[_Instruction, ...]) -> tuple[_Instruction, ...]:
        if len(instructions) > MAX_INSTRUCTIONS:
            raise PatternError("The expression is too large; use fewer repeats.", 0)
        return instructions


def _joined(first: tuple[_Instruction, ...], second: tuple[_Instruction, ...]) -> tuple[_Instruction, ...]:
    return first + _moved(second, len(first))


def _either(first: tuple[_Instruction, ...], second: tuple[_Instruction, ...]) -> tuple[_Instruction, ...]:
    begin_second = 2 + len(first)
    end = begin_second + len(second)
    fork, jump = (
        _Instruction("fork", first=1, second=begin_second),
        _Instruction("fork", first=end, second=end),
    )
    return (fork, *_moved(first, 1), jump, *_moved(second, begin_second))


def _star(body: tuple[_Instruction, ...]) -> tuple[_Instruction, ...]:
    end = len(body) + 2
    return (
        _Instruction("fork", first=1, second=end),
        *_moved(body, 1),
        _Instruction("fork", first=0, second=end),
    )


def _moved(instructions: tuple[_Instruction, ...], by: int) -> tuple[_Instruction, ...]:
    return tuple(
        instruction._replace(first=instruction.first + by, second=instruction.second + by)
        if instruction.kind == "fork"
        else instruction
        for instruction in instructions
    )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4
