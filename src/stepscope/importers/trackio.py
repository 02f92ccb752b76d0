"""Imports the SQLite files of trackio, one for each project."""

from __future__ import annotations

import contextlib
import heapq
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stepscope.errors import SourceError
from stepscope.importers.base import End, Importer, Note, Params, Row, SourceRun
from stepscope.source_files.cells import json_object, sorted_parts, step_in, time_in
from stepscope.source_files.read_only_database import ReadOnlyDatabase, is_database
from stepscope.source_files.source_folder import damaged, files_in
from stepscope.source_files.text_lines import modified_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.importers.base import Record

SUFFIX = ".db"
METRICS = ("id", "run_id", "run_name", "timestamp", "step", "metrics")
SYSTEM = ("id", "run_id", "timestamp", "metrics")
CONFIGS = ("run_id", "config", "created_at")
PREFIX = "system."
UNKNOWN_END = "imported; trackio does not record how a run ended"


class Trackio(Importer):
    """Metrics, machine figures and configuration; media, tables and traces are left out."""

    title: ClassVar[str] = "trackio"

    def recognises(self, place: str) -> bool:
        """Whether it is the file of a project, or a folder with one in it."""
        return any(_is_project(path) for path in _candidates(Path(place)))

    def runs(self, place: str) -> Iterator[SourceRun]:
        """The runs of each project, whose name is that of its file."""
        root = Path(place)
        files = [path for path in _candidates(root) if root.is_file() or _is_project(path)]
        if not files:
            raise SourceError(
                f"{root} has no database of trackio. Name the folder in TRACKIO_DIR, or a file in it."
            )
        for path in files:
            yield from _runs_of(path)


def _candidates(root: Path) -> list[Path]:
    return [root] if root.is_file() else list(files_in(root, lambda name: name.endswith(SUFFIX)))


def _is_project(path: Path) -> bool:
    if not is_database(path):
        return False
    with contextlib.suppress(SourceError), contextlib.closing(ReadOnlyDatabase(path)) as database:
        return database.has("metrics", METRICS)
    return False


def _runs_of(path: Path) -> list[SourceRun]:
    runs = []
    with contextlib.closing(ReadOnlyDatabase(path)) as database:
        if not database.has("metrics", METRICS):
            raise SourceError(
                f"{path} is not a database of trackio: it has no table metrics with the columns "
                f"{', '.join(METRICS)}. Check the path, or name the kind with --kind."
            )
        query = "SELECT run_id, max(run_name), min(timestamp) FROM metrics GROUP BY run_id ORDER BY min(id)"
        for run_id, name, first in database.rows(query):
            try:
                started_ns = time_in(first)
            except ValueError as error:
                raise damaged(path, f"the first row of {name!r}", error) from error
            runs.append(_run(path, str(run_id), str(name), started_ns))
    return runs


def _run(path: Path, run_id: str, name: str, started_ns: int) -> SourceRun:
    return SourceRun(
        name=name,
        identity=run_id,
        place=str(path),
        started_ns=started_ns,
        records=lambda: _records(path, run_id),
        project=path.stem,
    )


def _records(path: Path, run_id: str) -> Iterator[Record]:
    file_ns = modified_ns(path)
    step = 0
    with contextlib.closing(ReadOnlyDatabase(path)) as database:
        if database.has("configs", CONFIGS):
            for (config,) in database.rows("SELECT config FROM configs WHERE run_id = ?", (run_id,)):
                values = _object(path, "configs", run_id, config)
                yield Params({key: value for key, value in values.items() if key[:1] != "_"})
        for timestamp, is_system, row_id, own_step, metrics in _rows(database, run_id):
            table = "system_metrics" if is_system else "metrics"
            try:
                time_ns = time_in(timestamp, file_ns)
                step = step if is_system else step_in(own_step)
            except ValueError as error:
                raise damaged(path, f"row {row_id} of {table}", error) from error
            yield from _values(_object(path, table, row_id, metrics), step, time_ns, PREFIX * is_system)
    yield End("finished", UNKNOWN_END)


def _rows(database: ReadOnlyDatabase, run_id: str) -> Iterator[tuple[Any, ...]]:
    """The metrics and machine figures by time; figures have no step, and get that of the newest metrics."""
    query = "SELECT timestamp, 0, id, step, metrics FROM metrics WHERE run_id = ? ORDER BY timestamp, id"
    tables = [database.rows(query, (run_id,))]
    if database.has("system_metrics", SYSTEM):
        query = query.replace("0, id, step", "1, id, NULL").replace("FROM metrics", "FROM system_metrics")
        tables.append(database.rows(query, (run_id,)))
    return heapq.merge(*tables, key=lambda row: (str(row[0]), row[1], row[2]))


def _values(values: dict[str, Any], step: int, time_ns: int, prefix: str) -> Iterator[Record]:
    numbers, texts = sorted_parts(values)
    if numbers:
        yield Row(step, time_ns, {f"{prefix}{key}": value for key, value in numbers.items()})
    for key, text in texts.items():
        yield Note("text", time_ns, step, {"key": key, "value": text})


def _object(path: Path, table: str, row: object, text: Any) -> dict[str, Any]:
    try:
        return json_object(text if isinstance(text, str | bytes) else str(text))
    except ValueError as error:
        raise damaged(path, f"row {row} of {table}", error) from error
