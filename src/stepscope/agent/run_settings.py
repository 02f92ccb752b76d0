"""The settings of each run that an agent serves, whoever started the agent."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stepscope.config.plain import recorded_alerts
from stepscope.config.sections import Alerts
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
"""Runs that are remembered; beyond it all are forgotten, and read again when they are asked for."""


@dataclass(frozen=True)
class RunSettings:
    """What an agent needs to know of the settings of one run."""

    alerts: Alerts = field(default_factory=Alerts)
    exporters: dict[str, Any] = field(default_factory=dict)
    detectors: dict[str, Any] = field(default_factory=dict)
    directory: Path | None = None
    """The working directory of the run, where relative paths begin; None where it is not known."""


class RunSettingsRegistry:
    """Knows the settings of every run: from what its processes recorded, and from what they left in private.

    Both are in the store folder, so that an agent that is started later goes by the same.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._settings: dict[str, RunSettings] = {}
        self._processes: dict[str, set[tuple[str, str, int, int]]] = {}
        self._unread: set[str] = set()
        """Runs that go on and whose private settings could not be read; that is tried again."""
        self._warned: set[str] = set()

    def get(self, run_id: str) -> RunSettings:
        """The settings of a run: the same object until another process decides them."""
        settings = self._settings.get(run_id)
        if settings is None:
            settings = self._settings[run_id] = self._read(run_id)
        return settings

    def on_process(self, process: Process) -> None:
        """Learns of a process, which may be the one that decides."""
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
        """Deletes what runs left in private that have ended and of which nobody is to be told any more."""
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
                log.debug("Not deleted: %s", error)  # the folder holds more, or belongs to somebody else

    def _is_unneeded(self, name: JournalName, path: Path, now_s: float) -> bool:
        if files_of(self._folder, name):
            return False
        processes = [process for process in self._store.processes(name.run_id) if process.role != "worker"]
        if any(process.ended_ns is None for process in processes):
            # Also where the one that left it has ended: its settings are those of the run.
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
        return RunSettings(alerts, private.exporters, detector_options(processes), private.directory)

    def _private(self, process: Process) -> PrivateSettings:
        if not process.facts.get("has_private_settings"):
            return PrivateSettings()
        name = JournalName(process.run_id, process.segment, process.rank, process.pid)
        try:
            return read_private(private_file(self._folder, name))
        except OSError as error:
            # One that has ended and told all it had to tell has none left.
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
