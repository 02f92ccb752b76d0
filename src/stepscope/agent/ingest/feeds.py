"""Passes what is stored to live exporters and to listeners in the agent, after it is safe in the store."""

from __future__ import annotations

import json
import logging
import time
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stepscope import plugins
from stepscope.agent.ingest.export_queue import ExportCalls, ExportQueue
from stepscope.agent.ingest.row_order import in_logged_order
from stepscope.exporters.base import Feed, RecordedArray
from stepscope.schema.run import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from stepscope.agent.ingest.export_queue import ExporterStatus
    from stepscope.agent.run_settings import RunSettings
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.sample import DeviceFacts

log = logging.getLogger("stepscope.agent")

CLOSE_TIMEOUT_S = 10.0
"""How long the agent waits at its end for what remote exporters have not yet passed on."""
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
    """The live exporters of an agent. One that fails is paused; the others go on."""

    def __init__(
        self,
        feeds_of: Callable[[str], Mapping[str, Feed]] = lambda _: {},
        now: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
    ) -> None:
        """`feeds_of` returns the exporters of a run by name; runs may share one."""
        self._feeds_of, self._now, self._listener = feeds_of, now, listener
        self._tables: list[Table] = []
        self._arrays: list[RecordedArray] = []
        self._updates: list[Process | tuple[str, Event]] = []
        self._by_run: dict[str, Mapping[str, Feed]] = {}
        self._calls: dict[Feed, ExportCalls | ExportQueue] = {}
        """How each open exporter is called."""
        self._live_processes: dict[str, set[tuple[str, int, int]]] = {}
        self._ended_at: dict[str, float] = {}
        """When the last process of a run ended."""
        self._begun: dict[tuple[str, str, int, int], Process] = {}
        """The newest description of each process that exporters have."""
        self._devices: dict[str, DeviceFacts] = {}

    def add_rows(self, table: Table) -> None:
        """Queues rows until they are in the store."""
        self._tables.append(table)

    def add_array(self, owner: tuple[str, str, int], fields: Mapping[str, Any], raw: bytes) -> None:
        """Queues an array of a run, segment and rank; `fields` has key, step, time, dtype and shape."""
        values = np.frombuffer(raw, fields["dtype"]).reshape(fields["shape"])
        array = RecordedArray(*owner, fields["key"], fields["step"], fields["time"], values)
        self._arrays.append(array)

    def has_consumer(self, keys: Collection[str]) -> bool:
        """Whether an exporter or the listener uses machine metrics of these keys."""
        return any(self._by_run.values()) or (self._listener is not None and self._listener.uses_any(keys))

    def add_process(self, process: Process) -> None:
        """Queues the new status of a process until it is in the store."""
        self._updates.append(replace(process))

    def add_event(self, run_id: str, event: Event) -> None:
        """Queues an event until it is in the store."""
        self._updates.append((run_id, event))

    def position(self) -> tuple[int, int, int]:
        """How much is queued so far."""
        return len(self._tables), len(self._arrays), len(self._updates)

    def truncate(self, position: tuple[int, int, int]) -> None:
        """Drops what was queued after a position: it was not stored."""
        tables, arrays, updates = position
        del self._tables[tables:], self._arrays[arrays:], self._updates[updates:]

    def deliver(self) -> None:
        """Passes on what is queued: it is in the store now."""
        tables, self._tables = self._tables, []
        arrays, self._arrays = self._arrays, []
        updates, self._updates = self._updates, []
        if self._listener is not None:
            self._notify(self._listener, tables, updates)
        processes = [update for update in updates if isinstance(update, Process)]
        for process in processes:
            self._track_run(process)
            self._begin(process)
        for table in in_logged_order(table for table in tables if self._calls_for(table.source.run_id)):
            for calls in self._calls_for(table.source.run_id):
                calls.put(partial(calls.feed.take, table), table.values.size)
        for array in arrays:
            for calls in self._calls_for(array.run_id):
                calls.put(partial(calls.feed.take_array, array), array.values.size)
        self._export_events(update for update in updates if not isinstance(update, Process))
        for process in processes:
            self._finish(process)
        self._close_ended()

    def _export_events(self, events: Iterable[tuple[str, Event]]) -> None:
        for run_id, event in events:
            for calls in self._calls_for(run_id):
                calls.put(partial(calls.feed.take_event, run_id, event))

    def _begin(self, process: Process) -> None:
        """Describes a process to the exporters of its run, when something that they may use has changed."""
        key = (process.run_id, process.segment, process.rank, process.pid)
        before = self._begun.get(key)
        if before is None or _shown(before) != _shown(process):
            self._begun[key] = process
            for calls in self._calls_for(process.run_id):
                calls.put(partial(calls.feed.begin, process))

    def _finish(self, process: Process) -> None:
        """Tells exporters that a rank has ended and sends nothing more."""
        if process.ended_ns is not None and process.role == "rank":
            for calls in self._calls_for(process.run_id):
                calls.put(partial(calls.feed.finish, process.run_id, process.segment, process.rank))

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

    def _calls_for(self, run_id: str) -> list[ExportCalls | ExportQueue]:
        if run_id not in self._by_run:
            self._open(run_id)
        return [self._calls[feed] for feed in self._by_run[run_id].values()]

    def _open(self, run_id: str) -> None:
        before = self._by_run.get(run_id, {})
        self._by_run[run_id] = self._feeds_of(run_id)
        for name, feed in self._by_run[run_id].items():
            if feed not in self._calls:
                calls = ExportQueue(name, feed) if feed.is_remote else ExportCalls(name, feed, self._now)
                self._calls[feed] = calls
                for facts in self._devices.values():
                    calls.put(partial(feed.describe, facts))
            if feed not in before.values():
                for process in self._begun.values():
                    if process.run_id == run_id:
                        self._calls[feed].put(partial(feed.begin, process))
        self._close_unused(before)

    def _close_ended(self) -> None:
        for run_id, ended_at in list(self._ended_at.items()):
            # Machine readings of the last seconds arrive after the end of the run.
            is_over = self._now() - ended_at >= CLOSE_AFTER_S
            if is_over and not any(calls.is_behind for calls in self._calls_for(run_id)):
                del self._ended_at[run_id]
                self._live_processes.pop(run_id, None)
                self._begun = {key: process for key, process in self._begun.items() if key[0] != run_id}
                self._close_unused(self._by_run.pop(run_id, {}))

    def _close_unused(self, feeds: Mapping[str, Feed]) -> None:
        used = {feed for feeds_of_run in self._by_run.values() for feed in feeds_of_run.values()}
        for feed in feeds.values():
            if feed not in used:
                # It may take minutes to close; until then, no other run may get it.
                feed.is_closing = True
                self._calls.pop(feed).close(timeout_s=0.0)

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
        for calls in self._calls.values():
            calls.put(partial(calls.feed.describe, facts))

    def clear(self) -> None:
        """Drops what is queued: it was not stored, and will be read again."""
        self._tables, self._arrays, self._updates = [], [], []

    def statuses(self) -> list[tuple[Process, ExporterStatus]]:
        """How the open exporters of each run are doing, each with a process of the run."""
        newest = {process.run_id: process for process in self._begun.values()}
        return [
            (newest[run_id], self._calls[feed].status())
            for run_id, feeds in self._by_run.items()
            for feed in feeds.values()
            if run_id in newest
        ]

    @property
    def is_exporting(self) -> bool:
        """Whether a remote exporter is still passing on what was stored."""
        return any(calls.is_behind for calls in self._calls.values())

    def close(self) -> None:
        """Closes all exporters, and waits a while for those that are behind."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for calls in self._calls.values():
            calls.begin_close()
        for calls in self._calls.values():
            calls.close(max(0.0, deadline - time.monotonic()))


def _shown(process: Process) -> tuple[object, ...]:
    """What exporters may show of a process."""
    return process.status, process.facts, process.dropped, process.lost


class LeftOut(Feed):
    """In the place of an exporter that cannot be made, so that its run has a status that says why."""

    def __init__(self, reason: str) -> None:
        self._reason, self._dropped = reason, 0

    @property
    def trouble(self) -> str:
        """Why it cannot be made."""
        return self._reason

    @property
    def dropped(self) -> int:
        """All values that it was given."""
        return self._dropped

    def take(self, table: Table) -> None:
        """Drops rows."""
        self._dropped += table.values.size

    def close(self) -> None:
        """Does nothing."""


class Exporters:
    """The exporters of all runs; runs with the same options share one while any of them is live."""

    def __init__(self, settings_of: Callable[[str], RunSettings], store: Path | None = None) -> None:
        """`store` is the store folder; exporters with a parameter `_store` get it."""
        self._settings_of, self._store = settings_of, store
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
                if feed is None or feed.is_closing:
                    feed = make_feed(name, options, settings.directory, self._store)
                feeds[name] = self._feeds[options_key] = feed
            except Exception as error:  # noqa: BLE001 - an exporter may come from another package
                self._warn_once(f"The exporter {name} of {run_id} is left out: {error}")
                feeds[name] = self._feeds[options_key] = LeftOut(f"It is left out: {error}")
        return feeds

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def make_feed(
    name: str, options: Mapping[str, object], directory: Path | None = None, store: Path | None = None
) -> Feed:
    """Creates a live exporter; relative paths start at `directory`, else at the working directory."""
    feed_options = {option: value for option, value in options.items() if option != "enabled"}
    given = {"_directory": directory, "_store": store}
    context = {name: path for name, path in given.items() if path is not None}
    return plugins.make("exporters", name, Feed, feed_options, context)  # type: ignore[type-abstract]  # only its members
