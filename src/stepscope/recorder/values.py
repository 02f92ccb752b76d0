"""Sorts what people log into numbers, arrays and texts, without importing the libraries they come from."""

from __future__ import annotations

import array
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_ELEMENTS = 32_768
MOST_TEXT = 1_000
LARGEST_STEP = 2**62


@dataclass
class Sorted:
    """Logged values by what can be kept of them."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, tuple[tuple[int, ...], bytes]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def sort(metrics: Mapping[Any, Any]) -> Sorted:
    """Takes metrics apart; nested ones get names with a slash, None is left out."""
    found = Sorted()
    _sort_into(found, metrics, "")
    return found


def _sort_into(found: Sorted, metrics: Mapping[Any, Any], prefix: str) -> None:
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if value is None:
            continue
        if isinstance(value, Mapping):
            _sort_into(found, value, f"{name}/")
            continue
        number = as_number(value)
        if number is not None:
            found.numbers[name] = number
            continue
        elements = _as_array(value)
        if elements is not None:
            found.arrays[name] = elements
        else:
            found.texts[name] = _as_text(value)


def as_number(value: Any) -> float | None:
    """A float, or None when the value is not one number."""
    if isinstance(value, str | bytes | bytearray):
        return None
    try:
        # An array or tensor of one element says so without a warning.
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None


def learning_rate_of(optimizer: object) -> Any:
    """The rate of an optimizer's first parameter group; None where there is none."""
    groups = getattr(optimizer, "param_groups", None)
    return groups[0].get("lr") if groups else None


def as_step(value: Any) -> int | None:
    """A whole number that a journal can hold, or None."""
    if not isinstance(value, int):
        number = as_number(value)
        if number is None or not number.is_integer():
            return None
        value = int(number)
    return value if -LARGEST_STEP <= value <= LARGEST_STEP else None


def _as_array(value: Any) -> tuple[tuple[int, ...], bytes] | None:
    """Shape and float64 bytes of a numpy array, a tensor or a list of numbers."""
    if isinstance(value, str | bytes | bytearray):
        return None
    try:
        nested = value.tolist() if hasattr(value, "tolist") else list(value)
        flat = array.array("d", _flattened(nested))
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None
    shape = tuple(int(size) for size in getattr(value, "shape", (len(flat),)))
    if len(flat) > MOST_ELEMENTS or math.prod(shape) != len(flat):
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
        text = str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
