"""Converts what other tools write as steps, times and values."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.journal.records import is_int64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_DEPTH = 32
"""Deeper values are not metrics."""
MAX_JSON_DEPTH = 200
"""Python cannot show or compare values that are far deeper."""
MAX_NAME = 10_000
"""The most characters of a metric's name, as in recorded runs."""
MAX_NAMES = 16 << 20
"""The most characters of all names of a row: each has those of all objects around it."""
MAX_SECONDS = 9_000_000_000.0
"""The last second that fits into 64 bits of nanoseconds, rounded down."""
RELATIVE_BELOW = 1e8
"""Smaller times count from the start of a run: as times of day they would be in 1973 or earlier."""
TOO_DEEP = "JSON that is nested too deeply"

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SECOND_OF_UNIT = ((1e11, 1), (1e14, 10**3), (1e17, 10**6), (math.inf, 10**9))
"""Times up to each limit have so many units in a second: seconds, ms, µs, ns."""


def nanoseconds(seconds: float) -> int:
    """A time in seconds since the epoch as nanoseconds; raises ValueError for one that is not a time."""
    if not 0 <= seconds <= MAX_SECONDS:  # False for NaN as well
        raise ValueError(f"the time {seconds}, expected seconds since 1970")
    whole = int(seconds)
    return whole * 10**9 + round((seconds - whole) * 1e9)


def time_in(value: float | str, start_ns: int = 0) -> int:
    """A time in any common form, in ns since the epoch: ISO 8601, or a number of s, ms, µs or ns.

    Numbers below `RELATIVE_BELOW` are seconds after `start_ns`. Raises ValueError for what is not a time.
    """
    number = number_in(value)
    if number is None:
        return _from_iso(str(value))
    if abs(number) < RELATIVE_BELOW:
        return start_ns + nanoseconds(number)
    units = next((units for limit, units in _SECOND_OF_UNIT if number < limit), 10**9)
    if units == 1:
        return nanoseconds(number)
    nanoseconds(number / units)
    exact = whole(value)  # a float64 cannot hold every ns
    return round(number) * (10**9 // units) if exact is None else exact * (10**9 // units)


def step_in(value: Any) -> int:
    """A step; raises ValueError for what is not a whole number that a store can hold."""
    step = whole(value)
    if step is None:
        raise ValueError(f"the step {str(value)[:60]!r}, expected a whole number")
    return step


def whole(value: Any) -> int | None:
    """A whole number of 64 bits, or None."""
    try:
        number = int(value) if isinstance(value, int | str) and "_" not in str(value) else None
    except ValueError:
        number = None
    if number is None:
        floating = number_in(value)
        is_whole = floating is not None and math.isfinite(floating) and floating == int(floating)
        number = int(floating) if is_whole and floating is not None else None
    return number if is_int64(number) else None


def number_in(value: Any) -> float | None:
    """A number in any form; None for what is not one."""
    if isinstance(value, str) and "_" in value:
        return None  # a number in Python's own notation only
    if isinstance(value, bool | int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


class Parts(NamedTuple):
    """What nested mappings have."""

    numbers: dict[str, float]
    texts: dict[str, str]
    media: dict[str, dict[str, Any]]
    """Objects that describe a picture, a table, a histogram and the like."""
    left_out: list[str]
    """The names of values that are neither, such as lists, and of those whose name another value has."""


def sorted_parts(values: Mapping[str, Any], *, has_media: bool = False) -> Parts:
    """The numbers and the texts of nested mappings; NaN and infinity may be texts, as in strict JSON.

    W&B and trackio describe each picture, table or histogram by an object with a `_type`: `has_media`.
    Raises ValueError for names that are too long.
    """
    parts = Parts({}, {}, {}, [])
    characters = 0
    for name, value in _flattened(values, has_media=has_media):
        characters += len(name)
        if len(name) > MAX_NAME or characters > MAX_NAMES:
            raise ValueError(
                f"the name {name[:60]!r}... of {len(name):,} characters, expected {MAX_NAME:,} at most, and "
                f"{MAX_NAMES:,} in all names of a row"
            )
        number = _NOT_FINITE.get(value) if isinstance(value, str) else number_in(value)
        if isinstance(value, dict) and has_media and _is_medium(value):
            parts.media[name] = value
        elif name in parts.numbers or name in parts.texts:
            parts.left_out.append(name)
        elif number is not None:
            parts.numbers[name] = number
        elif isinstance(value, str):
            parts.texts[name] = value
        elif value is not None:
            parts.left_out.append(name)
    return parts


def _flattened(
    values: Mapping[str, Any], *, has_media: bool, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """The parts of nested mappings, with dots between the names."""
    for name, value in values.items():
        if isinstance(value, dict) and depth < MAX_DEPTH and not (has_media and _is_medium(value)):
            yield from _flattened(value, has_media=has_media, prefix=f"{prefix}{name}.", depth=depth + 1)
        else:
            yield f"{prefix}{name}", value


def _is_medium(value: dict[str, Any]) -> bool:
    return "_type" in value


def json_in(text: str | bytes) -> Any:
    """Parses JSON; raises ValueError for what is not JSON, or is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON from character {error.pos + 1} on") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    except ValueError as error:  # Python reads no longer numbers
        raise ValueError("a number with more than 4,300 digits") from error
    if _is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def _is_too_deep(value: Any) -> bool:
    """Whether a value of JSON has parts beyond `MAX_JSON_DEPTH`."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        wholes = [whole for whole in level if isinstance(whole, dict | list)]
        if not wholes:
            return False
        level = [part for whole in wholes for part in (whole.values() if isinstance(whole, dict) else whole)]
    return True


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parses a JSON object; raises ValueError for anything else."""
    value = json_in(text)
    if not isinstance(value, dict):
        raise ValueError(f"JSON of the type {type(value).__name__}, expected an object")  # noqa: TRY004 - damage
    return value


def _from_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        raise ValueError(f"the time {text[:60]!r}, expected ISO 8601 or seconds since 1970") from None
    nanoseconds(since.total_seconds())
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
