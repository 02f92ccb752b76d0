"""Splits a filter into terms: words, comparisons and regular expressions, each with its position."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.errors import StepscopeError

MAX_CHARACTERS = 1_000
MAX_TERMS = 50

_SIGNS = (":", "<=", ">=", "!=", "==", "<", ">", "=")
_NAME = re.compile(r"(?:(?!!=)[^\s:<>=\"'])+")
_BLANKS = re.compile(r"\s*")
_BARE = re.compile(r"\S+")


class FilterError(StepscopeError):
    """A filter that cannot be parsed, with the position of the wrong term."""

    def __init__(self, message: str, begin: int, end: int) -> None:
        super().__init__(message)
        self.message, self.begin, self.end = message, begin, end


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

    def mistake(self, message: str) -> FilterError:
        """Returns an error about this term."""
        return FilterError(message, self.begin, self.end)


def terms_of(text: str) -> list[Term]:
    """Returns the terms of a filter."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(
            f"The filter has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed.",
            MAX_CHARACTERS,
            len(text),
        )
    terms: list[Term] = []
    position = _after_blanks(text, 0)
    while position < len(text):
        if len(terms) == MAX_TERMS:
            raise FilterError(f"The filter has more than {MAX_TERMS} terms.", position, len(text))
        term = _term(text, position)
        terms.append(term)
        position = _after_blanks(text, term.end)
    return terms


def _term(text: str, begin: int) -> Term:
    at, is_excluded = begin, text[begin] == "-"
    if is_excluded:
        at += 1
        if at == len(text) or text[at].isspace() or text[at] == "-":
            raise FilterError("A minus excludes a term, as in -word.", begin, at)
    if text[at] == "/":
        return _pattern(text, begin, at, is_excluded=is_excluded)
    if text[at] in "\"'":
        value, end = _quoted(text, at)
        return Term(begin, end, is_excluded, value=value)
    name = _NAME.match(text, at)
    if name is None:
        raise FilterError(
            f"A name is missing before {text[at]!r}, as in steps>1000.", begin, _word_end(text, at)
        )
    sign, after = _sign(text, name.end())
    if not sign:
        end = name.end()
        if end < len(text) and not text[end].isspace():
            raise FilterError(
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
        raise FilterError("A value is missing at the end of this term.", begin, at)
    if text[at] in "\"'":
        return _quoted(text, at)
    end = _word_end(text, at)
    return text[at:end], end


def _quoted(text: str, at: int) -> tuple[str, int]:
    end = text.find(text[at], at + 1)
    if end < 0:
        raise FilterError("The closing quote is missing.", at, len(text))
    if end == at + 1:
        raise FilterError("There is nothing between these quotes.", at, end + 1)
    if end + 1 < len(text) and not text[end + 1].isspace():
        raise FilterError("A space is missing after the closing quote.", at, _word_end(text, end + 1))
    return text[at + 1 : end], end + 1


def _pattern(text: str, begin: int, at: int, *, is_excluded: bool) -> Term:
    end = at + 1
    while end < len(text) and text[end] != "/":
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise FilterError("The closing slash of this expression is missing.", begin, len(text))
    after = end + 1 + (text[end + 1 : end + 2] == "i")
    if after < len(text) and not text[after].isspace():
        raise FilterError(
            "Only i may follow an expression; put a name with slashes in quotes.",
            begin,
            _word_end(text, after),
        )
    if end == at + 1:
        raise FilterError("There is nothing between these slashes.", begin, after)
    inner = text[at + 1 : end].replace("\\/", "/")
    return Term(begin, after, is_excluded, value=inner, is_pattern=True, flags=text[end + 1 : after])


def _word_end(text: str, at: int) -> int:
    match = _BARE.match(text, at)
    return at if match is None else match.end()


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()
