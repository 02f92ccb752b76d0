"""Makes values fit to be sent: numbers that are finite or None, text that any encoding can take."""

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
    """The number itself; None where it is none, or not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def finites(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """The same for each of several."""
    return tuple(finite(value) for value in values)


def bucket_levels(buckets: Buckets) -> NDArray[np.float64]:
    """The mean of each bucket to draw; where the sum is beyond float64, the middle of the extremes."""
    levels: NDArray[np.float64] = buckets.mean.copy()
    is_lost = (buckets.count > buckets.nonfinite) & ~(abs(levels) < float("inf"))
    levels[is_lost] = buckets.minimum[is_lost] / 2 + buckets.maximum[is_lost] / 2
    return levels


def clean(text: object, max_length: int = MAX_TEXT) -> str:
    """Text without halves of characters, which no encoding takes, and not too long."""
    string = str(text)
    shortened = string if len(string) <= max_length else f"{string[: max_length - 1]}…"
    return shortened.encode("utf-8", "replace").decode()


def mapping(value: Any) -> Mapping[str, Any]:
    """What was told as a mapping; an empty one where it is something else, as in a file that was forged."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """The same for a list."""
    return value if isinstance(value, list) else []


def scalar(value: Any) -> Scalar:
    """A single value as JSON has it; what is no such value becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Beyond 2**53 a page would show another number.
        return value if abs(value) <= 2**53 else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return clean(value)


def tree(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Nested mappings and lists with nothing but scalars in them."""
    if isinstance(value, Mapping):
        if not depth:
            return "…"
        items = list(value.items())[:MAX_ITEMS]
        return {clean(name, 200): tree(part, depth - 1) for name, part in items}
    if isinstance(value, list | tuple):
        return [tree(part, depth - 1) for part in value[:MAX_ITEMS]] if depth else "…"
    return scalar(value)
