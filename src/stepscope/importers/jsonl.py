"""Imports a file of JSON lines as a run: an object for each step."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stepscope.errors import SourceError
from stepscope.importers.base import End, Importer, Note, Row, SourceRun
from stepscope.source_files.cells import json_object, sorted_parts
from stepscope.source_files.row_clock import RowClock
from stepscope.source_files.source_folder import damaged
from stepscope.source_files.text_lines import lines_of, modified_ns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from stepscope.importers.base import Record

SUFFIXES = (".jsonl", ".ndjson")
UNKNOWN_END = "imported; the file does not say how the run ended"


class JsonLines(Importer):
    """Numbers and texts of the objects; names of nested values are joined by dots."""

    title: ClassVar[str] = "JSON lines"

    def recognises(self, place: str) -> bool:
        """Whether the name of the file ends in .jsonl or .ndjson."""
        return Path(place).suffix.lower() in SUFFIXES and Path(place).is_file()

    def runs(self, place: str) -> Iterator[SourceRun]:
        """One run, with the name of the file."""
        path = Path(place)
        with contextlib.closing(_objects(path)) as objects:
            first = next(objects, None)
        if first is None:
            raise SourceError(f"{path} has no objects. Name a file with a JSON object in each line.")
        number, values = first
        clock = RowClock(modified_ns(path))
        clock.use_names(values)
        try:
            started_ns = clock.time_of(values)
        except ValueError as error:
            raise damaged(path, f"line {number}", error) from error
        yield SourceRun(
            name=path.stem,
            identity=f"{path.resolve()} {repr(values)[:4000]}",
            place=str(path),
            started_ns=started_ns,
            records=lambda: _records(path),
        )


def _records(path: Path) -> Iterator[Record]:
    has_numbers = False
    clock = RowClock(modified_ns(path))
    for number, values in _objects(path):
        clock.use_names(values)
        try:
            step, time_ns = clock.step_of(values, number - 1), clock.time_of(values)
        except ValueError as error:
            raise damaged(path, f"line {number}", error) from error
        numbers, texts = sorted_parts({name: values[name] for name in values if name not in clock.own_names})
        if numbers:
            has_numbers = True
            yield Row(step, time_ns, numbers)
        for key, text in texts.items():
            yield Note("text", time_ns, step, {"key": key, "value": text})
    if not has_numbers:
        raise SourceError(f"{path} has no numbers. Name a file with an object of numbers in each line.")
    yield End("finished", UNKNOWN_END)


def _objects(path: Path) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """The objects with the numbers of their lines; a last line that is cut off is left out."""
    for number, line, is_complete in lines_of(path):
        if not line.strip():
            continue
        try:
            values = json_object(line)
        except ValueError as error:
            if not is_complete:
                return  # the writer was killed
            raise damaged(path, f"line {number}", error) from error
        yield number, values
