"""Sorts logged values into numbers, arrays and texts, without importing the libraries they come from.

Exceptions of a value's own methods are caught: such a value becomes text, and the others are kept.
"""

from __future__ import annotations

import array
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from stepscope.guard import shown

MAX_ELEMENTS = 32_768
MAX_TEXT = 1_000
MAX_NAME = 10_000
MAX_DEPTH = 32
MAX_VALUES = 200_000
"""Maximum values of one call: mappings that contain each other could be endless."""
LARGEST_STEP = 2**62


@dataclass
class SortedValues:
    """Logged values by the type they are recorded as."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, tuple[tuple[int, ...], bytes]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    """The exception of the mapping itself; its values before that are included."""


def sort_values(metrics: Mapping[Any, Any]) -> SortedValues:
    """Sorts metrics by type; nested ones get names with a slash, None is left out."""
    sorted_values = SortedValues()
    try:
        _sort_into(sorted_values, metrics, "", [id(metrics)], [MAX_VALUES])
    except Exception as error:  # noqa: BLE001 - a mapping of the user's own may raise anything
        sorted_values.failure = error
    return sorted_values


def _sort_into(
    sorted_values: SortedValues,
    metrics: Mapping[Any, Any],
    prefix: str,
    enclosing: list[int],
    remaining: list[int],
) -> None:
    for key, value in metrics.items():
        name = _name(prefix, key)
        remaining[0] -= 1
        if remaining[0] < 0:
            return
        try:
            if not _is_sorted_as_nested(sorted_values, value, name, enclosing, remaining):
                _sort_value(sorted_values, value, name)
        except Exception:  # noqa: BLE001 - a value's own methods may raise anything
            sorted_values.texts[name] = _as_text(value)


def _is_sorted_as_nested(
    sorted_values: SortedValues, value: Any, name: str, enclosing: list[int], remaining: list[int]
) -> bool:
    if not isinstance(value, Mapping):
        return False
    if id(value) in enclosing or len(enclosing) >= MAX_DEPTH:
        sorted_values.texts[name] = shown(value)
        return True
    enclosing.append(id(value))
    try:
        _sort_into(sorted_values, value, f"{name}/", enclosing, remaining)
    finally:
        enclosing.pop()
    return True


def _sort_value(sorted_values: SortedValues, value: Any, name: str) -> None:
    if value is None:
        return
    number = as_number(value)
    if number is not None:
        sorted_values.numbers[name] = number
        return
    elements = _as_array(value)
    if elements is not None:
        sorted_values.arrays[name] = elements
    else:
        sorted_values.texts[name] = _as_text(value)


def _name(prefix: str, key: Any) -> str:
    try:
        name = f"{prefix}{key}"
    except Exception:  # noqa: BLE001 - a key's own text may raise anything
        name = f"{prefix}{shown(key)}"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def as_number(value: Any) -> float | None:
    """The value as a float; None if it is not a single number."""
    try:
        if isinstance(value, str | bytes | bytearray):
            return None
        # `item` converts an array or tensor of one element without a warning.
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:
        return _infinite(value)
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None


def _infinite(value: Any) -> float | None:
    try:
        return math.inf if value > 0 else -math.inf
    except Exception:  # noqa: BLE001 - a value's own comparison may raise anything
        return None


def is_on_device(value: Any) -> bool:
    """Whether a value is on a GPU, where reading it would wait."""
    try:
        return getattr(value, "is_cuda", False) is True
    except Exception:  # noqa: BLE001 - a value's own attributes may raise anything
        return False


def learning_rate_of(optimizer: object) -> Any:
    """The learning rate of an optimizer's first parameter group; None if it has no group.

    Raises an exception for an object that is not an optimizer.
    """
    groups = optimizer.param_groups  # type: ignore[attr-defined]  # or it raises
    return groups[0].get("lr") if groups else None


def as_step(value: Any) -> int | None:
    """The value as an integer that a journal can hold; None if it is not one."""
    try:
        if not isinstance(value, int):
            number = as_number(value)
            if number is None or not number.is_integer():
                return None
            value = number
        integer = int(value)
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None
    return integer if -LARGEST_STEP <= integer <= LARGEST_STEP else None


def _as_array(value: Any) -> tuple[tuple[int, ...], bytes] | None:
    """Shape and float64 bytes of a numpy array, a tensor, or a list or set of numbers.

    A generator is not read: the training may use it, and it may be endless.
    """
    if isinstance(value, str | bytes | bytearray):
        return None
    shape: Any = getattr(value, "shape", None)
    if shape is not None and math.prod(int(size) for size in shape) > MAX_ELEMENTS:
        return None
    if not hasattr(value, "tolist") and not isinstance(value, Sequence | Set):
        return None
    try:
        nested = (
            value.tolist() if hasattr(value, "tolist") else list(itertools.islice(value, MAX_ELEMENTS + 1))
        )
        flat = array.array("d", itertools.islice(_flattened(nested), MAX_ELEMENTS + 1))
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None
    shape = (len(flat),) if shape is None else tuple(int(size) for size in shape)
    if len(flat) > MAX_ELEMENTS or math.prod(shape) != len(flat):
        return None
    return shape, flat.tobytes()


def _flattened(nested: Any) -> Iterable[float]:
    if isinstance(nested, list | tuple):
        for part in nested:
            yield from _flattened(part)
    else:
        yield float(nested)


def _as_text(value: Any) -> str:
    try:
        # Long values are abbreviated: formatting a million numbers takes longer than a step.
        is_long = isinstance(value, list | tuple | dict | set | frozenset) and len(value) > MAX_TEXT
        text = shown(value) if is_long else str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
