"""Splits the text of a condition into tokens, and shows where a mistake is."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from stepscope.errors import ConfigError

MAX_CHARACTERS = 2000
"""Maximum length of a condition."""

SHOWN_CHARACTERS = 90
"""How much of a long condition is shown around a mistake."""

DURATIONS = {
    "ns": (1, 1e9), "us": (1, 1e6), "µs": (1, 1e6), "ms": (1, 1e3), "s": (1, 1),
    "m": (60, 1), "min": (60, 1), "h": (3600, 1), "d": (86400, 1),
}  # fmt: skip
"""Units of time: multiplier and divisor that convert to seconds. Two numbers keep 2ms at exactly 0.002."""

SCALES = {
    **DURATIONS, "%": (1, 100), "B": (1, 1),
    "kB": (10**3, 1), "KB": (10**3, 1), "MB": (10**6, 1), "GB": (10**9, 1), "TB": (10**12, 1),
    "KiB": (2**10, 1), "MiB": (2**20, 1), "GiB": (2**30, 1), "TiB": (2**40, 1),
}  # fmt: skip
"""All units of numbers, except for counts."""

COUNTS = ("points", "point", "steps", "step")
"""Units that make a number a window of points."""

NAME = r"[^\W\d]\w*(?:[./]\w+)*"
"""A metric name that needs no backquotes: a slash or a dot between two name characters belongs to it."""

Kind = Literal["number", "name", "quoted", "text", "sign", "end"]

_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:[ ]*(?P<unit>%|[^\W\d_]+\b))?
    |(?P<name>{NAME})
    |`(?P<quoted>(?:[^`]|``)*)`
    |"(?P<double>[^"]*)"|'(?P<single>[^']*)'
    |(?P<sign><=|>=|==|!=|[-<>+*/(),|])""",
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


class ConditionError(ConfigError):
    """A condition that cannot be parsed: what is wrong, and at which characters."""

    def __init__(self, shown: str, complaint: str, begin: int, end: int) -> None:
        super().__init__(shown)
        self.complaint, self.begin, self.end = complaint, begin, end


def mistake(text: str, at: int, problem: str) -> ConditionError:
    """Creates an error that shows the text with a caret under the wrong character."""
    begin = max(0, min(at - SHOWN_CHARACTERS // 2, len(text) - SHOWN_CHARACTERS))
    shown = text[begin : begin + SHOWN_CHARACTERS]
    line = "".join(sign if sign.isprintable() else " " for sign in shown)
    word = _TOKEN.match(text, at)
    end = at + 1 if word is None or word.lastgroup == "space" else word.end()
    return ConditionError(f"{problem}\n  {line}\n  {' ' * (at - begin)}^", problem, at, end)


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text; the last one is of kind `end`."""
    if len(text) > MAX_CHARACTERS:
        problem = f"A condition may have at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}."
        raise ConditionError(problem, problem, MAX_CHARACTERS, len(text))
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


def _token(match: re.Match[str], at: int) -> tuple[Token | None, int]:
    kind, text = match.lastgroup, match.group()
    if kind == "space":
        return None, match.end()
    if match["number"] is not None:
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
    if unit in ("and", "or"):
        unit, end = "", match.end("number")
    value = float(match["number"])
    if value == float("inf"):
        raise mistake(match.string, at, "This number is too large.")
    if unit and unit not in SCALES and unit not in COUNTS:
        raise mistake(
            match.string,
            match.start("unit"),
            f"{unit!r} is not a unit; there are {', '.join(SCALES)}, points and steps.",
        )
    return Token("number", match["number"], at, value, unit), end
