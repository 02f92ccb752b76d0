"""Imports a CSV file as a run: a row for each step, or a row for each value."""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stepscope.errors import SourceError
from stepscope.importers.base import End, Importer, Row, SourceRun
from stepscope.source_files.cells import number_in
from stepscope.source_files.row_clock import RowClock
from stepscope.source_files.source_folder import damaged
from stepscope.source_files.text_lines import lines_of, modified_ns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from stepscope.importers.base import Record

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
MAX_COLUMNS = 10_000
KEY_COLUMNS = ("key", "metric", "name", "tag")
VALUE_COLUMN = "value"
UNKNOWN_END = "imported; the file does not say how the run ended"


class Csv(Importer):
    """Numbers of a table whose first line has the names of its columns; texts are left out."""

    title: ClassVar[str] = "CSV"

    def recognises(self, place: str) -> bool:
        """Whether the name of the file ends in .csv or .tsv."""
        return Path(place).suffix.lower() in SUFFIXES and Path(place).is_file()

    def runs(self, place: str) -> Iterator[SourceRun]:
        """One run, with the name of the file."""
        path = Path(place)
        with contextlib.closing(_rows(path)) as rows:
            first = next(rows, None)
        if first is None:
            raise SourceError(
                f"{path} has no rows. Name a CSV file with a line of names and rows of numbers."
            )
        number, row = first
        clock = RowClock(modified_ns(path))
        clock.use_names(row)
        try:
            started_ns = clock.time_of(row)
        except ValueError as error:
            raise damaged(path, f"line {number}", error) from error
        yield SourceRun(
            name=path.stem,
            identity=f"{path.resolve()} {sorted(row.items())[:100]}",
            place=str(path),
            started_ns=started_ns,
            records=lambda: _records(path),
        )


def _records(path: Path) -> Iterator[Record]:
    clock = RowClock(modified_ns(path))
    key_name = value_name = None
    has_numbers = False
    for number, row in _rows(path):
        if not has_numbers:
            clock.use_names(row)
            key_name = next((name for name in row if name.lower() in KEY_COLUMNS), None)
            value_name = next((name for name in row if name.lower() == VALUE_COLUMN), None)
        try:
            step, time_ns = clock.step_of(row, number - 2), clock.time_of(row)
        except ValueError as error:
            raise damaged(path, f"line {number}", error) from error
        if key_name is not None and value_name is not None:
            pairs = [(row[key_name], row[value_name])]
        else:
            pairs = [(name, cell) for name, cell in row.items() if name not in clock.own_names]
        values = {name: value for name, cell in pairs if (value := number_in(cell)) is not None}
        if values:
            has_numbers = True
            yield Row(step, time_ns, values)
    if not has_numbers:
        raise SourceError(
            f"{path} has no column of numbers. Check that its first line has the names of its columns."
        )
    yield End("finished", UNKNOWN_END)


def _rows(path: Path) -> Generator[tuple[int, dict[str, str]], None, None]:
    """The rows with the numbers of their lines; a last one that is cut off is left out."""
    names: list[str] = []
    ends = [True]

    def lines() -> Iterator[str]:
        for _, line, is_complete in lines_of(path):
            ends[0] = is_complete
            yield line

    try:
        source = lines()
        head = next(source, "")
        delimiter = max(DELIMITERS, key=head.count)
        names = next(csv.reader([head], delimiter=delimiter, strict=True), [])
        _check_names(path, names)
        reader = csv.reader(source, delimiter=delimiter, strict=True)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(names):
                if not ends[0]:
                    return  # the writer was killed
                what = f"{len(cells)} cells for {len(names)} columns"
                raise damaged(path, f"line {reader.line_num + 1}", what)
            yield reader.line_num + 1, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise damaged(path, "a cell", error) from error


def _check_names(path: Path, names: list[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise SourceError(
            f"{path} has {len(names):,} columns; at most {MAX_COLUMNS:,} can be imported. Use rows with a "
            "column for the name and one for the value."
        )
    doubled = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if doubled is not None:
        raise SourceError(f"{path} has two columns named {doubled!r}. Rename one of them in its first line.")
