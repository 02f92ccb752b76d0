"""The loop: follow journals, ingest, sync, clean up, and go when there is nothing left to follow."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sqlite3
import time
from typing import TYPE_CHECKING

from stepscope.agent.alerting import Alerting
from stepscope.agent.cpu_share import CpuShare
from stepscope.agent.diagnosing import Diagnosing
from stepscope.agent.ingest.feeds import Exporters, Feeds
from stepscope.agent.ingest.ingest import Ingest
from stepscope.agent.process.report import own_report, trouble_of, write_report
from stepscope.agent.process.wake import open_wake
from stepscope.agent.run_settings import RunSettingsBook
from stepscope.agent.sampling import Sampling
from stepscope.agent.watching import Watching
from stepscope.errors import StoreError
from stepscope.store import retention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from stepscope.agent.ingest.feeds import Listener
    from stepscope.config.sections import Settings
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.store.base import Store

log = logging.getLogger("stepscope.agent")

TIDY_EVERY_S = 3600.0

MAX_SHARE = 0.02
"""The share of one core that reading the journals may take while nobody waits for it, if it can be helped."""

CLEAR_EVERY_S = 5.0
"""What runs left in private is deleted so soon after they have ended and everybody was told."""

DELIVERY_S = 600.0
"""How long an agent stays after the last run for notices that do not get through; the next one goes on."""


class Agent:
    """Attends to one store folder until its last run has ended."""

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
        # Of the settings it was started with, only those of the agent itself count: runs have their own.
        self._own = settings.agent
        self._run_settings = RunSettingsBook(folder, store)
        settings_of = self._run_settings.of
        self._alerting = Alerting(folder, store, settings_of)
        self._diagnosing = Diagnosing(store, lambda run_id: settings_of(run_id).detectors, now)
        listeners = _Listeners(self._run_settings, self._alerting, self._diagnosing)
        self._feeds = Feeds(Exporters(settings_of).of, now, listeners)
        self._ingest = Ingest(folder, store, now=now, feeds=self._feeds, is_in_place=is_in_place)
        self._watching = Watching(store, Sampling(folder=folder), self._feeds, now)
        self._looked_at = self._busy_at = self._live_at = now()
        self._synced_at = self._tidied_at = self._cleared_at = float("-inf")
        self._wake = open_wake(folder)
        self._is_awaited = False
        """Whether somebody who reads the store asked for this round."""
        self._reading = CpuShare(MAX_SHARE, self._own.sync_interval_s, now)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Ticks until nothing was recorded for a while, it is told to stop, or the store is gone."""
        while True:
            if self.tick():
                continue
            if self._is_displaced():
                log.warning("The store in %s was deleted, moved or replaced: this agent ends.", self._folder)
                return
            if self.idle or should_stop():
                return
            self._wait()

    def _is_displaced(self) -> bool:
        try:
            if self._is_in_place():
                return False
        except OSError:  # not to be told now; ingesting says what is wrong
            return False
        return True

    def tick(self) -> bool:
        """One round; True when the next should follow at once."""
        now = self._looked_at = self._now()
        try:
            # Before the journals: who waits for these then finds the figures of the machine, too.
            self._watching.keep(is_awaited=self._is_awaited)
            with self._reading.spent():
                more = self._ingest.tick()
            self._watching.look_after(self._ingest.processes_here())
            self._alerting.tick()
            self._diagnosing.tick()
            self._tidy(now)
        except (OSError, sqlite3.Error, StoreError) as error:
            # A full or vanished disk: journals keep the records, and the next round tries again.
            log.warning("Cannot ingest for now: %s", error)
            if not self._is_displaced():
                self._report(trouble_of(error))
            self._busy_at = now
            return False
        self._report(self._ingest.left_alone)
        if self._ingest.live:
            self._busy_at = self._live_at = now
        elif self._alerting.is_waiting and now - self._live_at < DELIVERY_S:
            self._busy_at = now
        if now - self._synced_at >= self._own.sync_interval_s:
            self._ingest.sync()
            self._synced_at = now
        return more

    def _report(self, trouble: str) -> None:
        """Tells recorders why nothing is taken in, when that changes."""
        if trouble != self._trouble:
            self._trouble = trouble
            write_report(self._folder, own_report(trouble))

    def _tidy(self, now: float) -> None:
        if now - self._cleared_at >= CLEAR_EVERY_S:
            self._cleared_at = now
            self._run_settings.delete_unneeded()
        if now - self._tidied_at >= TIDY_EVERY_S:
            self._tidied_at = now
            retention.apply(self._store)

    @property
    def idle(self) -> bool:
        """Whether nothing has been left to follow for the time an agent lingers.

        By the last look and not by the clock: an agent that was stopped for a while has still to look.
        """
        return self._looked_at - self._busy_at > self._own.linger_s

    def close(self) -> None:
        """Ends the watching and lets go of all files."""
        try:
            self._watching.close()
        except (OSError, sqlite3.Error, StoreError) as error:
            log.warning("The last figures of the machine are lost: %s", error)
        try:
            self._alerting.close()
        except (OSError, sqlite3.Error, StoreError) as error:
            log.warning("What became of the last notices is not known: %s", error)
        with contextlib.suppress(OSError, sqlite3.Error, StoreError):
            self._run_settings.delete_unneeded()
        self._ingest.close()
        self._feeds.close()
        if self._wake is not None:
            self._wake.close()

    @property
    def _pause_s(self) -> float:
        """How long until the next round: longer where rounds are long, as with many runs, up to a sync."""
        return max(self._own.interval_s, self._reading.pause_s)

    def _wait(self) -> None:
        if self._wake is None or not self._wake.is_own():
            self._is_awaited = True  # nobody can ask
            time.sleep(self._own.interval_s)
            return
        ready, _, _ = select.select([self._wake.number], [], [], self._pause_s)
        self._is_awaited = bool(ready)
        if ready:
            os.read(self._wake.number, 4096)


class _Listeners:
    """Tells several listeners what one would be told, once the settings of the run are known."""

    def __init__(self, run_settings: RunSettingsBook, *listeners: Listener) -> None:
        self._run_settings, self._listeners = run_settings, listeners

    def take(self, table: Table) -> None:
        """Rows of a run."""
        for one in self._listeners:
            one.take(table)

    def follow(self, process: Process) -> None:
        """What has become of a process."""
        self._run_settings.follow(process)
        for one in self._listeners:
            one.follow(process)

    def hear(self, run_id: str, event: Event) -> None:
        """What happened in a run."""
        for one in self._listeners:
            one.hear(run_id, event)

    def settle(self) -> None:
        """All that was kept has been told."""
        for one in self._listeners:
            one.settle()

    def wants(self, keys: Collection[str]) -> bool:
        """Whether any of them makes anything of figures of the machine under these keys."""
        return any(one.wants(keys) for one in self._listeners)
