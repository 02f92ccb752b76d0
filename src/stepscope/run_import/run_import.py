"""Imports the runs of a source into a store: all of them or, where one is damaged, none."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import plugins
from stepscope.config.find import settings_for
from stepscope.errors import NotFound, SourceError, StoreError
from stepscope.filesystem import open_regular, share
from stepscope.importers.base import Importer
from stepscope.journal.folder import journals_of, list_journals, opening_of
from stepscope.reading import open_store
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.identity.run_names import without_secrets
from stepscope.recorder.identity.run_reservation import FOLDER, reserve
from stepscope.run_import.run_journal import RunJournal, Summary
from stepscope.schema.identity import Identity
from stepscope.schema.keys import IMPORTED
from stepscope.store.open import open_marks, open_reader
from stepscope.store.place import point_to
from stepscope.store.retention import limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.config.sections import Settings
    from stepscope.importers.base import Record, SourceRun

LOCK = "import.lock"
MAX_NAMED = 5
STAGING = "import"
"""The folder within a store in which journals are written until all of them are complete."""


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


@dataclass(frozen=True)
class ImportedRun:
    """One run of a source, and what became of it."""

    name: str
    project: str
    source: str
    started_ns: int
    summary: Summary | None
    """What was read; None where the run was imported before."""
    run_id: str
    is_known: bool = False
    """Whether the store has had this run of the source before."""


def source_of(place: str, kind: str | None) -> tuple[str, Importer]:
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
    raise SourceError(
        f"{place} is not recognised as a source of runs. Check the path, or name its kind with --kind: "
        f"{', '.join(kinds)}."
    )


@dataclass(frozen=True)
class _Origin:
    """The identity of a run of a source, there and here."""

    kind: str
    digest: str
    identity: Identity


class RunImport:
    """An import into one store folder."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn
        self._settings: Settings = settings_for()
        self._privacy = privacy_of(self._settings.privacy)
        self._reserved: list[Path] = []
        self._complete: list[tuple[str, SourceRun]] = []

    def preview(self, request: Request) -> list[ImportedRun]:
        """Reads the source and writes nothing into the store."""
        kind, runs = _runs_of(request)
        known = self._known_runs() if self._folder.exists() else {}
        return [self._look_at(known, run, self._identity(kind, run, request, None)) for run in runs]

    def run(self, request: Request) -> list[ImportedRun]:
        """Imports all runs of a source that the store does not have yet; raises SourceError for damage."""
        kind, runs = _runs_of(request)
        with self._locked():
            staging = self._folder / STAGING
            shutil.rmtree(staging, ignore_errors=True)  # of an import that was killed
            known = self._known_runs()
            try:
                staging.mkdir()
                share(staging, self._folder)
                imported = [
                    self._read(staging, known, run, self._identity(kind, run, request, self._folder))
                    for run in runs
                ]
                self._check_limits(staging)
                self._move_journals(staging)
            except OSError as error:
                self._give_up()
                raise _cannot_write(self._folder, error) from error
            except BaseException:
                self._give_up()
                raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        self._store_all()
        return imported

    def _look_at(self, known: dict[str, ImportedRun], run: SourceRun, origin: _Origin) -> ImportedRun:
        """Reads a whole run and writes nothing."""
        if origin.digest in known:
            return known[origin.digest]
        summary = Summary(last_ns=run.started_ns)
        for record in _records_of(run):
            summary.count(record, run)
        return _imported(run, origin.identity, summary)

    def _read(
        self, staging: Path, known: dict[str, ImportedRun], run: SourceRun, origin: _Origin
    ) -> ImportedRun:
        """Reads a whole run into a journal, unless the store has it."""
        if origin.digest in known:
            return known[origin.digest]
        identity = reserve(self._folder, origin.identity, resume=False, environment={}).identity
        self._reserved.append(self._folder / FOLDER / identity.run_id)
        facts = {"tool": origin.kind, "source": self._privacy.text(run.place), "digest": origin.digest}
        journal = RunJournal(staging, identity, run, facts, self._privacy)
        for record in _records_of(run):
            journal.add(record)
        journal.close()
        self._complete.append((identity.run_id, run))
        imported = _imported(run, identity, journal.summary)
        # A source may have the same run twice, as in a copy of a folder within itself.
        known[origin.digest] = replace(imported, summary=None, is_known=True)
        return imported

    def _identity(self, kind: str, run: SourceRun, request: Request, folder: Path | None) -> _Origin:
        digest = hashlib.sha256(f"{kind}\0{run.identity}".encode("utf-8", "surrogatepass")).hexdigest()
        identity = Identity(
            name=request.name or run.name,
            project=request.project or run.project or self._settings.project,
            segment=digest[:16],
            rank=0,
            world_size=1,
            host=run.host,
        )
        return _Origin(kind, digest, without_secrets(identity, folder, self._privacy, self._warn))

    def _known_runs(self) -> dict[str, ImportedRun]:
        """The imported runs of the store, by the digest of their source."""
        known: dict[str, ImportedRun] = {}
        for name, path in list_journals(self._folder):  # of an import that no agent has stored yet
            opening = opening_of(path) or {}
            facts = opening.get("facts")
            self._add_known(known, facts, opening.get("run"), opening.get("project"), name.run_id)
        with contextlib.suppress(NotFound):
            store = open_store(self._folder)
            for run in store.runs():
                for segment in run.segments:
                    for process in segment.processes:
                        self._add_known(known, process.facts, run.name, run.project, run.id)
            store.close()
        return known

    def _add_known(
        self, known: dict[str, ImportedRun], facts: Any, name: Any, project: Any, run_id: str
    ) -> None:
        origin = facts.get(IMPORTED) if isinstance(facts, dict) else None
        if isinstance(origin, dict):
            digest = str(origin.get("digest"))
            known[digest] = ImportedRun(
                str(name), str(project), str(origin.get("source")), 0, None, run_id, is_known=True
            )

    def _check_limits(self, staging: Path) -> None:
        """Refuses an import that would let runs be deleted that were recorded with a limit on the store."""
        with contextlib.suppress(NotFound), contextlib.closing(open_reader(self._folder)) as reader:
            limits = [limits_of(run).max_bytes for run in reader.runs()]
            limit = min((limit for limit in limits if limit is not None), default=None)
            needed = reader.bytes_used() + sum(file.stat().st_size for file in staging.rglob("*.*"))
            if limit is not None and needed > limit:
                raise SourceError(
                    f"Nothing was imported: {self._folder} would have up to {needed:,} bytes, and runs in it "
                    f"were recorded with store.retention.max_bytes of {limit:,}, so that they would be "
                    "deleted. Choose another folder with --store."
                )

    def _move_journals(self, staging: Path) -> None:
        """Moves each journal into the store as a whole: an agent sees all of it at once."""
        journals = journals_of(self._folder)
        if not journals.exists():
            journals.mkdir()
            share(journals, self._folder)
        for run_id, _ in self._complete:
            (journals_of(staging) / run_id).rename(journals / run_id)
            self._reserved.remove(self._folder / FOLDER / run_id)

    def _give_up(self) -> None:
        """Frees the names of runs that were not imported."""
        for path in self._reserved:
            path.unlink(missing_ok=True)

    def _store_all(self) -> None:
        """Has the journals stored, and tags the runs."""
        if not self._complete:
            return
        open_store(self._folder).close()
        try:
            with contextlib.closing(open_marks(self._folder)) as marks:
                for run_id, run in self._complete:
                    tags = dict.fromkeys((*marks.tags(run_id), IMPORTED, *run.tags))
                    marks.change(run_id, tags=tuple(tags))
        except StoreError as error:
            self._warn(f"The runs are imported, but not tagged as {IMPORTED}: {error}")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Creates the folder, and keeps other imports out of it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            if self._settings.store.url is not None:
                point_to(self._folder, self._settings.store.url)
            descriptor = open_regular(self._folder / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _cannot_write(self._folder, error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SourceError(
                    f"Another import into {self._folder} is running. Wait until it has ended, then try again."
                ) from error
            yield
        finally:
            os.close(descriptor)


def _importer(kind: str) -> Importer:
    return plugins.load("importers", kind, Importer)()  # type: ignore[type-abstract]  # only its members


def _runs_of(request: Request) -> tuple[str, list[SourceRun]]:
    try:
        if "://" not in request.place and not Path(request.place).exists():
            raise SourceError(f"There is no file or folder {request.place}. Check the path.")
        kind, importer = source_of(request.place, request.kind)
        runs = [_with_absolute_place(run) for run in importer.runs(request.place)]
    except OSError as error:
        raise _cannot_read(request.place, error) from error
    if not runs:
        raise SourceError(f"{request.place} has no runs. Check the path.")
    if request.name is not None and len(runs) > 1:
        names = ", ".join(run.name for run in runs[:MAX_NAMED])
        raise SourceError(
            f"{request.place} has {len(runs)} runs ({names}), and --name is for one. Import it by its own "
            "path."
        )
    return kind, runs


def _imported(run: SourceRun, identity: Identity, summary: Summary) -> ImportedRun:
    return ImportedRun(identity.name, identity.project, run.place, run.started_ns, summary, identity.run_id)


def _records_of(run: SourceRun) -> Iterator[Record]:
    """The records of a run; raises SourceError where its file can no longer be read."""
    try:
        yield from run.records()
    except OSError as error:
        raise _cannot_read(run.place, error) from error


def _with_absolute_place(run: SourceRun) -> SourceRun:
    return run if "://" in run.place else replace(run, place=str(Path(run.place).absolute()))


def _cannot_read(place: str, error: OSError) -> SourceError:
    return SourceError(
        f"{error.filename or place} cannot be read: {error.strerror}. Nothing was imported. Check the path "
        "and who may read it."
    )


def _cannot_write(folder: Path, error: OSError) -> SourceError:
    return SourceError(
        f"Nothing was imported: {error.filename or folder} cannot be written ({error.strerror}). Check who "
        "may write it and whether the disk is full, or choose another folder with --store."
    )
