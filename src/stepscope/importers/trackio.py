"""Imports the SQLite files of trackio, one for each project."""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stepscope.errors import SourceError
from stepscope.importers.base import (
    MEDIA,
    NO_VALUES,
    DamagedRun,
    End,
    Importer,
    LeftOut,
    Note,
    Params,
    Row,
    SourceRun,
    run_or_damage,
)
from stepscope.source_files.cells import json_object, sorted_parts, step_in, time_in
from stepscope.source_files.read_only_database import ReadOnlyDatabase, damage_of, is_database
from stepscope.source_files.source_folder import damaged, files_in
from stepscope.source_files.text_lines import modified_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.importers.base import Record
    from stepscope.source_files.cells import Parts

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

    def runs(self, place: str) -> Iterator[SourceRun | DamagedRun]:
        """The runs of each project, whose name is that of its file."""
        root = Path(place)
        files = [path for path in _candidates(root) if root.is_file() or _is_project(path) or damage_of(path)]
        if not files:
            raise SourceError(
                f"{root} has no database of trackio. Name the folder in TRACKIO_DIR, or a file in it."
            )
        for path in files:
            runs = run_or_damage(path.stem, path, partial(_runs_of, path))
            yield from [runs] if isinstance(runs, DamagedRun) else runs


def _candidates(root: Path) -> list[Path]:
    return [root] if root.is_file() else list(files_in(root, lambda name: name.endswith(SUFFIX)))


def _is_project(path: Path) -> bool:
    if not is_database(path):
        return False
    with contextlib.suppress(SourceError), contextlib.closing(ReadOnlyDatabase(path)) as database:
        return database.has("metrics", METRICS)
    return False


def _runs_of(path: Path) -> list[SourceRun | DamagedRun]:
    runs: list[SourceRun | DamagedRun] = []
    with contextlib.closing(ReadOnlyDatabase(path)) as database:
        if not database.has("metrics", METRICS):
            raise SourceError(
                f"{path} is not a database of trackio: it has no table metrics with the columns "
                f"{', '.join(METRICS)}. Check the path, or name the kind with --kind."
            )
        query = (
            "SELECT run_id, max(run_name), min(timestamp), max(timestamp) FROM metrics GROUP BY run_id "
            "ORDER BY min(id)"
        )
        for run_id, name, first, last in database.rows(query):
            read = partial(_run, path, str(run_id), str(name), (first, last))
            runs.append(run_or_damage(str(name), path, read))
    return runs


def _run(path: Path, run_id: str, name: str, times: tuple[Any, Any]) -> SourceRun:
    try:
        started_ns, written_ns = map(time_in, times)
    except ValueError as error:
        raise damaged(path, f"the times of {name!r}", error) from error
    return SourceRun(
        name=name,
        identity=run_id,
        place=str(path),
        started_ns=started_ns,
        records=lambda: _records(path, run_id),
        project=path.stem,
        written_ns=written_ns,
    )


def _records(path: Path, run_id: str) -> Iterator[Record]:
    file_ns = modified_ns(path)
    step = 0
    left_out: dict[str, Counter[str]] = {MEDIA: Counter(), NO_VALUES: Counter()}
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
            parts = _parts(path, table, row_id, metrics)
            left_out[MEDIA].update(parts.media.keys())
            left_out[NO_VALUES].update(parts.left_out)
            yield from _records_of_parts(parts, step, time_ns, PREFIX * is_system)
    for what, counts in left_out.items():
        yield LeftOut(counts, what)
    yield End("finished", UNKNOWN_END)


def _rows(database: ReadOnlyDatabase, run_id: str) -> Iterator[tuple[Any, ...]]:
    """The metrics and machine figures by time; figures have no step, and get that of the newest metrics."""
    query = "SELECT timestamp, 0, id, step, metrics FROM metrics WHERE run_id = ? ORDER BY timestamp, id"
    tables = [database.rows(query, (run_id,))]
    if database.has("system_metrics", SYSTEM):
        query = query.replace("0, id, step", "1, id, NULL").replace("FROM metrics", "FROM system_metrics")
        tables.append(database.rows(query, (run_id,)))
    return heapq.merge(*tables, key=lambda row: (str(row[0]), row[1], row[2]))


def _records_of_parts(parts: Parts, step: int, time_ns: int, prefix: str) -> Iterator[Record]:
    if parts.numbers:
        yield Row(step, time_ns, {f"{prefix}{key}": value for key, value in parts.numbers.items()})
    for key, text in parts.texts.items():
        yield Note("text", time_ns, step, {"key": key, "value": text})


def _parts(path: Path, table: str, row: object, text: Any) -> Parts:
    values = _object(path, table, row, text)
    try:
        return sorted_parts(values, has_media=True)
    except ValueError as error:
        raise damaged(path, f"row {row} of {table}", error) from error


def _object(path: Path, table: str, row: object, text: Any) -> dict[str, Any]:
    try:
        return json_object(text if isinstance(text, str | bytes) else str(text))
    except ValueError as error:
        raise damaged(path, f"row {row} of {table}", error) from error
