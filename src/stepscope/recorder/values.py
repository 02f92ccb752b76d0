"""Sorts what people log into numbers, arrays and texts, without importing the libraries they come from.

Whatever a value's own methods raise ends here: such a value becomes text, and those beside it are kept.
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
"""Values of one call that are looked at; mappings that hold each other many times over have no end."""
LARGEST_STEP = 2**62


@dataclass
class Sorted:
    """Logged values by what can be kept of them."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, tuple[tuple[int, ...], bytes]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    """What the mapping itself raised; the values it gave before that are here."""


def sort(metrics: Mapping[Any, Any]) -> Sorted:
    """Takes metrics apart; nested ones get names with a slash, None is left out."""
    found = Sorted()
    try:
        _sort_into(found, metrics, "", [id(metrics)], [MAX_VALUES])
    except Exception as error:  # noqa: BLE001 - a mapping of the user's own may raise anything
        found.failure = error
    return found


def _sort_into(
    found: Sorted, metrics: Mapping[Any, Any], prefix: str, inside: list[int], left: list[int]
) -> None:
    for key, value in metrics.items():
        name = _name(prefix, key)
        left[0] -= 1
        if left[0] < 0:
            return
        try:
            if not _is_sorted_as_nested(found, value, name, inside, left):
                _sort_value(found, value, name)
        except Exception:  # noqa: BLE001 - a value's own methods may raise anything
            found.texts[name] = _as_text(value)


def _is_sorted_as_nested(found: Sorted, value: Any, name: str, inside: list[int], left: list[int]) -> bool:
    if not isinstance(value, Mapping):
        return False
    if id(value) in inside or len(inside) >= MAX_DEPTH:
        found.texts[name] = shown(value)
        return True
    inside.append(id(value))
    try:
        _sort_into(found, value, f"{name}/", inside, left)
    finally:
        inside.pop()
    return True


def _sort_value(found: Sorted, value: Any, name: str) -> None:
    if value is None:
        return
    number = as_number(value)
    if number is not None:
        found.numbers[name] = number
        return
    elements = _as_array(value)
    if elements is not None:
        found.arrays[name] = elements
    else:
        found.texts[name] = _as_text(value)


def _name(prefix: str, key: Any) -> str:
    try:
        name = f"{prefix}{key}"
    except Exception:  # noqa: BLE001 - a key's own text may raise anything
        name = f"{prefix}{shown(key)}"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def as_number(value: Any) -> float | None:
    """A float, or None when the value is not one number."""
    try:
        if isinstance(value, str | bytes | bytearray):
            return None
        # An array or tensor of one element says so without a warning.
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
    """Whether a value lies on a GPU, where reading it would mean waiting."""
    try:
        return getattr(value, "is_cuda", False) is True
    except Exception:  # noqa: BLE001 - a value's own attributes may raise anything
        return False


def learning_rate_of(optimizer: object) -> Any:
    """The rate of an optimizer's first parameter group; None where it has no group.

    Raises what an object raises that is not an optimizer.
    """
    groups = optimizer.param_groups  # type: ignore[attr-defined]  # or it raises
    return groups[0].get("lr") if groups else None


def as_step(value: Any) -> int | None:
    """A whole number that a journal can hold, or None."""
    try:
        if not isinstance(value, int):
            number = as_number(value)
            if number is None or not number.is_integer():
                return None
            value = number
        whole = int(value)
    except Exception:  # noqa: BLE001 - a value's own conversion may raise anything
        return None
    return whole if -LARGEST_STEP <= whole <= LARGEST_STEP else None


def _as_array(value: Any) -> tuple[tuple[int, ...], bytes] | None:
    """Shape and float64 bytes of a numpy array, a tensor, or a list or set of numbers.

    A generator is left alone: it is the training's, and it may have no end.
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
        # What is long is summed up: writing out a million numbers takes longer than a step.
        is_long = isinstance(value, list | tuple | dict | set | frozenset) and len(value) > MAX_TEXT
        text = shown(value) if is_long else str(value)
    except Exception as error:  # noqa: BLE001 - a value's own text may raise anything
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
