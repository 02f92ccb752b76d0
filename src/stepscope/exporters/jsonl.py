"""Writes rows as JSON lines: one object per line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from stepscope.exporters.base import Exporter, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

_NONFINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


class JsonLines(Exporter):
    """Writes an object for each row, without keys that were not logged in that row."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def publish(self, rows: Rows) -> None:
        """Writes a line for each row."""
        self._target.write("".join(f"{line}\n" for line in objects(rows)).encode())

    def close(self) -> None:
        """Nothing follows the last line."""


def objects(rows: Rows) -> Iterator[str]:
    """Yields rows as strictly valid JSON objects: values that are not finite are strings."""
    columns: list[Iterable[str]] = [_members(name, _labels(column)) for name, column in rows.labels.items()]
    for place, key in enumerate(rows.keys):
        members = _members(key, _numbers(rows.values[:, place]))
        present = rows.present[:, place]
        if not present.all():
            members = [
                member if is_present else ""
                for member, is_present in zip(members, present.tolist(), strict=True)
            ]
        columns.append(members)
    for members in zip(*columns, strict=True):
        yield "{" + ", ".join(filter(None, members)) + "}"


def _members(name: str, values: Iterable[str]) -> Iterable[str]:
    prefix = json.dumps(name) + ": "
    return [prefix + value for value in values]


def _labels(column: NDArray[Any]) -> Iterable[str]:
    if column.dtype.kind == "M":
        return map(json.dumps, np.datetime_as_string(column, unit="us", timezone="UTC"))
    if column.dtype.kind == "f":
        return _numbers(column)
    return map(json.dumps, column.tolist())


def _numbers(values: NDArray[np.float64]) -> Iterable[str]:
    texts = map(repr, values.tolist())
    return texts if np.isfinite(values).all() else [_NONFINITE.get(text, text) for text in texts]
