"""Imports a CSV file as a run: a row for each step, or a row for each value."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from stepscope.errors import SourceError
from stepscope.importers.base import End, Importer, LeftOut, Remark, Row, SourceRun
from stepscope.source_files import exported_rows
from stepscope.source_files.cells import number_in
from stepscope.source_files.last_column import LastColumn
from stepscope.source_files.row_clock import EPOCHS, RowClock
from stepscope.source_files.source_folder import damaged
from stepscope.source_files.text_lines import lines_of, modified_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from stepscope.importers.base import Record

    ExportedRows = Callable[["TableEnd"], Iterator[tuple[int, Mapping[str, Any]]]]
    """Reads the rows with the numbers of their lines, and notes how the file ends."""

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
MAX_COLUMNS = 10_000
MAX_SOURCES = 1_000
"""The most ranks and devices of an export; each needs a pass over the file."""
FIRST_ROWS = 10
"""The rows by which a file is recognised: another training that writes the same file has others."""
KEY_COLUMNS = ("key", "metric", "name", "tag")
VALUE_COLUMN = "value"
COMMENT = "#"
NOT_NUMBERS = "cells that are not numbers"
UNKNOWN_END = "imported; the file does not say how the run ended"
CUT_OFF = "the file ends within a line"
BAD_QUOTES = (
    f"a quoted cell that is not closed, has text after its end, or has more than {csv.field_size_limit():,} "
    "characters"
)
_Item = TypeVar("_Item")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")


@dataclass
class TableEnd:
    """How a file of rows ends, which is known when all of it was read."""

    is_cut_off: bool = False
    """Whether its last line is evidently cut off: the writer was killed, or goes on. It is left out."""
    open_cell: str | None = None
    """The last cell of a line that is kept, where no line break is after it."""

    def cut_off(self) -> None:
        """Notes that the last line is evidently cut off."""
        self.is_cut_off, self.open_cell = True, None

    def records(self) -> Iterator[Record]:
        """How the run of the file ended, which says nothing of that."""
        if self.open_cell is not None:
            yield Remark(
                f"the file does not end with a line break, so its last value, {self.open_cell[:60]!r}, may "
                "be incomplete"
            )
        if self.is_cut_off:
            yield Remark("the last line is cut off and was left out")
            yield End("crashed", CUT_OFF)
        else:
            yield End("finished", UNKNOWN_END)


class Csv(Importer):
    """Numbers of a table whose first line has the names of its columns; texts are left out."""

    title: ClassVar[str] = "CSV"

    def recognises(self, place: str) -> bool:
        """Whether the name of the file ends in .csv or .tsv."""
        return Path(place).suffix.lower() in SUFFIXES and Path(place).is_file()

    def runs(self, place: str) -> Iterator[SourceRun]:
        """One run, with the name of the file; those of a file that `stepscope export` has written."""
        path = Path(place)
        first_rows = _Table(path, TableEnd()).first_rows()
        if not first_rows:
            raise SourceError(
                f"{path} has no rows. Name a CSV file with a line of names and rows of numbers."
            )
        number, row = first_rows[0]
        if exported_rows.is_export(row):
            yield from exported_runs(path, partial(_exported_rows, path))
            return
        started_ns = start_of(path, number, row)
        beginnings = identities_of(path, [repr(sorted(row.items())[:100]) for _, row in first_rows])
        yield SourceRun(
            name=path.stem,
            identity=beginnings[0],
            place=str(path),
            started_ns=started_ns,
            records=lambda: _records(path),
            earlier_identities=tuple(beginnings[1:]),
            written_ns=modified_ns(path),
        )


def identities_of(path: Path, first_rows: Sequence[str]) -> list[str]:
    """The identity of a file by its first rows, then those by fewer rows, as while it was shorter."""
    return [f"{path.resolve()} {' '.join(first_rows[:count])}" for count in range(len(first_rows), 0, -1)]


def start_of(path: Path, number: int, row: Mapping[str, Any]) -> int:
    """The time of the first row; raises SourceError where it has one that is not a time."""
    clock = RowClock(modified_ns(path))
    clock.use_names(row)
    try:
        return clock.time_of(row)
    except ValueError as error:
        raise damaged(path, f"line {number}", error) from error


def exported_runs(path: Path, rows: ExportedRows) -> Iterator[SourceRun]:
    """The runs in rows of `stepscope export`: one for each rank and device, with all starts of the run."""
    first_rows: dict[exported_rows.ExportSource, tuple[int, Mapping[str, Any]]] = {}
    columns: dict[str, None] = {}
    for number, row in rows(TableEnd()):
        if not exported_rows.is_export(row):
            raise damaged(path, f"line {number}", "its names are not those of the first line")
        first_rows.setdefault(exported_rows.source_of_row(row), (number, row))
        columns.update(dict.fromkeys(row))
        if len(first_rows) > MAX_SOURCES:
            raise SourceError(
                f"{path} has values of more than {MAX_SOURCES:,} ranks and devices. Nothing was imported."
            )
    keys = exported_rows.keys_by_column(columns)
    names = exported_rows.source_names(list(first_rows))
    for name, (source, (number, row)) in zip(names, first_rows.items(), strict=True):

        def records(source: exported_rows.ExportSource = source) -> Iterator[Record]:
            return _exported_records(path, rows, source, keys)

        yield SourceRun(
            name=name,
            identity=f"{path.resolve()} {source} {list(row.items())[:100]}",
            place=str(path),
            started_ns=start_of(path, number, row),
            records=records,
            host=source.host,
            written_ns=modified_ns(path),
        )


def _exported_records(
    path: Path, rows: ExportedRows, source: exported_rows.ExportSource, keys: Mapping[str, str]
) -> Iterator[Record]:
    clock = RowClock(modified_ns(path))
    left_out: Counter[str] = Counter()
    end = TableEnd()
    for number, row in rows(end):
        if exported_rows.source_of_row(row) != source:
            continue
        clock.use_names(row)
        moment = _moment(path, (number, row), 0, clock, end)
        if moment is None:
            break
        values = _numbers(exported_rows.values_of_row(row, keys).items(), left_out)
        if values:
            yield Row(*moment, values)
    yield LeftOut(left_out, NOT_NUMBERS)
    yield from end.records()


def _moment(
    path: Path, line: tuple[int, Mapping[str, Any]], place: int, clock: RowClock, end: TableEnd
) -> tuple[int, int] | None:
    """The step and the time of a line; None where the file ends within them."""
    number, row = line
    try:
        return clock.step_of(row, place), clock.time_of(row)
    except ValueError as error:
        if end.open_cell is None or [*row][-1] not in (clock.step_name, clock.time_name):
            raise damaged(path, f"line {number}", error) from error
        end.cut_off()
        return None


def _exported_rows(path: Path, end: TableEnd) -> Iterator[tuple[int, dict[str, str]]]:
    original = exported_rows.without_apostrophe
    for number, row in _Table(path, end).rows():
        yield number, {original(name): original(cell) for name, cell in row.items()}


def _numbers(cells: Iterable[tuple[str, Any]], left_out: Counter[str]) -> dict[str, float]:
    """The numbers among named cells; counts the others, unless they are empty."""
    numbers = {}
    for name, cell in cells:
        number = number_in(cell)
        if number is not None:
            numbers[name] = number
        elif cell is not None and str(cell).strip():
            left_out[name] += 1
    return numbers


def _records(path: Path) -> Iterator[Record]:
    clock = RowClock(modified_ns(path))
    end = TableEnd()
    table = _Table(path, end)
    pair = None
    left_out: Counter[str] = Counter()
    has_numbers = False
    for place, (number, row) in enumerate(table.rows()):
        if not place:
            clock.use_names(row)
            pair = _key_and_value(row, clock)
        moment = _moment(path, (number, row), place, clock, end)
        if moment is None:
            break
        cells = [(name, cell) for name, cell in row.items() if name not in clock.own_names]
        if pair is not None:
            key, value = pair
            left_out.update(
                name for name, cell in cells if name not in (*pair, clock.epoch_name) and cell.strip()
            )
            cells = [(row[key], row[value])]
        if values := _numbers(cells, left_out):
            has_numbers = True
            yield Row(*moment, values)
    if not has_numbers:
        raise SourceError(
            f"{path} has no column of numbers. Check that its first line has the names of its columns."
        )
    yield LeftOut(left_out, NOT_NUMBERS if pair is None else "cells that are not numbers, or beside a value")
    yield from table.remarks()
    yield from end.records()


def _key_and_value(row: Mapping[str, str], clock: RowClock) -> tuple[str, str] | None:
    """The columns with the name and with the value, where a row is for a value: no other one has a number."""
    key = next((name for name in row if name.lower() in KEY_COLUMNS), None)
    value = next((name for name in row if name.lower() == VALUE_COLUMN), None)
    if key is None or value is None:
        return None
    others = [name for name in row if name not in (key, value) and name not in clock.own_names]
    has_numbers = any(
        number_in(row[name]) is not None and name.lower() not in EPOCHS for name in others
    ) or _is_number(row[key])
    return None if has_numbers else (key, value)


def _is_number(cell: str) -> bool:
    return number_in(cell) is not None


class _Table:
    """One pass over a CSV file."""

    def __init__(self, path: Path, end: TableEnd) -> None:
        self._path, self._end = path, end
        self._last_column = LastColumn()
        self._ends_with_line = True
        self._delimiter = ","
        self._unnamed = 0
        self._decimal_comma = ""
        """A number with a decimal comma, as an example."""

    def first_rows(self) -> list[tuple[int, dict[str, str]]]:
        """The first rows, without one that may grow, unless it is the only one."""
        with contextlib.closing(self.rows()) as rows:
            first_rows = list(islice(rows, 1))
            first_rows += [row for row in islice(rows, FIRST_ROWS - 1) if self._ends_with_line]
        return first_rows

    def remarks(self) -> Iterator[Remark]:
        """What is special about the table."""
        if self._unnamed:
            yield Remark(f"columns without a name were left out: {self._unnamed}")
        if self._decimal_comma:
            number = self._decimal_comma.replace(",", ".")
            yield Remark(f"commas in numbers were read as decimal points: {self._decimal_comma} is {number}")

    def rows(self) -> Generator[tuple[int, dict[str, str]], None, None]:
        """The rows with the numbers of their lines."""
        lines = self._lines()
        skipped, comment, head = _preamble(lines)
        self._delimiter = max(DELIMITERS, key=head.count)
        reader = csv.reader(_followed_by(head, lines), delimiter=self._delimiter, strict=True)
        try:
            names, rows = self._heading(reader, comment)
            for cells in filter(None, map(self._with_points, rows)):
                number = skipped + reader.line_num
                if self._is_cut_off(cells, len(names)):
                    self._end.cut_off()
                    return
                if len(cells) != len(names):
                    what = f"{len(cells)} cells for {len(names)} columns"
                    raise damaged(self._path, f"line {number}", what)
                yield number, {name: cell for name, cell in zip(names, cells, strict=True) if name.strip()}
        except csv.Error as error:
            raise damaged(self._path, f"line {skipped + reader.line_num}", BAD_QUOTES) from error

    def _heading(self, reader: Iterator[list[str]], comment: str) -> tuple[list[str], Iterator[list[str]]]:
        """The names of the columns, and the rows; a comment before a line of numbers has the names."""
        names = next(reader, [])
        if names and all(map(_is_number, self._with_points(names))):
            first, names = names, [name.strip() for name in comment.split(self._delimiter)]
            if not comment or len(names) != len(first):
                raise SourceError(
                    f"{self._path} has only numbers in its first line, where the names of its columns "
                    "belong. Add a line with the names before it."
                )
            reader = _followed_by(first, reader)
        self._check_names(names)
        self._unnamed = sum(not name.strip() for name in names)
        return names, reader

    def _is_cut_off(self, cells: list[str], columns: int) -> bool:
        """Whether a row is the last one of the file and evidently cut off."""
        if self._ends_with_line:
            self._last_column.add(cells[-1])
            return False
        self._end.open_cell = cells[-1]
        return len(cells) != columns or self._last_column.is_cut_off(cells[-1])

    def _lines(self) -> Iterator[str]:
        for _, line, is_complete in lines_of(self._path):
            self._ends_with_line = is_complete
            yield line

    def _with_points(self, cells: list[str]) -> list[str]:
        """The cells with decimal points, also where numbers have commas, as between semicolons."""
        if self._delimiter == ",":
            return cells
        points = []
        for cell in cells:
            has_comma = "," in cell and _DECIMAL_COMMA.fullmatch(cell) is not None
            points.append(cell.replace(",", ".") if has_comma else cell)
            if has_comma and not self._decimal_comma:
                self._decimal_comma = cell.strip()
        return points

    def _check_names(self, names: list[str]) -> None:
        if len(names) > MAX_COLUMNS:
            raise SourceError(
                f"{self._path} has {len(names):,} columns; at most {MAX_COLUMNS:,} can be imported. Use rows "
                "with a column for the name and one for the value."
            )
        name, count = max(Counter(filter(str.strip, names)).items(), key=itemgetter(1), default=("", 0))
        if count > 1:
            raise SourceError(
                f"{self._path} has two columns named {name!r}. Rename one of them in its first line."
            )


def _followed_by(first: _Item, rest: Iterator[_Item]) -> Iterator[_Item]:
    yield first
    yield from rest


def _preamble(lines: Iterator[str]) -> tuple[int, str, str]:
    """How many lines are before the heading, the text of the last one that is a comment, and the heading."""
    comment = ""
    for skipped, line in enumerate(lines):
        text = line.strip()
        if text and not text.startswith(COMMENT):
            return skipped, comment, line
        if text:
            comment = text.lstrip(f"{COMMENT} ")
    return 0, "", ""
