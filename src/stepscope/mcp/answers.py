"""Makes the answer of a tool: clean text, a bounded size, and the next useful call at its end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from stepscope.views.json_values import json_tree

Detail = Literal["short", "full"]
"""How much an answer may hold."""

MAX_BYTES: Mapping[Detail, int] = {"short": 2_000, "full": 40_000}
"""The maximum size of an answer as JSON."""

_CUTS = (
    (4_000, 400), (2_000, 100), (1_000, 40), (500, 20), (360, 10), (280, 7), (200, 5), (160, 4), (120, 3),
    (90, 2), (60, 1),
)  # fmt: skip
"""Maximum characters of a text and items of a list: each pair is tried until the answer is small enough."""

_BREAKS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
# Escape sequences of terminals, then control, direction and invisible characters, and lone surrogates.
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
)


@dataclass(frozen=True)
class NextCall:
    """The next useful call."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Answer:
    """What a tool answers, before it is cut to its maximum size."""

    body: Mapping[str, Any]
    """The most important entries first; entries that are None or empty are left out."""
    next: NextCall
    detail: Detail = "short"


def to_json(value: Any) -> str:
    """Returns strict JSON in one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def content_of(answer: Answer) -> dict[str, Any]:
    """Returns the content of an answer, cut to its maximum size."""
    body, call = _plain(answer.body), _plain({"tool": answer.next.tool})
    call |= {"arguments": _plain(answer.next.arguments), "why": clean_text(answer.next.why)}
    most = MAX_BYTES[answer.detail]
    content = {**body, "next": call}
    if size_of(content) <= most:
        return content
    hint = "" if answer.detail == "full" else "Give detail='full' for all of it."
    for characters, items in _CUTS:
        cut = {**_cut(body, characters, items), "shortened": hint or "It was too long.", "next": call}
        if size_of(cut) <= most:
            return cut
    while body and size_of(cut) > most:
        body.popitem()  # the least important entries are the last
        cut = {**_cut(body, *_CUTS[-1]), "shortened": hint or "It was too long.", "next": call}
    return cut


def size_of(content: Any) -> int:
    """Returns the number of bytes of a value as JSON."""
    return len(to_json(content).encode())


def clean_text(text: object) -> str:
    """Returns text without characters that control a terminal or cannot be seen; lines stay lines."""
    return _UNSAFE.sub("", _BREAKS.sub("\n", _SEQUENCES.sub("", str(text))))


def moment(seconds: float | None) -> str | None:
    """Returns a time as text, in UTC; None if it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):  # a year that no calendar has
        return None


def rounded(value: float | None) -> float | None:
    """Returns a number with five significant digits; None if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def _plain(value: Any) -> Any:
    """Returns nested plain values with clean text, without entries that are empty."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        parts = {clean_text(name): _plain(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return rounded(value)
    leaf = json_tree(value)
    return clean_text(leaf) if isinstance(leaf, str) else leaf


def _cut(value: Any, characters: int, items: int) -> Any:
    """Returns a value with shorter texts and lists; says how many items of a list are left out."""
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[: characters - 1]}…"
    if isinstance(value, list):
        return [_cut(part, characters, items) for part in value[:items]]
    if not isinstance(value, dict):
        return value
    cut: dict[str, Any] = {}
    for name, part in value.items():
        cut[name] = _cut(part, characters, items)
        if isinstance(part, list) and len(part) > items:
            cut[f"{name}_left_out"] = len(part) - items
    return cut
