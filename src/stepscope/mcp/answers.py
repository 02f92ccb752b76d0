"""Makes the answer of a tool: clean text, a bounded size, and the next useful call at its end."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from stepscope.views.json_values import MAX_ITEMS, json_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

Detail = Literal["short", "full"]
"""How much an answer may hold."""

MAX_BYTES: Mapping[Detail, int] = {"short": 2_000, "full": 40_000}
"""The maximum size of an answer as JSON."""

MAX_QUOTED = 100
"""Maximum characters of a name in a sentence."""

MAX_NAMED = 5
"""Maximum names that a message lists."""

MORE_DETAIL = "detail='full'"
"""The argument that allows longer answers of most tools."""

_CUTS = (
    (4_000, 400), (2_000, 100), (1_000, 40), (500, 20), (360, 10), (280, 7), (200, 5), (160, 4), (120, 3),
    (90, 2), (60, 1),
)  # fmt: skip
"""Maximum characters of a text and items of a list: each pair is tried until the answer is small enough."""

_ROW_CUTS = (4_000, 1_000, 400, 200, 120)
"""Maximum characters of a text in a list of rows: shorter ones until all rows fit."""

_ROW_ITEMS = 20
"""Maximum items of a list in a row."""

_ROW_MARGIN = 150
"""What an answer with rows says beside them: how many are left out, and where the next ones begin."""

_CALLED_BY = frozenset({"run", "key"})
"""Entries that are not cut, because the next call needs them. Their texts are short."""

_OF_LINES = frozenset({"code", "text"})
"""Entries that may have several lines. All other texts are one line: none can look like a text of its own."""

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
    more: str = ""
    """The argument that allows a longer answer, such as `detail='full'`; empty if the tool has none."""


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
    beside: dict[str, Any] = {"shortened": _hint(answer), "next": call}

    def cut(characters: int, items: int) -> dict[str, Any]:
        return {**_cut(body, characters, items), **beside}

    upper = MAX_ITEMS
    for characters, items in _CUTS:
        if size_of(cut(characters, items)) <= most:
            sizes = range(items + 1, upper + 1)
            fitting = bisect.bisect_right(sizes, most, key=lambda count: size_of(cut(characters, count)))
            return cut(characters, items + fitting)
        upper = items
    left_out: list[str] = []
    while body and size_of(cut(*_CUTS[-1])) > most:
        left_out.insert(0, body.popitem()[0])  # the least important entries are the last
        beside = {"left_out": left_out, **beside}
    return cut(*_CUTS[-1])


def with_rows(answer: Answer, name: str, rows: Sequence[Any], total: int) -> tuple[Answer, int]:
    """Returns an answer with as many rows of a list as fit, and their number; says how many are left out.

    `total` is how many there are, with those that were not asked for.
    """
    room = MAX_BYTES[answer.detail] - size_of(content_of(answer)) - _ROW_MARGIN
    cut_rows: list[Any] = []
    sizes: list[int] = []
    for characters in _ROW_CUTS:
        cut_rows = [_cut(_plain(row), characters, _ROW_ITEMS) for row in rows]
        sizes = list(itertools.accumulate(size_of(row) + 1 for row in cut_rows))
        if not sizes or sizes[-1] <= room:
            break
    count = max(bisect.bisect_right(sizes, room), min(len(rows), 1))
    left_out = total - count
    body = {**answer.body, name: cut_rows[:count], f"{name}_left_out": left_out or None}
    if left_out and answer.more and answer.detail == "short":
        body["shortened"] = _hint(answer)
    return replace(answer, body=body), count


def _hint(answer: Answer) -> str:
    """Returns how to get more of an answer that was shortened."""
    if answer.detail == "full" or not answer.more:
        return "It was too long."
    return f"Give {answer.more} for more of it."


def size_of(content: Any) -> int:
    """Returns the number of bytes of a value as JSON."""
    return len(to_json(content).encode())


def clean_text(text: object) -> str:
    """Returns text without characters that control a terminal or cannot be seen; lines stay lines."""
    return _UNSAFE.sub("", _BREAKS.sub("\n", _SEQUENCES.sub("", str(text))))


def one_line(text: object) -> str:
    """Returns clean text in one line, for names and messages."""
    return re.sub(r"[\n\t]", " ", clean_text(text))


def quoted(name: object) -> str:
    """Returns a name for a sentence: in quotes, in one line, and cut to a maximum length."""
    text = one_line(name)
    return repr(text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 1]}…")


def listed(names: Sequence[str]) -> str:
    """Returns names for a message: the first few, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


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


def _plain(value: Any, name: str = "") -> Any:
    """Returns nested plain values with clean text, without entries that are empty; `name` is of the entry."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        parts = {one_line(entry): _plain(part, entry) for entry, part in value.items()}
        return {entry: part for entry, part in parts.items() if part not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [_plain(part, name) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return rounded(value)
    leaf = json_tree(value)
    if not isinstance(leaf, str):
        return leaf
    return clean_text(leaf) if name in _OF_LINES else one_line(leaf)


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
        cut[name] = part if name in _CALLED_BY else _cut(part, characters, items)
        if isinstance(part, list) and len(part) > items:
            cut[f"{name}_left_out"] = len(part) - items
    return cut
