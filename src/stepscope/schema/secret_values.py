"""Finds values that text assigns to a secret name: `password=…`, `"api_key": "…"`, `--token …`."""

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
"""Lower-case; a text without any of them contains no secret name."""

# A name is matched from its first character, so that a long run of letters is scanned once.
_NAME = re.compile(
    r"(?<![\w.-])(?P<dashes>-{0,2})"
    r"(?P<name>(?:(?i:api|access|secret|private|account|auth) )?\w[\w.-]*)"
    r"(?:(?P<sign>[\"'\\]{0,4}[ \t]{0,40}(?:"
    # A type annotation in source code: `api_key: str | None = "…"`.
    r":[ \t]?(?:Optional\[)?(?:str|bytes|Any|SecretStr)\]?(?:[ ]?\|[ ]?None)?[ \t]{0,3}=[ \t]{0,3}"
    r"|(?:=>|:=|==?|:(?![:/]))[ \t]{0,40}))"
    r"|(?P<gap>[\"'],[ \t]{0,3}|[ \t]{1,3}))?",
    re.ASCII,
)
_OPENING = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,7}(?:\"\"\"|'''|[\"']))")
_UNQUOTED = re.compile(r"(?:[^\s;&,]|[;&,](?!\s|\Z|[\w .-]{1,40}[=:]))+")
_NEXT = re.compile(r"[\w.-]{1,80}=[^=\s]")
_BLOCK = re.compile(r"[|>][+-]?[ \t]*\n(?:[ \t]+[^\n]*(?:\n|\Z))+")
"""A block of several lines in YAML."""
_CONTINUED = re.compile(r"[ \t]{0,8}\n[ \t]{0,80}(?=[bBrRuUfF]{0,2}[\"'])")
"""Between the parts of a long text as `pprint` splits it."""
_CONSTRUCTOR = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,6}(?:[A-Z]\w{0,60}|str|bytes|bytearray|namespace|frozenset|deque|array)\("
)
"""The start of an object's repr; names of functions start with a lower-case letter."""
_BEFORE_PAIR = re.compile(r"(?:[\[{(]|,\s?)\(b?[\"']\Z")
_PAIR = re.compile(r"[bBrRuUfF]{0,2}(?:\"(?:[^\"\\\n]|\\.){0,4096}\"|'(?:[^'\\\n]|\\.){0,4096}')\)")
_BRACKET = re.compile(
    r"\\.|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|(?P<opening>[(\[{])|(?P<closing>[)\]}])", re.S
)
_AFTER_VALUE = "\"')]}>,.\\"

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]{0,8}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?|nan|inf)%?", re.I)
_CALL = re.compile(r"[a-z_][\w.]{0,60}\(")
"""A line of source code, as in tracebacks; no key looks like one."""
_PROSE = re.compile(r"[a-z]+(?:'[a-z]+)?[.,:;!?]?")
_NO_SECRETS = frozenset(
    [
        *("", "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "***", "****", "..."),
        *("str", "bytes", "string", "<class"),
    ]
)
_REFERENCE = re.compile(r"%\(|\{\{|\$(?:[A-Za-z_]\w*\Z|\{|\()")
"""A reference to a variable, whose value is elsewhere."""
_REDACTED = re.compile(r"(?:\[redacted:[a-z0-9_-]+\])+")
_SIGNATURES = frozenset(["sig", "signature"])
_MIN_SIGNATURE_LENGTH = 20
_LONG_LENGTH = 80


def spans(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of values of secret names."""
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
            at = end  # skipped: a long value that is scanned repeatedly would take quadratic time


def is_nothing(value: str) -> bool:
    """Whether a value under a secret name is no secret: empty, true, a variable, already redacted."""
    if len(value) < _LONG_LENGTH and (value.lower() in _NO_SECRETS or _REFERENCE.match(value)):
        return True
    return value.startswith("[redacted:") and _REDACTED.fullmatch(value) is not None


def is_working_directory(name: str, value: str) -> bool:
    """Whether a value is a folder under a name that also means a password (`pwd`)."""
    return name.lower().endswith("pwd") and value.startswith(("/", "~", "."))


def is_number(value: str) -> bool:
    """Whether a text is a plain number, too short to be a key."""
    return _NUMBER.fullmatch(value) is not None


class _ValueReader:
    """Finds the ends of values, in linear time over all calls."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._brackets_left = len(text)
        """Brackets and quoted texts that may still be scanned: several searches may scan the same one."""

    def read(self, at: int) -> tuple[int, int]:
        """Start and end of a value: quoted, in brackets, or up to a blank or the next assignment."""
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
        """The end of the matching bracket; the end of the line where there is none."""
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
    """The end of a quoted value, including parts that continue on further lines."""
    end = _closing_quote(text, opening.end(), opening["quote"])
    while (gap := _CONTINUED.match(text, end + len(opening["quote"]))) is not None:
        further = _OPENING.match(text, gap.end())
        if further is None:
            break
        end = _closing_quote(text, further.end(), further["quote"])
        opening = further
    return end


def _closing_quote(text: str, at: int, quote: str) -> int:
    """The end of a quoted value; the end of the line where there is no closing quote."""
    index = text.find(quote, at)
    # A quote after an odd number of backslashes belongs to the value.
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
    """Whether a value may follow, and the name is that of a secret."""
    if match["sign"] == "= " and _NEXT.match(match.string, match.end()):
        return False  # empty value: the next assignment follows
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
    """Whether a sentence continues after a colon, as in `invalid token: expected a name`."""
    sign = match["sign"]
    if not sign or ":" not in sign or not sign.endswith((" ", "\t")):
        return False
    rest = text[end : end + _LONG_LENGTH].partition("\n")[0].strip(_AFTER_VALUE + ":;!? \t\r")
    return bool(rest) and _PROSE.fullmatch(text, match.end(), end) is not None
