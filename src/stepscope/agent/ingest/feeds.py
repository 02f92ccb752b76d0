"""Passes what is stored to live exporters and to listeners in the agent, after it is safe in the store."""

from __future__ import annotations

import json
import logging
import time
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stepscope import plugins
from stepscope.exporters.base import Feed
from stepscope.schema.run import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from stepscope.agent.run_settings import RunSettings
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.sample import DeviceFacts

log = logging.getLogger("stepscope.agent")

RETRY_S = 60.0
CLOSE_AFTER_S = 30.0
"""How long after its last process ended the exporters of a run are closed."""


class Listener(Protocol):
    """A part of the agent that receives everything that is stored."""

    def on_rows(self, table: Table) -> None:
        """Takes rows of a run."""

    def on_process(self, process: Process) -> None:
        """Takes a process with its new status."""

    def on_event(self, run_id: str, event: Event) -> None:
        """Takes an event of a run."""

    def on_round_end(self) -> None:
        """Called when everything of a round has been passed on."""

    def uses_any(self, keys: Collection[str]) -> bool:
        """Whether it uses machine metrics of any of these keys."""


class Feeds:
    """The live exporters of an agent. One that fails is paused for a minute; the others go on."""

    def __init__(
        self,
        feeds_of: Callable[[str], Mapping[str, Feed]] = lambda _: {},
        now: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
    ) -> None:
        """`feeds_of` returns the exporters of a run by name; runs may share one."""
        self._feeds_of, self._now, self._listener = feeds_of, now, listener
        self._tables: list[Table] = []
        self._updates: list[Process | tuple[str, Event]] = []
        self._by_run: dict[str, Mapping[str, Feed]] = {}
        self._live_processes: dict[str, set[tuple[str, int, int]]] = {}
        self._ended_at: dict[str, float] = {}
        """When the last process of a run ended."""
        self._paused_until: dict[Feed, float] = {}
        self._devices: dict[str, DeviceFacts] = {}

    def add_rows(self, table: Table) -> None:
        """Queues rows until they are in the store."""
        self._tables.append(table)

    def has_consumer(self, keys: Collection[str]) -> bool:
        """Whether an exporter or the listener uses machine metrics of these keys."""
        return any(self._by_run.values()) or (self._listener is not None and self._listener.uses_any(keys))

    def add_process(self, process: Process) -> None:
        """Queues the new status of a process until it is in the store."""
        self._updates.append(replace(process))

    def add_event(self, run_id: str, event: Event) -> None:
        """Queues an event until it is in the store."""
        self._updates.append((run_id, event))

    def position(self) -> tuple[int, int]:
        """How much is queued so far."""
        return len(self._tables), len(self._updates)

    def truncate(self, position: tuple[int, int]) -> None:
        """Drops what was queued after a position: it was not stored."""
        del self._tables[position[0] :], self._updates[position[1] :]

    def deliver(self) -> None:
        """Passes on what is queued: it is in the store now."""
        tables, self._tables = self._tables, []
        updates, self._updates = self._updates, []
        if self._listener is not None:
            self._notify(self._listener, tables, updates)
        processes = [update for update in updates if isinstance(update, Process)]
        for process in processes:
            self._track_run(process)
        for table in tables:
            for name, feed in self._feeds_for(table.source.run_id).items():
                self._attempt(name, feed, partial(feed.take, table))
        for process in processes:
            self._finish(process)
        self._close_ended()

    def _finish(self, process: Process) -> None:
        """Tells exporters that a rank has ended and sends nothing more."""
        if process.ended_ns is not None and process.role == "rank":
            for name, feed in self._by_run.get(process.run_id, {}).items():
                finish = partial(feed.finish, process.run_id, process.segment, process.rank)
                self._attempt(name, feed, finish)

    def _attempt(self, name: str, feed: Feed, work: Callable[[], None]) -> None:
        if self._now() < self._paused_until.get(feed, float("-inf")):
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - an exporter may come from another package
            reason = str(error) or repr(error)
            log.warning("The exporter %s failed, and is paused for a minute: %s", name, reason)
            self._paused_until[feed] = self._now() + RETRY_S

    def _track_run(self, process: Process) -> None:
        """Notes which runs are live; exporters of ended runs are closed a little later."""
        live = self._live_processes.setdefault(process.run_id, set())
        process_key = (process.segment, process.rank, process.pid)
        if process.ended_ns is None:
            if process_key not in live and process.role != "worker":
                # A new process may change the settings of its run.
                self._open(process.run_id)
            live.add(process_key)
            self._ended_at.pop(process.run_id, None)
        else:
            live.discard(process_key)
            if not live:
                self._ended_at[process.run_id] = self._now()

    def _feeds_for(self, run_id: str) -> Mapping[str, Feed]:
        if run_id not in self._by_run:
            self._open(run_id)
        return self._by_run[run_id]

    def _open(self, run_id: str) -> None:
        before = self._by_run.get(run_id, {})
        known = self._open_feeds()
        self._by_run[run_id] = self._feeds_of(run_id)
        for feed in self._by_run[run_id].values():
            if feed not in known:
                for facts in self._devices.values():
                    feed.describe(facts)
        self._close_unused(before)

    def _open_feeds(self) -> set[Feed]:
        return {feed for feeds in self._by_run.values() for feed in feeds.values()}

    def _close_ended(self) -> None:
        for run_id, ended_at in list(self._ended_at.items()):
            # Machine readings of the last seconds arrive after the end of the run.
            if self._now() - ended_at >= CLOSE_AFTER_S:
                del self._ended_at[run_id]
                self._live_processes.pop(run_id, None)
                self._close_unused(self._by_run.pop(run_id, {}))

    def _close_unused(self, feeds: Mapping[str, Feed]) -> None:
        open_feeds = self._open_feeds()
        for name, feed in feeds.items():
            if feed not in open_feeds:
                self._paused_until.pop(feed, None)
                _close(name, feed)

    def end_round(self) -> None:
        """Lets the listener finish a round before journals are deleted and waiting readers go on."""
        if self._listener is not None:
            self._listener.on_round_end()

    def _notify(
        self, listener: Listener, tables: list[Table], updates: list[Process | tuple[str, Event]]
    ) -> None:
        # Processes come first: rows and events belong to known processes.
        for update in updates:
            if isinstance(update, Process):
                listener.on_process(update)
        for table in tables:
            listener.on_rows(table)
        for update in updates:
            if not isinstance(update, Process):
                listener.on_event(*update)

    def describe(self, facts: DeviceFacts) -> None:
        """Passes on the facts of a device, before its readings come."""
        self._devices[facts.device] = facts
        for feed in self._open_feeds():
            feed.describe(facts)

    def clear(self) -> None:
        """Drops what is queued: it was not stored, and will be read again."""
        self._tables, self._updates = [], []

    def close(self) -> None:
        """Closes all exporters."""
        for feed in self._open_feeds():
            _close(type(feed).__name__, feed)


