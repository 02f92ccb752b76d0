"""Takes secrets out of what is about to be recorded; what was taken out is said in its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRET_NAME = re.compile(r"(?i)(passw|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)")
_SHAPES = (
    ("url", re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
    ("jwt", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+")),
    ("key", re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}\b")),
    ("hub", re.compile(r"\b(?:hf|gh[opsu]|glpat|xox[abps])[-_][A-Za-z0-9-]{16,}\b")),
    ("cloud", re.compile(r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b")),
    ("pem", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S)),
)


def redact_text(text: str) -> str:
    """Replaces what has the shape of a secret."""
    for rule, shape in _SHAPES:
        text = shape.sub(f"[redacted:{rule}]", text)
    return text


def redact_words(words: Iterable[str]) -> list[str]:
    """A command line without the values of `--password`, `--api-key=…` and the like."""
    kept: list[str] = []
    hide_next = False
    for word in words:
        flag, equals, _ = word.partition("=")
        named = bool(_SECRET_NAME.search(flag))
        if hide_next and not word.startswith("-"):
            kept.append("[redacted:name]")
        elif named and equals:
            kept.append(f"{flag}=[redacted:name]")
        else:
            kept.append(redact_text(word))
        hide_next = named and not equals and word.startswith("-")
    return kept
