"""Imports a file of JSON lines as a run: an object for each step."""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stepscope.errors import SourceError
from stepscope.importers.base import NO_VALUES, Importer, LeftOut, Note, Row, SourceRun
from stepscope.importers.csv import (
    FIRST_ROWS,
    TableEnd,
    exported_runs,
    identities_of,
    start_of,
)
from stepscope.source_files.cells import json_object, sorted_parts
from stepscope.source_files.exported_rows import is_export
from stepscope.source_files.row_clock import RowClock
from stepscope.source_files.source_folder import damaged
from stepscope.source_files.text_lines import lines_of, modified_ns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from stepscope.importers.base import Record

SUFFIXES = (".jsonl", ".ndjson")


class JsonLines(Importer):
    """Numbers and texts of the objects; names of nested values are joined by dots."""

    title: ClassVar[str] = "JSON lines"

    def recognises(self, place: str) -> bool:
        """Whether the name of the file ends in .jsonl or .ndjson."""
        return Path(place).suffix.lower() in SUFFIXES and Path(place).is_file()

    def runs(self, place: str) -> Iterator[SourceRun]:
        """One run, with the name of the file; those of a file that `stepscope export` has written."""
        path = Path(place)
        with contextlib.closing(_objects(path, TableEnd())) as objects:
            first_rows = [row for row in islice(objects, FIRST_ROWS) if row[1]]
        if not first_rows:
            raise SourceError(f"{path} has no objects. Name a file with a JSON object in each line.")
        number, values = first_rows[0]
        if is_export(values):
            yield from exported_runs(path, partial(_objects, path))
            return
        beginnings = identities_of(path, [repr(row)[:4000] for _, row in first_rows])
        yield SourceRun(
            name=path.stem,
            identity=beginnings[0],
            place=str(path),
            started_ns=start_of(path, number, values),
            records=lambda: _records(path),
            earlier_identities=tuple(beginnings[1:]),
            written_ns=modified_ns(path),
        )


def _records(path: Path) -> Iterator[Record]:
    has_numbers = False
    clock = RowClock(modified_ns(path))
    end = TableEnd()
    left_out: Counter[str] = Counter()
    for number, values in _objects(path, end):
        clock.use_names(values)
        try:
            step, time_ns = clock.step_of(values, number - 1), clock.time_of(values)
            parts = sorted_parts({name: values[name] for name in values if name not in clock.own_names})
        except ValueError as error:
            raise damaged(path, f"line {number}", error) from error
        left_out.update(parts.left_out)
        if parts.numbers:
            has_numbers = True
            yield Row(step, time_ns, parts.numbers)
        for key, text in parts.texts.items():
            yield Note("text", time_ns, step, {"key": key, "value": text})
    if not has_numbers:
        raise SourceError(f"{path} has no numbers. Name a file with an object of numbers in each line.")
    yield LeftOut(left_out, NO_VALUES)
    yield from end.records()


def _objects(path: Path, end: TableEnd) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """The objects with the numbers of their lines; a last line without its end is left out, and noted."""
    for number, line, is_complete in lines_of(path):
        if not line.strip():
            continue
        try:
            values = json_object(line)
        except ValueError as error:
            if not is_complete:
                end.cut_off()
                return
            raise damaged(path, f"line {number}", error) from error
        yield number, values
