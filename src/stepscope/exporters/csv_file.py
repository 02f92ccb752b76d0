"""Writes rows as CSV, with protection against formulas in spreadsheets."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from stepscope.exporters.base import Exporter, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

GUARDED = frozenset("=+-@\t\r\n'")
"""Text that starts with one of these characters gets an apostrophe before it. The apostrophe itself is one of
them, so that removing one apostrophe always restores the text."""

_QUOTED = frozenset(',"\r\n')


class CsvFile(Exporter):
    """Writes a heading and a line for each row; a cell without a value is empty."""

    def __init__(self, target: BinaryIO, *, heading: bool = True) -> None:
        self._target = target
        self._heading = heading

    def publish(self, rows: Rows) -> None:
        """Writes a line for each row, and the heading before the first."""
        if self._heading:
            self._write([",".join(cell(name) for name in (*rows.labels, *rows.keys))])
            self._heading = False
        columns = [_labels(column) for column in rows.labels.values()]
        columns += map(_numbers, rows.values.T, rows.present.T)
        self._write(map(",".join, zip(*columns, strict=True)))

    def close(self) -> None:
        """Nothing follows the last line."""

    def _write(self, lines: Iterable[str]) -> None:
        self._target.write("".join(f"{line}\n" for line in lines).encode())


@lru_cache(maxsize=4096)
def cell(text: str) -> str:
    """Formats text as a cell: protected if a spreadsheet would compute it, quoted if CSV requires it."""
    guarded = f"'{text}" if text[:1] in GUARDED else text
    if not _QUOTED.isdisjoint(guarded):
        return '"' + guarded.replace('"', '""') + '"'
    return guarded


def _labels(column: NDArray[Any]) -> Iterable[str]:
    if column.dtype.kind == "M":
        return map(str, np.datetime_as_string(column, unit="us", timezone="UTC"))
    if column.dtype.kind == "f":
        return map(repr, column.tolist())
    if column.dtype.kind == "O":
        return map(cell, column.tolist())
    return ["" if value is None else str(value) for value in column.tolist()]


def _numbers(values: NDArray[np.float64], present: NDArray[np.bool_]) -> Iterable[str]:
    """Returns the shortest texts that read back as the same float64."""
    texts = map(repr, values.tolist())
    if present.all():
        return texts
    return [text if is_present else "" for text, is_present in zip(texts, present.tolist(), strict=True)]
