"""Copies what a log line needs from a log record, in the thread that logs: plain data without references."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from stepscope.recorder.values import as_number

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

CATEGORIES = ("training", "performance", "errors", "system")
OURS = "stepscope"

MAX_TEXT = 32_768
MAX_FIELDS_TEXT = 65_536
MAX_PARTS = 2_000
MAX_ITEMS = 200
MAX_DEPTH = 8
MAX_ELEMENTS = 32
MAX_CAUSES = 8
FIRST_FRAMES, LAST_FRAMES = 16, 48

_BARE = len(vars(logging.makeLogRecord({})))
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName",
    "_ray_timestamp_ns",  # Ray adds it to every record of a program
}  # fmt: skip


class LogEntry(logging.LogRecord):
    """One log call as plain data, before secrets are removed; reading a value never waits for a device.

    `LogRecord.__init__` is not called: it would read time, thread and process again, in the calling thread.
    """

    def __init__(self, record: logging.LogRecord, step: Callable[[], int | None] | None) -> None:
        attributes = vars(record)
        own_step = attributes.get("step")
        self.step: int | None = own_step
        if type(own_step) is not int:
            self.step = None if step is None else step()
        self.created, self.name = record.created, record.name
        self.levelno, self.levelname = record.levelno, record.levelname
        self.category = category_of(record)
        self.msg = cut(_message(record))
        self.fields, size = _fields(attributes)
        error = record.exc_info[1] if record.exc_info else None
        self.exception = None if error is None else describe_exception(error)
        self.stack_info = cut(record.stack_info) if record.stack_info else None
        self.size = 200 + len(self.msg) + size + (0 if error is None else 5_000)
        """Approximate number of characters."""


def _fields(attributes: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """The values of `extra` as plain data, and their approximate number of characters."""
    if len(attributes) == _BARE:
        return None, 0
    names = attributes.keys() - _STANDARD
    if type(attributes.get("step")) is int:
        names.discard("step")  # the line has its own fields for step and category
    if _is_category(attributes.get("category")):
        names.discard("category")
    if not names:
        return None, 0
    walk = _Plain()
    plain = {name: walk.value(attributes[name], 0) for name in attributes if name in names}
    return plain, MAX_FIELDS_TEXT - walk.characters_left + 50 * len(plain)


def category_of(record: logging.LogRecord) -> str:
    """The category of a record: its own, else that of its logger, else by its level."""
    own: object = vars(record).get("category")
    if _is_category(own):
        return str(own)
    package, _, rest = record.name.partition(".")
    if package == OURS:
        return rest if rest in CATEGORIES else "system"
    return "errors" if record.levelno >= logging.ERROR else "training"


def _is_category(value: object) -> bool:
    return isinstance(value, str) and value in CATEGORIES


def cut(text: str, max_length: int = MAX_TEXT) -> str:
    """The beginning of a long text, cut at whitespace: half a secret would not be recognised as one."""
    if len(text) <= max_length:
        return text
    kept = text[:max_length]
    end = max(kept.rfind(" "), kept.rfind("\n"), kept.rfind("\t"), 0)
    return f"{kept[:end]} [... {len(text) - end} characters left out]"


def describe_exception(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """Type, message, frames and causes of an exception, without the values of variables."""
    description: dict[str, Any] = {"type": _type_name(type(error)), "message": cut(_text_of(error))}
    frames, left_out = _frames(error.__traceback__)
    description["frames"] = frames
    if left_out:
        description["frames_left_out"] = left_out
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list) and notes:
        description["notes"] = [cut(_text_of(note)) for note in notes[:MAX_CAUSES]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth < MAX_CAUSES:
        description["cause" if error.__cause__ else "context"] = describe_exception(cause, depth + 1)
    inner = getattr(error, "exceptions", None)  # of an exception group
    if isinstance(inner, tuple) and depth < MAX_CAUSES:
        description["exceptions"] = [
            describe_exception(member, depth + 1 + len(inner) // 2)
            for member in inner[:MAX_CAUSES]
            if isinstance(member, BaseException)
        ]
    return description


def _frames(trace: TracebackType | None) -> tuple[list[dict[str, Any]], int]:
    """The frames at both ends of a traceback, and the number of frames left out between them.

    `traceback.TracebackException` would look every source file up on the disk.
    """
    frames = [
        {"file": frame.f_code.co_filename, "line": line, "function": frame.f_code.co_name}
        for frame, line in walk_tb(trace)
    ]
    left_out = max(len(frames) - FIRST_FRAMES - LAST_FRAMES, 0)
    return frames[:FIRST_FRAMES] + frames[FIRST_FRAMES + left_out :], left_out


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - arguments may not fit, or raise anything when they become text
        return f"{_text_of(record.msg)} [arguments left out: {type(error).__name__}]"


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


class _Plain:
    """Converts the values of `extra` into plain data of limited size."""

    def __init__(self) -> None:
        self._parts_left = MAX_PARTS
        self.characters_left = MAX_FIELDS_TEXT

    def value(self, value: Any, depth: int) -> Any:
        """A value that JSON can represent."""
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int or kind is float:
            return _number(value)
        if value is None or kind is bool:
            return value
        self._parts_left -= 1
        if self._parts_left < 0 or depth > MAX_DEPTH:
            return "[...]"
        return self._of_other_kind(value, depth)

    def _of_other_kind(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._items(value, depth)
        if isinstance(value, int | float):
            return _number(value)
        if isinstance(value, BaseException):
            return describe_exception(value)
        return _array(value) if hasattr(value, "shape") else self._text(_path_or_text(value))

    def _text(self, text: str) -> str:
        kept = cut(text, max(min(MAX_TEXT, self.characters_left), 0))
        self.characters_left -= len(kept)
        return kept

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for place, (key, part) in enumerate(value.items()):
            if not self._has_room(place):
                plain["[...]"] = f"{len(value) - place} more"
                break
            plain[self._text(_text_of(key))] = self.value(part, depth + 1)
        return plain

    def _items(self, value: Any, depth: int) -> list[Any]:
        plain: list[Any] = []
        for place, part in enumerate(value):
            if not self._has_room(place):
                plain.append(f"[... {len(value) - place} more]")
                break
            plain.append(self.value(part, depth + 1))
        return plain

    def _has_room(self, place: int) -> bool:
        self._parts_left -= 1
        return self._parts_left >= 0 and place < MAX_ITEMS


def _number(value: float) -> int | float | str:
    """A number that every JSON reader accepts; non-finite ones are strings, as in the exports."""
    if isinstance(value, int):
        if value.bit_length() <= 64:
            return int(value)
        value = as_number(value) or 0.0
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _array(value: Any) -> Any:
    """A small array on the host as numbers; others by type and shape only: reading them might wait."""
    try:
        shape = tuple(int(size) for size in value.shape)
        place = str(getattr(value, "device", "cpu"))
        if place == "cpu" and math.prod(shape) <= MAX_ELEMENTS:
            return _Plain().value(value.item() if math.prod(shape) == 1 else value.tolist(), 1)
    except Exception:  # noqa: BLE001 - a value's own attributes may raise anything
        return f"<{type(value).__name__}>"
    return f"<{type(value).__name__} of shape {list(shape)} on {place}>"


def _path_or_text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, os.PathLike) else _text_of(value)
