"""The agent's loop: read journals, store, sync, clean up, and end when no run is left."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from typing import TYPE_CHECKING

from stepscope.agent.alerting import Alerting
from stepscope.agent.cpu_share import CpuShare
from stepscope.agent.exporter_reports import ExporterReports
from stepscope.agent.ingest.feeds import Exporters, Feeds
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.live_diagnosis import LiveDiagnosis
from stepscope.agent.machine_monitor import MachineMonitor
from stepscope.agent.process.report import explain_error, own_report, write_report
from stepscope.agent.process.wake import open_wake
from stepscope.agent.run_settings import RunSettingsRegistry
from stepscope.agent.sampling import SamplerPool
from stepscope.agent.target_watch import TargetWatch
from stepscope.agent.verdict_line import VerdictLine
from stepscope.errors import StoreError, StoreUnavailable
from stepscope.store import retention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from stepscope.agent.ingest.feeds import Listener
    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.config.sections import Settings
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

RETENTION_EVERY_S = 3600.0

MAX_SHARE = 0.02
"""Target for the share of one core that reading the journals takes while no reader waits."""

CLEAN_UP_EVERY_S = 5.0
"""How often the agent looks for private settings of ended runs whose notices are all delivered."""

MAX_DELIVERY_WAIT_S = 600.0
"""How long an agent stays after the last run to deliver notices; the next agent delivers the rest."""
MAX_EXPORT_WAIT_S = 600.0
"""How long it stays for exporters that are behind; afterwards `stepscope export` passes on the rest."""


class Agent:
    """Serves one store folder until its last run has ended."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        settings: Settings,
        now: Callable[[], float] = time.monotonic,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        self._folder, self._store, self._now = folder, store, now
        self._is_in_place = is_in_place
        self._trouble = ""
        self._has_failed = False
        """Whether the last round could not store anything."""
        # Only the agent section of these settings is used: each run has its own settings.
        self._agent_settings = settings.agent
        self._run_settings = RunSettingsRegistry(folder, store)
        settings_of = self._run_settings.get
        self._alerting = Alerting(folder, store, settings_of)
        self._verdict_line = VerdictLine(folder, store)
        self._diagnosis = LiveDiagnosis(
            store, lambda run_id: settings_of(run_id).detectors, now, report=self._on_diagnosis
        )
        self._targets = TargetWatch(store, settings_of, self._alerting.on_rows, now)
        listeners = _Listeners(self._run_settings, self._alerting, self._diagnosis, self._targets)
        self._feeds = Feeds(Exporters(settings_of, folder).for_run, now, listeners)
        self._exporter_reports = ExporterReports(store, self._feeds, now)
        self._ingest = Ingest(folder, store, now=now, feeds=self._feeds, is_in_place=is_in_place)
        self._machine = MachineMonitor(store, SamplerPool(folder=folder), self._feeds, now)
        self._ticked_at = self._busy_at = self._last_live_at = now()
        self._synced_at = self._retention_at = self._cleaned_at = float("-inf")
        self._wake = open_wake(folder)
        self._has_waiting_reader = False
        """Whether a reader of the store asked for this round."""
        self._ingest_cost = CpuShare(MAX_SHARE, self._agent_settings.sync_interval_s, now)

    def _on_diagnosis(self, process: Process, diagnosis: Diagnosis, *, has_ended: bool) -> None:
        """Takes each diagnosis of a run, with its process of rank 0."""
        self._alerting.on_findings(process.run_id)
        self._verdict_line.report(process, diagnosis, has_ended=has_ended)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Ticks until nothing was recorded for a while, `should_stop` is true, or the store is gone."""
        while True:
            if self.tick():
                continue
            if self._is_store_replaced():
                log.warning("The store in %s was deleted, moved or replaced: this agent ends.", self._folder)
                return
            if self.idle or should_stop():
                return
            self._wait()

    def _is_store_replaced(self) -> bool:
        try:
            if self._is_in_place():
                return False
        except OSError:  # unknown for now; ingesting reports what is wrong
            return False
        return True

    def tick(self) -> bool:
        """Runs one round; returns True when the next should follow at once."""
        now = self._ticked_at = self._now()
        try:
            # Before the journals: a reader that waits for these then finds the machine's figures, too.
            self._machine.flush(has_waiting_reader=self._has_waiting_reader)
            with self._ingest_cost.measure():
                is_behind = self._ingest.tick()
            self._machine.update_processes(self._ingest.processes_here())
            self._alerting.tick()
            if not is_behind:  # whoever has ended waits for the journals, not for a diagnosis
                self._diagnosis.tick()
                self._targets.tick()
            self._exporter_reports.tick()
            self._clean_up(now)
        except (OSError, StoreError) as error:
            # A full or vanished disk: journals keep the records, and the next round tries again.
            log.warning("Cannot ingest for now: %s", error)
            # A file that is locked for a moment is nobody's trouble; one that still is in the next round is.
            is_lasting = self._has_failed or not isinstance(error, StoreUnavailable)
            if is_lasting and not self._is_store_replaced():
                self._report(explain_error(error))
            self._has_failed = True
            self._busy_at = now
            return False
        self._has_failed = False
        self._report(self._ingest.blocked_reason)
        if self._ingest.live:
            self._busy_at = self._last_live_at = now
        elif (self._alerting.is_waiting and now - self._last_live_at < MAX_DELIVERY_WAIT_S) or (
            self._feeds.is_exporting and now - self._last_live_at < MAX_EXPORT_WAIT_S
        ):
            self._busy_at = now
        if now - self._synced_at >= self._agent_settings.sync_interval_s:
            self._ingest.sync()
            self._synced_at = now
        return is_behind

    def _report(self, trouble: str) -> None:
        """Reports to recorders why nothing is stored, when that changes."""
        if trouble != self._trouble:
            self._trouble = trouble
            write_report(self._folder, own_report(trouble))

    def _clean_up(self, now: float) -> None:
        if now - self._cleaned_at >= CLEAN_UP_EVERY_S:
            self._cleaned_at = now
            self._run_settings.delete_unneeded()
        if now - self._retention_at >= RETENTION_EVERY_S:
            self._retention_at = now
            retention.apply(self._store)

    @property
    def idle(self) -> bool:
        """Whether no journal has been left to follow for `agent.linger_s`.

        Measured at the last round, not now: an agent that was stopped for a while must run a round first.
        """
        return self._ticked_at - self._busy_at > self._agent_settings.linger_s

    def close(self) -> None:
        """Stops sampling, stores what is pending and closes all files."""
        try:
            self._machine.close()
        except (OSError, StoreError) as error:
            log.warning("The last machine readings are lost: %s", error)
        try:
            self._alerting.close()
        except (OSError, StoreError) as error:
            log.warning("The delivery status of the last notices is not known: %s", error)
        with contextlib.suppress(OSError, StoreError):
            self._run_settings.delete_unneeded()
        self._ingest.close()
        self._feeds.close()
        try:
            self._exporter_reports.tick(is_last=True)
        except (OSError, StoreError) as error:
            log.warning("How the exporters ended is not stored: %s", error)
        if self._wake is not None:
            self._wake.close()

    @property
    def _pause_s(self) -> float:
        """Seconds until the next round: more when rounds are expensive, as with many runs, up to a sync."""
        return max(self._agent_settings.interval_s, self._ingest_cost.pause_s)

    def _wait(self) -> None:
        if self._wake is None or not self._wake.is_own():
            self._has_waiting_reader = True  # no pipe: readers cannot ask
            time.sleep(self._agent_settings.interval_s)
            return
        ready, _, _ = select.select([self._wake.number], [], [], self._pause_s)
        self._has_waiting_reader = bool(ready)
        if ready:
            os.read(self._wake.number, 4096)


class _Listeners:
    """Calls several listeners in turn, after the settings of the run are known."""

    def __init__(self, run_settings: RunSettingsRegistry, *listeners: Listener) -> None:
        self._run_settings, self._listeners = run_settings, listeners

    def on_rows(self, table: Table) -> None:
        """Passes on rows of a run."""
        for listener in self._listeners:
            listener.on_rows(table)

    def on_process(self, process: Process) -> None:
        """Passes on the new status of a process."""
        self._run_settings.on_process(process)
        for listener in self._listeners:
            listener.on_process(process)

    def on_event(self, run_id: str, event: Event) -> None:
        """Passes on an event of a run."""
        for listener in self._listeners:
            listener.on_event(run_id, event)

    def on_round_end(self) -> None:
        """Passes on that the round is complete."""
        for listener in self._listeners:
            listener.on_round_end()

    def uses_any(self, keys: Collection[str]) -> bool:
        """Whether any listener uses machine metrics of these keys."""
        return any(listener.uses_any(keys) for listener in self._listeners)
