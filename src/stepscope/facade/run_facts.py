"""`RunFacts`: what a run is called, where it is, and the name, tags and notes that a script sets later."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from stepscope.facade.not_kept import guard
from stepscope.schema.redact import redact_mapping, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepscope.recorder.monitor import TrainingMonitor

FILES = "files"
"""Folder of a store for what scripts save into `run.dir`."""


class RunFacts:
    """The attributes of a run that scripts read, and some that they set."""

    def __init__(self, monitor: TrainingMonitor, facts: Mapping[str, Any]) -> None:
        self.monitor = monitor
        self._new_name, self._notes = "", None if facts.get("notes") is None else str(facts["notes"])
        self._tags = tuple(_as_tags(facts.get("tags")))
        self.group: str = facts.get("group") or ""
        self.job_type: str = facts.get("job_type") or ""
        self.entity: str = facts.get("entity") or ""
        self.requested_name: str | None = facts.get("requested_name")
        self.disabled = not monitor.settings.recorder.enabled
        self.starting_step = monitor.timer.step
        self.start_time = time.time()
        self.pid = os.getpid()
        self.sweep_id = None
        self._folder: str | None = None
        if self._tags or self._notes:
            self._mark(note=self._notes, **({"tags": list(self._tags)} if self._tags else {}))

    @property
    def id(self) -> str:
        """The id of the run in the store."""
        return self.monitor.run_id

    @property
    def name(self) -> str:
        """The name of the run, which differs from the requested one if another run has that.

        Another name that is set later is shown on the page; commands find the run by its first one.
        """
        return self._new_name or self.monitor.identity.name

    @name.setter
    def name(self, name: Any) -> None:
        self._new_name = str(name)
        self._mark(name=self._new_name)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the run, as the page shows them."""
        return self._tags

    @tags.setter
    def tags(self, tags: Any) -> None:
        self._tags = tuple(_as_tags(tags))
        self._mark(tags=list(self._tags))

    @property
    def notes(self) -> str | None:
        """A note on the run; another one that is set later is added to it."""
        return self._notes

    @notes.setter
    def notes(self, notes: Any) -> None:
        self._notes = str(notes)
        self._mark(note=self._notes)

    def _mark(self, *, note: str | None = None, **changes: Any) -> None:
        guard.attempt("Saving name, tags or notes", self._save_marks, note, changes)

    def _save_marks(self, note: str | None, changes: dict[str, Any]) -> None:
        """Saves what people may also set on the page; only rank 0 does so."""
        if self.disabled or self.monitor.identity.rank:
            return
        from stepscope.store.open import open_marks  # lazy: it loads the database, for few runs

        marks = open_marks(self.monitor.directory)
        if changes:
            marks.change(self.id, **redact_mapping(changes))
        text = redact_text(note or "")
        if text and text not in {known.text for known in marks.notes(self.id)}:
            marks.add_note(self.id, text, step=None, time=None, made=time.time())

    @property
    def project(self) -> str:
        """The project of the run."""
        return self.monitor.identity.project

    @property
    def path(self) -> str:
        """Project and id."""
        return f"{self.project}/{self.id}"

    @property
    def url(self) -> str | None:
        """The address of the run's page, with its token; None while no server runs."""
        return self.monitor.url

    @property
    def resumed(self) -> bool:
        """Whether the run continues an earlier one."""
        return self.starting_step > 0

    @property
    def dir(self) -> str:
        """A folder for the files of the run, inside the store; it is created by the first use."""
        if self._folder is None:
            self._folder = self._create_folder()
        return self._folder

    def _create_folder(self) -> str:
        folder = self.monitor.directory / FILES / self.id
        try:
            if not self.disabled:
                folder.mkdir(parents=True, exist_ok=True)
                return str(folder)
        except OSError as error:
            guard.warn_once(
                "run.dir", f"{folder} cannot be created ({error.strerror}); run.dir is temporary."
            )
        import tempfile  # lazy: rarely needed

        return tempfile.mkdtemp(prefix="stepscope-")

    def get_url(self) -> str | None:
        """The same as `url`."""
        return self.url

    def project_name(self) -> str:
        """The same as `project`."""
        return self.project


def _as_tags(tags: Any) -> list[str]:
    """Tags as texts: of a list, or one alone."""
    several: Iterable[Any] = tags if isinstance(tags, list | tuple | set | frozenset) else [tags]
    return [str(tag) for tag in several if tag]
