"""Hands what is kept on to the exporters that run along, after it is safe in the store."""

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
    """Somebody in the agent who wants to know all that is kept."""

    def take(self, table: Table) -> None:
        """Rows of a run."""

    def follow(self, process: Process) -> None:
        """What has become of a process."""

    def hear(self, run_id: str, event: Event) -> None:
        """What happened in a run."""

    def settle(self) -> None:
        """All that was kept has been told."""

    def wants(self, keys: Collection[str]) -> bool:
        """Whether it makes anything of figures of the machine under these keys."""


class Feeds:
    """The exporters of an agent. One that fails rests for a minute and takes nothing from the others."""

    def __init__(
        self,
        feeds_of: Callable[[str], Mapping[str, Feed]] = lambda _: {},
        now: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
    ) -> None:
        """`feeds_of` gives the exporters of a run by their names; runs may share one."""
        self._feeds_of, self._now, self._listener = feeds_of, now, listener
        self._pending: list[Table] = []
        self._news: list[Process | tuple[str, Event]] = []
        self._by_run: dict[str, Mapping[str, Feed]] = {}
        self._living: dict[str, set[tuple[str, int, int]]] = {}
        self._ended_at: dict[str, float] = {}
        """When the last process of a run ended."""
        self._rests_until: dict[Feed, float] = {}
        self._devices: dict[str, DeviceFacts] = {}

    def note(self, table: Table) -> None:
        """Remembers rows until they are safe."""
        self._pending.append(table)

    def wants(self, keys: Collection[str]) -> bool:
        """Whether anybody makes anything of figures of the machine under these keys."""
        return any(self._by_run.values()) or (self._listener is not None and self._listener.wants(keys))

    def note_process(self, process: Process) -> None:
        """Remembers what has become of a process until that is safe."""
        self._news.append(replace(process))

    def note_event(self, run_id: str, event: Event) -> None:
        """Remembers an event until it is safe."""
        self._news.append((run_id, event))

    def mark(self) -> tuple[int, int]:
        """How much has been noted so far."""
        return len(self._pending), len(self._news)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Drops what was noted since: it was not kept."""
        del self._pending[mark[0] :], self._news[mark[1] :]

    def pass_on(self) -> None:
        """Hands over what was noted: it is safe now."""
        pending, self._pending = self._pending, []
        news, self._news = self._news, []
        if self._listener is not None:
            self._tell(self._listener, pending, news)
        processes = [one for one in news if isinstance(one, Process)]
        for process in processes:
            self._follow(process)
        for table in pending:
            for name, feed in self._feeds_for(table.source.run_id).items():
                self._attempt(name, feed, partial(feed.take, table))
        for process in processes:
            self._finish(process)
        self._close_ended()

    def _finish(self, process: Process) -> None:
        """Tells the exporters of a rank that has ended that nothing more comes of it."""
        if process.ended_ns is not None and process.role == "rank":
            for name, feed in self._by_run.get(process.run_id, {}).items():
                finish = partial(feed.finish, process.run_id, process.segment, process.rank)
                self._attempt(name, feed, finish)

    def _attempt(self, name: str, feed: Feed, work: Callable[[], None]) -> None:
        if self._now() < self._rests_until.get(feed, float("-inf")):
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - an exporter may be written by anybody
            reason = str(error) or repr(error)
            log.warning("The exporter %s failed, and rests for a minute: %s", name, reason)
            self._rests_until[feed] = self._now() + RETRY_S

    def _follow(self, process: Process) -> None:
        """Notes which runs go on; exporters of those that have ended are closed a little later."""
        living = self._living.setdefault(process.run_id, set())
        place = (process.segment, process.rank, process.pid)
        if process.ended_ns is None:
            if place not in living and process.role != "worker":
                # Another process may decide what the settings of the run are.
                self._open(process.run_id)
            living.add(place)
            self._ended_at.pop(process.run_id, None)
        else:
            living.discard(place)
            if not living:
                self._ended_at[process.run_id] = self._now()

    def _feeds_for(self, run_id: str) -> Mapping[str, Feed]:
        if run_id not in self._by_run:
            self._open(run_id)
        return self._by_run[run_id]

    def _open(self, run_id: str) -> None:
        before = self._by_run.get(run_id, {})
        known = self._in_use()
        self._by_run[run_id] = self._feeds_of(run_id)
        for feed in self._by_run[run_id].values():
            if feed not in known:
                for facts in self._devices.values():
                    feed.describe(facts)
        self._close_unused(before)

    def _in_use(self) -> set[Feed]:
        return {feed for feeds in self._by_run.values() for feed in feeds.values()}

    def _close_ended(self) -> None:
        for run_id, ended_at in list(self._ended_at.items()):
            # What was read of the machine until then comes a moment later.
            if self._now() - ended_at >= CLOSE_AFTER_S:
                del self._ended_at[run_id]
                self._living.pop(run_id, None)
                self._close_unused(self._by_run.pop(run_id, {}))

    def _close_unused(self, feeds: Mapping[str, Feed]) -> None:
        in_use = self._in_use()
        for name, feed in feeds.items():
            if feed not in in_use:
                self._rests_until.pop(feed, None)
                _close(name, feed)

    def settle(self) -> None:
        """Has the listener come to its conclusions before journals are let go, and those who wait go on."""
        if self._listener is not None:
            self._listener.settle()

    def _tell(self, listener: Listener, tables: list[Table], news: list[Process | tuple[str, Event]]) -> None:
        # Processes come first: rows and events are of those that are known.
        for one in news:
            if isinstance(one, Process):
                listener.follow(one)
        for table in tables:
            listener.take(table)
        for one in news:
            if not isinstance(one, Process):
                listener.hear(*one)

    def describe(self, facts: DeviceFacts) -> None:
        """Tells all what a device is, before its figures come."""
        self._devices[facts.device] = facts
        for feed in self._in_use():
            feed.describe(facts)

    def forget(self) -> None:
        """Drops what was noted: it was not kept, and will be told again."""
        self._pending, self._news = [], []

    def close(self) -> None:
        """Completes all of them."""
        for feed in self._in_use():
            _close(type(feed).__name__, feed)


def _close(name: str, feed: Feed) -> None:
    try:
        feed.close()
    except OSError as error:
        log.warning("The exporter %s could not be completed: %s", name, error)


class Exporters:
    """The exporters of all runs; those that ask for the same share one while any of them goes on."""

    def __init__(self, settings_of: Callable[[str], RunSettings]) -> None:
        self._settings_of = settings_of
        self._made: weakref.WeakValueDictionary[str, Feed] = weakref.WeakValueDictionary()
        self._complaints: set[str] = set()

    def of(self, run_id: str) -> dict[str, Feed]:
        """What a run's settings ask for; what is wrong with one is said in the log, and it is left out."""
        settings = self._settings_of(run_id)
        found: dict[str, Feed] = {}
        for name, options in settings.exporters.items():
            if not options.get("enabled", True):
                continue
            place = json.dumps([name, options, str(settings.directory)], sort_keys=True)
            feed = self._made.get(place)
            try:
                feed = make_feed(name, options, settings.directory) if feed is None else feed
                found[name] = self._made[place] = feed
            except Exception as error:  # noqa: BLE001 - an exporter may be written by anybody
                self._complain(f"The exporter {name} of {run_id} is left out: {error}")
        return found

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            log.warning("%s", text)


def make_feed(name: str, options: Mapping[str, object], directory: Path | None = None) -> Feed:
    """An exporter that runs along; relative paths begin at the directory, else at the working directory."""
    wanted = {option: value for option, value in options.items() if option != "enabled"}
    told = {} if directory is None else {"_directory": directory}
    return plugins.make("exporters", name, Feed, wanted, told)  # type: ignore[type-abstract]  # only its members
