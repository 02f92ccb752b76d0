"""Finds the runs of what a person wants to import."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.errors import SourceError
from stepscope.importers.base import DamagedRun, Importer
from stepscope.source_files.read_only_database import damage_of
from stepscope.source_files.source_folder import files_in, links_out_of, without_scheme

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.importers.base import SourceRun

MAX_NAMED = 5
JSON = ".json"
TRAINER_STATE = "trainer_state.json"
"""The file in which the trainer of Hugging Face keeps what it has logged."""
LINES_OF_TRAINER_STATE = (
    "python -c \"import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)['log_history']]\""
)
PARQUET = (".parquet", ".pq")
"""The endings of what `stepscope export` writes and no importer reads."""
DATABASES = (".db", ".sqlite")
"""The endings of the databases of other tools."""


@dataclass(frozen=True)
class Request:
    """What to import, and under which names."""

    place: str
    kind: str | None = None
    """None to recognise it."""
    project: str | None = None
    """None for that of the source."""
    name: str | None = None
    """None for that of the source."""
    again: bool = False
    """Whether a source that has changed since it was imported becomes a new run."""
    skip_damaged: bool = False
    """Whether runs that cannot be read are left out; else they keep all runs of the source out."""


@dataclass(frozen=True)
class Source:
    """What a place has."""

    kind: str
    runs: list[SourceRun | DamagedRun]
    skipped: str
    """What in it was passed over, and why; empty for nothing."""


def source_at(request: Request) -> Source:
    """The runs of the place that a person has named; raises SourceError where it has none."""
    place = request.place
    if not place.strip() or ("://" in place and not place.partition("://")[2].strip("/ ")):
        raise SourceError("No source is named. Name a file, a folder, or the address of an MLflow server.")
    try:
        place = without_scheme(place)
        if "://" not in place and not Path(place).exists():
            raise SourceError(f"There is no file or folder {place}. Check the path.")
        kind, importer = importer_of(place, request.kind)
        runs = [_with_absolute_place(run) for run in importer.runs(place)]
        skipped = _skipped_links(place, [importer])
    except OSError as error:
        raise cannot_read(place, error) from error
    if not runs:
        raise SourceError(f"{place} has no runs. Check the path.")
    if request.name is not None and len(runs) > 1:
        names = ", ".join(run.name for run in runs[:MAX_NAMED])
        raise SourceError(
            f"{place} has {len(runs)} runs ({names}), and --name is for one. Import it by its own path."
        )
    return Source(kind, runs, skipped)


def importer_of(place: str, kind: str | None) -> tuple[str, Importer]:
    """The kind of a source and its importer; raises SourceError where that is not certain."""
    kinds = plugins.names("importers")
    if kind is not None:
        return kind, _importer(kind)
    importers = {name: _importer(name) for name in kinds}
    fitting = [name for name, importer in importers.items() if importer.recognises(place)]
    if len(fitting) == 1:
        return fitting[0], importers[fitting[0]]
    if fitting:
        raise SourceError(f"{place} may be of several kinds: {', '.join(fitting)}. Choose one with --kind.")
    if skipped := _skipped_links(place, importers.values()):
        raise SourceError(f"{place} has no runs of its own. {skipped}")
    raise _not_recognised(place)


def _not_recognised(place: str) -> SourceError:
    """Why no importer reads a place."""
    for file in _databases(Path(place)):
        if (damage := damage_of(file)) is not None:
            return damage
    ending = Path(place).suffix.lower()
    if ending == JSON:
        return SourceError(
            f"{place} is a JSON document, expected JSON lines: an object with the numbers of a step in each "
            f"line. {_advice_for_json(place)}"
        )
    if ending in PARQUET:
        return SourceError(
            f"{place} cannot be imported: of the formats of `stepscope export`, CSV and JSON lines can. "
            "Export the run again with --format csv or --format jsonl."
        )
    kinds = ", ".join(plugins.names("importers"))
    return SourceError(
        f"{place} is not recognised as a source of runs. Check the path, or name its kind with --kind: "
        f"{kinds}."
    )


def _advice_for_json(place: str) -> str:
    """How the numbers of a JSON document can be imported."""
    if Path(place).name == TRAINER_STATE:
        return (
            f"Write its log_history as lines with: {LINES_OF_TRAINER_STATE} < {shlex.quote(place)} > "
            "trainer_state.jsonl"
        )
    return (
        "Name a file that has such lines with --kind jsonl, and export a run of stepscope with --format csv "
        "or --format jsonl."
    )


def _databases(path: Path) -> list[Path]:
    """The file itself, or the databases of a folder."""
    return [path] if path.is_file() else list(files_in(path, lambda name: name.endswith(DATABASES)))


def cannot_read(place: str, error: OSError) -> SourceError:
    """The error for a file or folder that the system does not let us read."""
    return SourceError(
        f"{error.filename or place} cannot be read: {error.strerror}. Nothing was imported. Check the path "
        "and who may read it."
    )


def _skipped_links(place: str, importers: Iterable[Importer]) -> str:
    """Which links of a folder were not followed: to folders, and to files that could be imported."""
    if "://" in place or not Path(place).is_dir():
        return ""
    links = [
        link
        for link in links_out_of(Path(place))
        if link.is_dir() or any(importer.recognises(str(link)) for importer in importers)
    ]
    if not links:
        return ""
    examples = ", ".join(f"{link} -> {link.readlink()}" for link in links[:MAX_NAMED])
    more = "" if len(links) <= MAX_NAMED else f" and {len(links) - MAX_NAMED} more"
    is_single = len(links) == 1
    count = "1 symbolic link leads" if is_single else f"{len(links):,} symbolic links lead"
    return (
        f"{count} out of the folder and {'was' if is_single else 'were'} not followed: {examples}{more}. "
        "Import what is there by its own path."
    )


def _importer(kind: str) -> Importer:
    return plugins.load("importers", kind, Importer)()  # type: ignore[type-abstract]  # only its members


def _with_absolute_place(run: SourceRun | DamagedRun) -> SourceRun | DamagedRun:
    return run if "://" in run.place else replace(run, place=str(Path(run.place).absolute()))
