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
    "hmac",
)
"""In small letters; a text without any of them names no secret."""

# A name is taken from its first character on, so that a long run of letters is looked at once.
_NAME = re.compile(
    r"(?<![\w.-])(?P<dashes>-{0,2})"
    r"(?P<name>(?:(?i:api|access|secret|private|account|auth) )?\w[\w.-]*)"
    r"(?:(?P<sign>[\"'\\]{0,4}[ \t]{0,40}(?:"
    # The type in a line of a program: `api_key: str | None = "…"`.
    r":[ \t]?(?:Optional\[)?(?:str|bytes|Any|SecretStr)\]?(?:[ ]?\|[ ]?None)?[ \t]{0,3}=[ \t]{0,3}"
    r"|(?:=>|:=|==?|:(?![:/]))[ \t]{0,40}))"
    r"|(?P<gap>[\"'],[ \t]{0,3}|[ \t]{1,3}))?",
    re.ASCII,
)
_OPENING = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,7}(?:\"\"\"|'''|[\"']))")
_UNQUOTED = re.compile(r"(?:[^\s;&,]|[;&,](?!\s|\Z|[\w .-]{1,40}[=:]))+")
_NEXT = re.compile(r"[\w.-]{1,80}=[^=\s]")
_BLOCK = re.compile(r"[|>][+-]?[ \t]*\n(?:[ \t]+[^\n]*(?:\n|\Z))+")
"""A text of several lines in YAML."""
_CONTINUED = re.compile(r"[ \t]{0,8}\n[ \t]{0,80}(?=[bBrRuUfF]{0,2}[\"'])")
"""Between the parts of a long text as `pprint` divides it."""
_CONSTRUCTOR = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,6}(?:[A-Z]\w{0,60}|str|bytes|bytearray|namespace|frozenset|deque|array)\("
)
"""Begins what an object says of itself; names of functions begin with a small letter."""
_BEFORE_PAIR = re.compile(r"(?:[\[{(]|,\s?)\(b?[\"']\Z")
_PAIR = re.compile(r"[bBrRuUfF]{0,2}(?:\"(?:[^\"\\\n]|\\.){0,4096}\"|'(?:[^'\\\n]|\\.){0,4096}')\)")
_BRACKET = re.compile(
    r"\\.|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|(?P<opening>[(\[{])|(?P<closing>[)\]}])", re.S
)
_AFTER_VALUE = "\"')]}>,.\\"

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]{0,8}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?|nan|inf)%?", re.I)
_CALL = re.compile(r"[a-z_][\w.]{0,60}\(")
"""A line of a program, as tracebacks show them; no key looks like one."""
_PROSE = re.compile(r"[a-z]+(?:'[a-z]+)?[.,:;!?]?")
_NO_SECRETS = frozenset(
    [
        *("", "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "***", "****", "..."),
        *("str", "bytes", "string", "<class"),
    ]
)
_REFERENCE = re.compile(r"%\(|\{\{|\$(?:[A-Za-z_]\w*\Z|\{|\()")
"""A variable, where the value itself stands elsewhere."""
_REDACTED = re.compile(r"(?:\[redacted:[a-z0-9_-]+\])+")
_SIGNATURES = frozenset(["sig", "signature"])
_MIN_SIGNATURE_LENGTH = 20
_LONG_LENGTH = 80


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where values of secret names begin and end."""
    at = 0
    reader = _ValueReader(text)
    while (match := _NAME.search(text, at)) is not None:
        at = max(match.end("name"), match.start() + 1)
        if not _may_assign_secret(match):
            continue
        start, end = reader.read(match.end())
        if start < end and _is_secret(match, text, start, end):
            yield start, end
            at = end
        elif end - start > _LONG_LENGTH:
            at = end  # looked at once: a value rejected again and again would take quadratic time


def is_nothing(value: str) -> bool:
    """Says whether a value under a secret name hides nothing: empty, true, a variable, already taken out."""
    if len(value) < _LONG_LENGTH and (value.lower() in _NO_SECRETS or _REFERENCE.match(value)):
        return True
    return value.startswith("[redacted:") and _REDACTED.fullmatch(value) is not None


def is_working_directory(name: str, value: str) -> bool:
    """Says whether a value is a folder under a name that passwords share with it."""
    return name.lower().endswith("pwd") and value.startswith(("/", "~", "."))


def is_number(value: str) -> bool:
    """Says whether a text is a plain number, too short to be a key."""
    return _NUMBER.fullmatch(value) is not None


class _ValueReader:
    """Finds where values end, in time linear in the text however often it is asked."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._brackets_left = len(text)
        """Brackets and quoted texts that may still be looked at: one may be met by several searches."""

    def read(self, at: int) -> tuple[int, int]:
        """Begin and end of a value: quoted, in brackets, or up to a blank or the next assignment."""
        text = self._text
        opening = _OPENING.match(text, at)
        if opening is not None:
            return opening.end(), _last_part(text, opening)
        block = _BLOCK.match(text, at)
        if block is not None:
            return at, at + len(block[0].rstrip())
        constructor = _CONSTRUCTOR.match(text, at)
        if constructor is not None:
            return at, self._closing_bracket(constructor.end() - 1)
        if text[at : at + 1] in ("(", "[", "{"):
            return at, self._closing_bracket(at)
        match = _UNQUOTED.match(text, at)
        if match is None:
            return at, at
        return at, at + len(match[0].rstrip(_AFTER_VALUE))

    def _closing_bracket(self, at: int) -> int:
        """Where a bracket is closed, those inside it counted; the end of the line where it is not."""
        depth = 0
        for match in _BRACKET.finditer(self._text, at):
            self._brackets_left -= 1
            if self._brackets_left < 0:
                break
            depth += bool(match["opening"]) - bool(match["closing"])
            if not depth and match["closing"]:
                return match.end()
        return _line_end(self._text, at)


def _last_part(text: str, opening: re.Match[str]) -> int:
    """Where a quoted value ends, with the parts that follow it on lines of their own."""
    end = _closing_quote(text, opening.end(), opening["quote"])
    while (gap := _CONTINUED.match(text, end + len(opening["quote"]))) is not None:
        further = _OPENING.match(text, gap.end())
        if further is None:
            break
        end = _closing_quote(text, further.end(), further["quote"])
        opening = further
    return end


def _closing_quote(text: str, at: int, quote: str) -> int:
    """Where a quoted value ends; without a closing quote, at the end of the line."""
    index = text.find(quote, at)
    # A quote behind an odd number of backslashes belongs to the value.
    while index >= 0 and not quote.startswith("\\") and _backslashes_before(text, index, at) % 2:
        index = text.find(quote, index + 1)
    return index if index >= 0 else _line_end(text, at)


def _backslashes_before(text: str, index: int, start: int) -> int:
    count = 0
    while index - count > start and text[index - count - 1] == "\\":
        count += 1
    return count


def _line_end(text: str, at: int) -> int:
    index = text.find("\n", at)
    return index if index >= 0 else len(text)


def _may_assign_secret(match: re.Match[str]) -> bool:
    """Whether a value may follow, and the name is one of a secret."""
    if match["sign"] == "= " and _NEXT.match(match.string, match.end()):
        return False  # nothing was given: the next assignment follows
    is_flag = bool(match["gap"] and match["dashes"] and match.string[match.end() : match.end() + 1] != "-")
    if match["sign"] is None and not is_flag and not _is_first_of_pair(match):
        return False
    return is_secret_name(match["name"]) or match["name"].lower() in _SIGNATURES


def _is_first_of_pair(match: re.Match[str]) -> bool:
    """Whether the name is the first of a pair in a list of pairs: `[('token', '…'), …]`."""
    if not match["gap"] or "," not in match["gap"]:
        return False
    before = match.string[max(match.start() - 6, 0) : match.start()]
    return _BEFORE_PAIR.search(before) is not None and _PAIR.match(match.string, match.end()) is not None


def _is_secret(match: re.Match[str], text: str, start: int, end: int) -> bool:
    name, value = match["name"].lower(), text[start:end]
    if is_nothing(value) or is_working_directory(name, value):
        return False
    if name in _SIGNATURES:
        return len(value) >= _MIN_SIGNATURE_LENGTH and "(" not in value
    if hides_numbers(match["name"]):
        return True
    if _CONSTRUCTOR.match(value):
        return True
    return not (is_number(value) or _CALL.match(value) or _is_prose(match, text, end))


def _is_prose(match: re.Match[str], text: str, end: int) -> bool:
    """Whether a sentence goes on after a colon, as in `invalid token: expected a name`."""
    sign = match["sign"]
    if not sign or ":" not in sign or not sign.endswith((" ", "\t")):
        return False
    rest = text[end : end + _LONG_LENGTH].partition("\n")[0].strip(_AFTER_VALUE + ":;!? \t\r")
    return bool(rest) and _PROSE.fullmatch(text, match.end(), end) is not None
