"""Makes values safe for JSON: numbers are finite or None, text is valid UTF-8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from stepscope.schema.series import Buckets

Scalar = str | int | float | bool | None

MAX_TEXT = 2_000
MAX_DEPTH = 16
MAX_ITEMS = 2_000


def finite(value: float | None) -> float | None:
    """Returns the number; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def finites(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """Returns each number; None for those that are missing or not finite."""
    return tuple(finite(value) for value in values)


def bucket_levels(buckets: Buckets) -> NDArray[np.float64]:
    """Returns the mean of each bucket; the midpoint of its extremes where the sum overflows float64."""
    levels: NDArray[np.float64] = buckets.mean.copy()
    is_lost = (buckets.count > buckets.nonfinite) & ~(abs(levels) < float("inf"))
    levels[is_lost] = buckets.minimum[is_lost] / 2 + buckets.maximum[is_lost] / 2
    return levels


def clean(text: object, max_length: int = MAX_TEXT) -> str:
    """Returns text without lone surrogates, which cannot be encoded, and cut to a maximum length."""
    string = str(text)
    shortened = string if len(string) <= max_length else f"{string[: max_length - 1]}…"
    return shortened.encode("utf-8", "replace").decode()


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Returns the value if it is a mapping; otherwise an empty one, as in a forged file."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Returns the value if it is a list; otherwise an empty one."""
    return value if isinstance(value, list) else []


def scalar(value: Any) -> Scalar:
    """Returns a single value that JSON can express; any other value becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # JavaScript loses precision beyond 2**53.
        return value if abs(value) <= 2**53 else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return clean(value)


def json_tree(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Returns nested mappings and lists whose leaves are scalars."""
    if isinstance(value, Mapping):
        if not depth:
            return "…"
        items = list(value.items())[:MAX_ITEMS]
        return {clean(name, 200): json_tree(part, depth - 1) for name, part in items}
    if isinstance(value, list | tuple):
        return [json_tree(part, depth - 1) for part in value[:MAX_ITEMS]] if depth else "…"
    return scalar(value)
