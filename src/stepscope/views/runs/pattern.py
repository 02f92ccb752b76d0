"""Matches regular expressions in time linear in the text, whatever the expression: those of RE2.

The standard library's `re` cannot be used: it takes 4.5 s for `(a+)+b` and a name of 26 letters, and twice as
long for each further one. Of 3,400 random expressions, the slowest took RE2 70 ms to compile and 77 ms for a
name of 300 characters, the longest in the list of runs.
"""

from __future__ import annotations

import re

import re2

MAX_CHARACTERS = 200
MAX_TEXT = 1_000
"""Longer texts are cut."""
MAX_BYTES = 2 * 1024 * 1024
"""Memory of one expression, enough for `\\w{100}`; one that needs more is refused."""

_CLASSES = {"w": r"\pL\pN_", "d": r"\p{Nd}", "s": r"\s\x0b\x1c-\x1f\x85\pZ"}
"""What classes contain in any alphabet; in RE2 they are ASCII characters only."""
_SET_OR_ESCAPE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*|\\.", re.DOTALL)
_CLASS_IN_SET = re.compile(r"(?<!\\)((?:\\\\)*)\\([dws])")

_REASONS = {
    "missing )": "The closing bracket is missing.",
    "missing ]": "The closing bracket is missing.",
    "unexpected )": "There is no opening bracket for this one.",
    "no argument for repetition operator": "There is nothing before it to repeat.",
    "bad repetition operator": "A repeat cannot follow a repeat; put the first one in a group.",
    "invalid repetition size": "It repeats more than 1,000 times, or backwards.",
    "invalid character class range": "This range is reversed, or there is no such class.",
    "invalid escape sequence": "This escape is not supported.",
    "trailing \\": "There is nothing after the backslash.",
    "pattern too large - compile failed": "The expression is too large; use fewer repeats.",
}
"""Errors of RE2 in our words."""
_NOT_SUPPORTED = "This is not supported; look-around and references to groups are not."


class PatternError(ValueError):
    """An invalid regular expression, with the position of the error."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class Pattern:
    """A compiled regular expression; threads may share it."""

    def __init__(self, expression: str, options: re2.Options) -> None:
        self._compiled = re2.compile(expression.encode("utf-8", "backslashreplace"), options)
        re2.purge()  # its cache would keep 128 expressions with their memory

    def is_in(self, text: str) -> bool:
        """Returns whether some part of a text matches."""
        return self._compiled.search(text[:MAX_TEXT].encode("utf-8", "replace")) is not None


def compile_pattern(text: str, *, ignores_case: bool = False) -> Pattern:
    """Compiles an expression in the syntax of RE2; raises PatternError where it is not valid."""
    if len(text) > MAX_CHARACTERS:
        raise PatternError(f"It has {len(text)} characters; at most {MAX_CHARACTERS} are allowed.", 0)
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_BYTES, False
    options.never_capture, options.dot_nl, options.case_sensitive = True, True, not ignores_case
    try:
        return Pattern(_SET_OR_ESCAPE.sub(_in_any_alphabet, text), options)
    except re2.error as error:
        reason, _, wrong = error.args[0].decode("utf-8", "replace").partition(": ")
    raise PatternError(_REASONS.get(reason, _NOT_SUPPORTED), max(text.find(wrong), 0))


def _in_any_alphabet(part: re.Match[str]) -> str:
    """Writes out the classes in a set of characters, or a class that is not in a set."""
    text = part.group()
    if text.startswith("["):
        return _CLASS_IN_SET.sub(lambda match: match[1] + _CLASSES[match[2]], text)
    name = text[1:]
    if name.lower() not in _CLASSES:
        return text
    return f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]"
