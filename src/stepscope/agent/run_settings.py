"""The settings of each run that an agent serves, whichever run started the agent."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stepscope.config.sections import (
    Alerts,
    Energy,
    Targets,
    recorded_alerts,
    recorded_energy,
    recorded_targets,
)
from stepscope.journal.folder import JournalName, files_of
from stepscope.journal.private_settings import PrivateSettings, list_private, private_file, read_private
from stepscope.schema.run import deciding_process, detector_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

MAX_ORPHAN_AGE_S = 3600.0
"""A private file of a process that never recorded anything is deleted when it is this old."""


MAX_CACHED_RUNS = 1000
"""Runs whose settings are cached; beyond it the cache is cleared."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run that an agent needs."""

    alerts: Alerts = field(default_factory=Alerts)
    exporters: dict[str, Any] = field(default_factory=dict)
    detectors: dict[str, Any] = field(default_factory=dict)
    targets: Targets = field(default_factory=Targets)
    energy: Energy = field(default_factory=Energy)
    directory: Path | None = None
    """The working directory of the run, the base of relative paths; None where it is not known."""


class RunSettingsRegistry:
    """Reads the settings of every run: what its processes recorded, and their private settings files.

    Both are in the store folder, so that an agent that is started later uses the same settings.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._settings: dict[str, RunSettings] = {}
        self._processes: dict[str, set[tuple[str, str, int, int]]] = {}
        self._unread: set[str] = set()
        """Live runs whose private settings could not be read; that is retried."""
        self._warned: set[str] = set()

    def get(self, run_id: str) -> RunSettings:
        """The settings of a run: the same object until they change."""
        settings = self._settings.get(run_id)
        if settings is None:
            settings = self._settings[run_id] = self._read(run_id)
        return settings

    def on_process(self, process: Process) -> None:
        """Takes a process; a new one may change the settings of its run."""
        if process.role == "worker" or not process.started_ns:
            return
        process_key = (process.segment, process.role, process.rank, process.pid)
        processes = self._processes.setdefault(process.run_id, set())
        if process_key not in processes:
            processes.add(process_key)
            self._settings.pop(process.run_id, None)
        if len(self._processes) > MAX_CACHED_RUNS:
            self._processes.clear()
            self._settings.clear()

    def delete_unneeded(self, now: Callable[[], float] = time.time) -> None:
        """Deletes private settings of runs that have ended and have no undelivered notice."""
        for run_id in self._unread:
            self._settings.pop(run_id, None)
        self._unread.clear()
        files = list(list_private(self._folder))
        undelivered_runs = (
            {delivery.notice.run_id for delivery in self._store.alert_book.undelivered()} if files else ()
        )
        for name, path in files:
            try:
                if name.run_id not in undelivered_runs and self._is_unneeded(name, path, now()):
                    path.unlink(missing_ok=True)
                    self._forget(name.run_id)
                    path.parent.rmdir()
            except OSError as error:
                log.debug("Not deleted: %s", error)  # the folder is not empty, or another user's

    def _is_unneeded(self, name: JournalName, path: Path, now_s: float) -> bool:
        if files_of(self._folder, name):
            return False
        processes = [process for process in self._store.processes(name.run_id) if process.role != "worker"]
        if any(process.ended_ns is None for process in processes):
            # Also where the process of the file has ended: its settings apply to the whole run.
            return False
        if any(
            (process.run_id, process.segment, process.rank, process.pid) == name.stem for process in processes
        ):
            return True
        return now_s - path.stat().st_mtime > MAX_ORPHAN_AGE_S

    def _forget(self, run_id: str) -> None:
        self._settings.pop(run_id, None)
        self._processes.pop(run_id, None)

    def _read(self, run_id: str) -> RunSettings:
        processes = self._store.processes(run_id)
        process = deciding_process(processes)
        if process is None:
            return RunSettings()
        private = self._private(process)
        alerts = replace(recorded_alerts(process.facts), channels=private.channels, link=private.link)
        return RunSettings(
            alerts,
            private.exporters,
            detector_options(processes),
            recorded_targets(process.facts),
            replace(recorded_energy(process.facts), prices_file=private.prices_file),
            private.directory,
        )

    def _private(self, process: Process) -> PrivateSettings:
        if not process.facts.get("has_private_settings"):
            return PrivateSettings()
        name = JournalName(process.run_id, process.segment, process.rank, process.pid)
        try:
            return read_private(private_file(self._folder, name))
        except OSError as error:
            # An ended process whose notices are delivered has no file any more.
            if process.ended_ns is None:
                self._unread.add(process.run_id)
                self._warn_once(
                    f"The channels and exporters of {process.name} are left out: its settings cannot be read "
                    f"from {error.filename}: {error.strerror}."
                )
            return PrivateSettings()

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)
