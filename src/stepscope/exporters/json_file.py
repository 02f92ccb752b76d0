"""Writes rows as one JSON array of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from stepscope.exporters.base import Exporter, Rows
from stepscope.exporters.jsonl import objects

if TYPE_CHECKING:
    from collections.abc import Iterator


class JsonFile(Exporter):
    """Writes the objects of the JSON lines format as elements of one array."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._target.write(b"[")
        self._separator = "\n"

    def publish(self, rows: Rows) -> None:
        """Writes an element for each row."""
        self._target.write("".join(self._elements(rows)).encode())

    def close(self) -> None:
        """Ends the array."""
        self._target.write(b"\n]\n")

    def _elements(self, rows: Rows) -> Iterator[str]:
        for element in objects(rows):
            yield self._separator + element
            self._separator = ",\n"
