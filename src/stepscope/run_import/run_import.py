"""Imports the runs of a source into a store: all of them or, where one is damaged, none."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stepscope.config.find import settings_for
from stepscope.errors import NotFound, SourceError, StoreError
from stepscope.filesystem import open_regular, share
from stepscope.importers.base import DamagedRun
from stepscope.journal.folder import journals_of
from stepscope.reading import open_store
from stepscope.recorder.anonymity import privacy_of
from stepscope.recorder.identity.run_names import KEY_FILE, without_secrets
from stepscope.recorder.identity.run_reservation import FOLDER, reserve
from stepscope.run_import.free_names import FreeNames
from stepscope.run_import.known_runs import KnownRun, KnownRuns
from stepscope.run_import.run_journal import RunJournal, Summary
from stepscope.run_import.source_runs import cannot_read, source_at
from stepscope.schema.identity import Identity
from stepscope.schema.keys import IMPORTED
from stepscope.schema.redact import Redaction
from stepscope.store.open import open_marks, open_reader
from stepscope.store.place import point_to
from stepscope.store.retention import limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepscope.config.sections import Settings
    from stepscope.importers.base import Marks, Record, SourceRun
    from stepscope.run_import.source_runs import Request, Source

LOCK = "import.lock"
STAGING = "import"
"""The folder within a store in which journals are written until all of them are complete."""


RECENT_S = 15.0
"""A source that was written to so recently may go on."""
MAX_NOTE_CHARACTERS = 10_000

Outcome = Literal["imported", "known", "changed", "empty", "damaged"]
"""`known`: imported before; `changed`: so too, but its source has changed; `empty`: nothing can be kept."""


@dataclass(frozen=True)
class ImportedRun:
    """One run of a source, and what became of it."""

    name: str
    project: str
    source: str
    started_ns: int
    summary: Summary | None
    """What was read; None for a run that is not imported now."""
    run_id: str
    outcome: Outcome = "imported"
    reason: str = ""
    """Why it was not imported."""

    @property
    def is_known(self) -> bool:
        """Whether the store has had this run of the source before."""
        return self.outcome in {"known", "changed"}


@dataclass(frozen=True)
class _Origin:
    """The identity of a run of a source, there and here."""

    kind: str
    digests: tuple[str, ...]
    """Those of its identity and of what it was while it was shorter."""
    identity: Identity


class RunImport:
    """An import into one store folder."""

    def __init__(
        self, folder: Path, warn: Callable[[str], None], now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._folder, self._warn, self._now_ns = folder, warn, now_ns
        self._settings: Settings = settings_for()
        self._privacy = privacy_of(self._settings.privacy)
        self._preview_names = FreeNames(folder)
        self._reserved: list[Path] = []
        self._complete: list[tuple[str, Marks]] = []

    def preview(self, request: Request) -> list[ImportedRun]:
        """Reads the source and writes nothing into the store."""
        source = self._source_at(request)
        known = KnownRuns(self._folder)
        self._preview_names.add(known.run_ids)
        return [self._take(run, source.kind, request, known, None) for run in source.runs]

    def run(self, request: Request) -> list[ImportedRun]:
        """Imports the runs of a source that the store does not have yet; raises SourceError for damage."""
        source = self._source_at(request)
        with self._locked():
            staging = self._folder / STAGING
            shutil.rmtree(staging, ignore_errors=True)  # of an import that was killed
            known = KnownRuns(self._folder)
            try:
                staging.mkdir()
                share(staging, self._folder)
                imported = [self._take(run, source.kind, request, known, staging) for run in source.runs]
                self._check_limits(staging)
                self._move_journals(staging)
            except OSError as error:
                raise _cannot_write(self._folder, error) from error
            finally:
                self._free_names()
                shutil.rmtree(staging, ignore_errors=True)
        self._store_all()
        return imported

    def _source_at(self, request: Request) -> Source:
        source = source_at(request)
        if source.skipped:
            self._warn(source.skipped)
        return source

    def _take(
        self,
        run: SourceRun | DamagedRun,
        kind: str,
        request: Request,
        known: KnownRuns,
        staging: Path | None,
    ) -> ImportedRun:
        """Imports a run, unless the store has it; without a folder for its journal, only reads it."""
        origin = self._origin(kind, run, request, staging)
        try:
            if isinstance(run, DamagedRun):
                self._reserve(origin, staging)
                raise run.error
            earlier = known.of(origin.digests)
            if earlier:
                compared, content = self._compare(run, earlier)
                if compared.outcome == "known" or not request.again:
                    return compared
                # Another segment: runs of one segment would be processes of one run.
                segment = hashlib.sha256(f"{origin.digests[0]} {content}".encode()).hexdigest()[:16]
                origin = replace(origin, identity=replace(origin.identity, segment=segment))
            return self._read(run, origin, known, staging)
        except SourceError as error:
            if not request.skip_damaged:
                raise
            identity = origin.identity
            return ImportedRun(identity.name, identity.project, run.place, 0, None, "", "damaged", str(error))

    def _compare(self, run: SourceRun, earlier: list[KnownRun]) -> tuple[ImportedRun, str]:
        """What became of a run that was imported before, and the digest of what it has now."""
        summary = Summary(last_ns=run.started_ns)
        try:
            for record in _records_of(run):
                summary.count(record, run)
        except SourceError as error:
            return _known(earlier[-1], "changed", f"the source cannot be read now: {error}"), ""
        differences = {known: known.difference(summary) for known in earlier}
        same = next((known for known, difference in differences.items() if not difference), None)
        if same is not None:
            return _known(same, "known", ""), summary.content
        newest = max(earlier, key=lambda known: known.points or 0)
        return _known(newest, "changed", differences[newest]), summary.content

    def _read(self, run: SourceRun, origin: _Origin, known: KnownRuns, staging: Path | None) -> ImportedRun:
        """Reads a whole run, into a journal where there is a folder for it."""
        identity = self._reserve(origin, staging)
        digest = origin.digests[0]
        if staging is None:
            journal, summary = None, Summary(last_ns=run.started_ns)
        else:
            facts = {"tool": origin.kind, "source": self._privacy.text(run.place), "digest": digest}
            journal = RunJournal(staging, identity, run, facts, self._privacy)
            summary = journal.summary
        for record in _records_of(run):
            if journal is None:
                summary.count(record, run)
            else:
                journal.add(record)
        imported = ImportedRun(
            identity.name, identity.project, run.place, run.started_ns, summary, identity.run_id
        )
        if summary.is_empty:
            reason = "; ".join(summary.remarks) if summary.left_out else "nothing is in it"
            return replace(imported, summary=None, run_id="", outcome="empty", reason=reason)
        if summary.end.exit_code is None:  # else the source says that it has ended
            summary.remarks += self._signs_of_writing(run)
        if journal is not None:
            journal.close()
            self._complete.append((identity.run_id, summary.marks))
        # A source may have the same run twice, as in a copy of a folder within itself.
        names = identity.run_id, identity.name, identity.project, run.place
        known.add(digest, KnownRun(*names, summary.points, summary.content))
        return imported

    def _signs_of_writing(self, run: SourceRun) -> list[str]:
        """Says that a source may still be written, where it looks like that."""
        age_s = None if run.written_ns is None else (self._now_ns() - run.written_ns) / 1e9
        if run.is_running:
            sign = "the source says that the training is running"
        elif age_s is not None and 0 <= age_s < RECENT_S:
            sign = f"the source was written to {age_s:.0f} s ago, and the training may still be running"
        else:
            return []
        return [f"{sign}: if more comes, import it with --again"]

    def _reserve(self, origin: _Origin, staging: Path | None) -> Identity:
        """A name for a run that no other run has; also a run that is then left out takes a name."""
        if staging is None:
            return self._preview_names.take(origin.identity)
        identity = reserve(self._folder, origin.identity, resume=False, environment={}).identity
        self._reserved.append(self._folder / FOLDER / identity.run_id)
        return identity

    def _origin(
        self, kind: str, run: SourceRun | DamagedRun, request: Request, staging: Path | None
    ) -> _Origin:
        project, host = "", ""
        identities: tuple[str, ...] = (run.place,)
        if not isinstance(run, DamagedRun):
            project, host = run.project, run.host
            identities = (run.identity, *run.earlier_identities)
        digests = tuple(_digest(f"{kind}\0{identity}") for identity in identities)
        identity = Identity(
            name=request.name or run.name,
            project=request.project or project or self._settings.project,
            segment=digests[0][:16],
            rank=0,
            world_size=1,
            host=host,
        )
        has_key = staging is not None or (self._folder / KEY_FILE).exists()
        folder = self._folder if has_key else None
        return _Origin(kind, digests, without_secrets(identity, folder, self._privacy, self._warn))

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

    def _free_names(self) -> None:
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
                for run_id, own in self._complete:
                    tags = dict.fromkeys((*marks.tags(run_id), IMPORTED, *own.tags))
                    marks.change(run_id, tags=tuple(tags))
                    if own.note:
                        fields = Redaction(MAX_NOTE_CHARACTERS).mapping({"note": own.note})
                        note = str(self._privacy.nested(fields)["note"])
                        marks.add_note(run_id, note, step=None, time=None, made=time.time())
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


def _known(run: KnownRun, outcome: Outcome, reason: str) -> ImportedRun:
    return ImportedRun(run.name, run.project, run.source, 0, None, run.run_id, outcome, reason)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _records_of(run: SourceRun) -> Iterator[Record]:
    """The records of a run; raises SourceError where its file can no longer be read."""
    try:
        yield from run.records()
    except OSError as error:
        raise cannot_read(run.place, error) from error


def _cannot_write(folder: Path, error: OSError) -> SourceError:
    return SourceError(
        f"Nothing was imported: {error.filename or folder} cannot be written ({error.strerror}). Check who "
        "may write it and whether the disk is full, or choose another folder with --store."
    )
