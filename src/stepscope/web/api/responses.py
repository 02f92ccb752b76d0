"""Makes responses from what views compute: strict JSON, or columns of numbers as bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

JSON = "application/json"
BINARY = "application/octet-stream"


def json_name(field: str) -> str:
    """The name of a field in JSON; one that is a keyword of Python ends in an underscore there: `from_`."""
    return field.rstrip("_")


def plain(value: Any) -> Any:
    """Converts to dictionaries, lists, text and finite numbers; NaN and infinity become None."""
    if value is None or isinstance(value, str | bool | int | float):
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {json_name(field.name): plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return [plain(part) for part in value]


def to_text(value: Any) -> str:
    """Strict JSON in one line."""
    return json.dumps(plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON response; lone surrogates in names are sent escaped, as JSON allows."""
    return Response(to_text(value), status, media_type=JSON)


def columns_to_bytes(header: Any, columns: Iterable[Sequence[NDArray[np.float64]]]) -> bytes:
    """Length, header and float64 columns, little-endian, each column aligned to eight bytes."""
    text = to_text(header).encode()
    text += b" " * (-(4 + len(text)) % 8)
    parts = [len(text).to_bytes(4, "little"), text]
    parts += [np.ascontiguousarray(column, "<f8").tobytes() for series in columns for column in series]
    return b"".join(parts)


def etag_of(*parts: object) -> str:
    """An ETag of the values a response depends on."""
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}"'


def matches_etag(etag: str, header: str | None) -> bool:
    """Whether an If-None-Match header names this ETag."""
    if header is None:
        return False
    return header.strip() == "*" or etag in {listed.strip() for listed in header.split(",")}