def _close(name: str, feed: Feed) -> None:
    try:
        feed.close()
    except OSError as error:
        log.warning("The exporter %s could not be completed: %s", name, error)


class Exporters:
    """The exporters of all runs; runs with the same options share one while any of them is live."""

    def __init__(self, settings_of: Callable[[str], RunSettings]) -> None:
        self._settings_of = settings_of
        self._feeds: weakref.WeakValueDictionary[str, Feed] = weakref.WeakValueDictionary()
        self._warned: set[str] = set()

    def for_run(self, run_id: str) -> dict[str, Feed]:
        """The exporters in the settings of a run; one that cannot be made is logged and left out."""
        settings = self._settings_of(run_id)
        feeds: dict[str, Feed] = {}
        for name, options in settings.exporters.items():
            if not options.get("enabled", True):
                continue
            options_key = json.dumps([name, options, str(settings.directory)], sort_keys=True)
            feed = self._feeds.get(options_key)
            try:
                feed = make_feed(name, options, settings.directory) if feed is None else feed
                feeds[name] = self._feeds[options_key] = feed
            except Exception as error:  # noqa: BLE001 - an exporter may come from another package
                self._warn_once(f"The exporter {name} of {run_id} is left out: {error}")
        return feeds

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def make_feed(name: str, options: Mapping[str, object], directory: Path | None = None) -> Feed:
    """Creates a live exporter; relative paths start at `directory`, else at the working directory."""
    feed_options = {option: value for option, value in options.items() if option != "enabled"}
    context = {} if directory is None else {"_directory": directory}
    return plugins.make("exporters", name, Feed, feed_options, context)  # type: ignore[type-abstract]  # only its members
