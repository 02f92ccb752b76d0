"""Validates the contents of journal frames before they are stored: types, ranges, shapes.

A checksum proves that bytes are unchanged, not that they are valid. Everything that reaches the store from a
journal passes through here, so later code may trust its types.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from stepscope.journal import layout
from stepscope.schema.run import LIVE, Role, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH: Final = 100
MAX_DIMENSIONS: Final = 32
NUMERIC_KINDS: Final = "biufc"
ENDINGS: Final = frozenset(get_args(Status)) - LIVE
ROLES: Final = frozenset(get_args(Role))


class BadRecordError(ValueError):
    """A frame is intact but cannot be stored; the message says why."""


def read_keys(payload: bytes) -> tuple[str, ...]:
    """The names of a key set."""
    names = _read_json(payload)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRecordError(f"names of metrics are {_shown(names)}, expected a list of texts")
    return tuple(layout.clean(name) for name in names)


def read_opening(payload: bytes, clock_base_ns: int) -> dict[str, Any]:
    """The opening record of a process; facts of a wrong type are left out."""
    fields = _read_object(payload, clock_base_ns)
    for name in ("run", "project", "host"):
        _require(fields, name, "a text", lambda value: isinstance(value, str))
    _require(fields, "role", f"one of {', '.join(sorted(ROLES))}", lambda value: value in ROLES)
    _require(fields, "started_ns", "a time in ns", lambda value: is_int64(value) and value > 0)
    _require(fields, "facts", "an object", lambda value: isinstance(value, dict))
    fields["facts"] = {
        name: fact
        for name, fact in fields["facts"].items()
        if fact is None or name not in FACTS or FACTS[name](fact)
    }
    return fields


def read_end(payload: bytes, clock_base_ns: int) -> dict[str, Any]:
    """The end record of a process."""
    return check_end(_read_object(payload, clock_base_ns))


def check_end(fields: dict[str, Any]) -> dict[str, Any]:
    """Checks an end record, from the journal or an exit note."""
    _require(fields, "status", f"one of {', '.join(sorted(ENDINGS))}", lambda value: value in ENDINGS)
    _require(fields, "reason", "a text", lambda value: isinstance(value, str))
    _require(fields, "dropped", "a count", lambda value: is_int64(value) and value >= 0)
    if fields.get("exit_code") is not None:
        _require(fields, "exit_code", "an integer", is_int64)
    return fields


def read_event(payload: bytes, clock_base_ns: int, origin: int) -> dict[str, Any]:
    """An event as `kind`, `step`, `time`, `fields` and `user` (whether it is the user's)."""
    event = _read_object(payload, clock_base_ns)
    if "kind" not in event:
        raise BadRecordError("an event has no kind")
    kind, time_ns = event.pop("kind"), event.pop("time")
    fields = event
    if origin == layout.OF_USER:
        _require(event, "fields", "an object", lambda value: isinstance(value, dict))
        fields = event["fields"]
    step = event.get("step")
    if is_int64(step):
        event.pop("step")
    elif origin == layout.OF_USER and step is not None:
        raise BadRecordError(f"step of an event is {_shown(step)}, expected an integer")
    if origin == layout.OF_STEPSCOPE and kind == "gap":
        _require(fields, "dropped", "a count", lambda value: is_int64(value) and value >= 0)
    return {
        "kind": kind if isinstance(kind, str) else _shown(kind),
        "step": step if is_int64(step) else None,
        "time": time_ns,
        "fields": fields,
        "user": origin == layout.OF_USER,
    }


def read_array(payload: bytes, clock_base_ns: int) -> tuple[dict[str, Any], bytes]:
    """The description of an array, and its bytes."""
    size = int.from_bytes(payload[: layout.JSON_LENGTH.size], "little")
    start = layout.JSON_LENGTH.size + size
    if start > len(payload):
        raise BadRecordError(f"the description of an array has {size} bytes, more than its record")
    fields = _read_object(payload[layout.JSON_LENGTH.size : start], clock_base_ns)
    _require(fields, "key", "a text", lambda value: isinstance(value, str))
    _require(fields, "bytes", "a count", lambda value: is_int64(value) and value >= 0)
    if fields.setdefault("step", None) is not None:
        _require(fields, "step", "an integer", is_int64)
    dtype, shape = _dtype(fields.get("dtype")), _shape(fields.get("shape"))
    raw = payload[start : start + fields["bytes"]]
    if len(raw) != fields["bytes"] or math.prod(shape) * dtype.itemsize != len(raw):
        raise BadRecordError(
            f"an array of shape {shape} and type {dtype.str} has {len(raw)} bytes, "
            f"expected {math.prod(shape) * dtype.itemsize}"
        )
    return fields, raw


def is_int64(value: object) -> bool:
    """Whether this is an integer that a database can store."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _dtype(name: object) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in NUMERIC_KINDS:
        raise BadRecordError(f"type of an array is {_shown(name)}, expected a numeric type such as '<f8'")
    return dtype


def _shape(shape: object) -> list[int]:
    is_sound = isinstance(shape, list) and all(is_int64(side) and side >= 0 for side in shape)
    if not isinstance(shape, list) or not is_sound or len(shape) > MAX_DIMENSIONS:
        raise BadRecordError(f"shape of an array is {_shown(shape)}, expected a list of lengths")
    return shape


def _read_object(payload: bytes, clock_base_ns: int) -> dict[str, Any]:
    """A JSON object with `time` in ns since the epoch."""
    fields = _read_json(payload)
    if not isinstance(fields, dict):
        raise BadRecordError(f"a record is {_shown(fields)}, expected an object")
    _require(fields, "time", "a time in ns", is_int64)
    fields["time"] += clock_base_ns
    _require(fields, "time", "a time in ns", is_int64)
    return fields


def _read_json(payload: bytes) -> Any:
    """Parses JSON into a value in which every text and number can be stored and shown."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"a record is not JSON that can be read ({error})") from error
    if _depth(value) > MAX_DEPTH:
        raise BadRecordError(f"a record is nested more than {MAX_DEPTH} levels deep")
    return layout.json_safe(value)


def _depth(value: Any) -> int:
    """The nesting depth of a value; computed without recursion, which a forged record could exhaust."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
        ]
    return depth


def _require(fields: Mapping[str, Any], name: str, expected: str, is_valid: Callable[[Any], bool]) -> None:
    value = fields.get(name)
    if not _is_satisfied(is_valid, value):
        raise BadRecordError(f"{name} of a record is {_shown(value)}, expected {expected}")


def _is_satisfied(is_valid: Callable[[Any], bool], value: Any) -> bool:
    try:
        return is_valid(value)
    except TypeError:  # a list is not hashable
        return False


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_object_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(part, str) for part in value.values())


def _is_mark(value: object) -> bool:
    return (
        isinstance(value, dict)
        and is_int64(value.get("pid"))
        and (value.get("start_ticks") is None or is_int64(value["start_ticks"]))
        and all(value.get(name) is None or isinstance(value[name], str) for name in ("boot_id", "namespace"))
    )


FACTS: Final[dict[str, Callable[[Any], bool]]] = {
    "mark": _is_mark,
    "command": lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value),
    "python": _is_text,
    "platform": _is_text,
    "commit": _is_text,
    "log_directory": _is_text,
    "cpus": _is_number,
    "world_size": is_int64,
    "libraries": _is_object_of_texts,
    "environment": _is_object_of_texts,
    "samplers": lambda value: (
        isinstance(value, dict) and all(isinstance(part, dict) for part in value.values())
    ),
    "alerts": lambda value: isinstance(value, dict),
    "targets": lambda value: isinstance(value, dict),
    "energy": lambda value: isinstance(value, dict),
    "config": lambda value: isinstance(value, dict),
    "total_steps": _is_number,
}
"""The facts that are used as more than text, and the check of each."""
