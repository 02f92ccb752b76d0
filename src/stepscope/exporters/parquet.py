"""Writes rows as a Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from stepscope.errors import MissingExtra
from stepscope.exporters.base import Exporter, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Parquet(Exporter):
    """Writes a column for each label and key; a key that was not logged in a row is null, never NaN."""

    def __init__(self, target: BinaryIO) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("parquet", needed_for="A Parquet file") from error
        self._arrow = pyarrow
        self._target = target
        self._writer: Any = None

    def publish(self, rows: Rows) -> None:
        """Writes rows as a row group; empty rows still define the columns."""
        table = self._table(rows)
        if self._writer is None:
            self._writer = self._arrow.parquet.ParquetWriter(self._target, table.schema, compression="zstd")
        if len(rows):
            self._writer.write_table(table)

    def close(self) -> None:
        """Writes the footer, without which the file cannot be read."""
        if self._writer is not None:
            self._writer.close()

    def _table(self, rows: Rows) -> Any:
        arrays = [self._labels(column) for column in rows.labels.values()]
        for place in range(len(rows.keys)):
            values, missing = rows.values[:, place], ~rows.present[:, place]
            arrays.append(self._arrow.array(values, mask=missing, from_pandas=False))
        return self._arrow.table(arrays, names=[*rows.labels, *rows.keys])

    def _labels(self, column: NDArray[Any]) -> Any:
        arrow = self._arrow
        if column.dtype.kind == "M":
            return arrow.array(column.view("int64")).cast(arrow.timestamp("ns", tz="UTC"))
        return arrow.array(column, arrow.string() if column.dtype.kind == "O" else None)
