"""Hands what is kept on to the exporters that run along, after it is safe in the store."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from stepscope import plugins
from stepscope.errors import StepscopeError
from stepscope.exporters.base import Feed
from stepscope.schema.run import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from stepscope.config.sections import Settings
    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.sample import DeviceFacts

log = logging.getLogger("stepscope.agent")

RETRY_S = 60.0


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
        feeds: Mapping[str, Feed],
        now: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
    ) -> None:
        self._feeds, self._now, self._listener = feeds, now, listener
        self._pending: list[Table] = []
        self._news: list[Process | tuple[str, Event]] = []
        self._rests_until: dict[str, float] = {}

    def note(self, table: Table) -> None:
        """Remembers rows until they are safe."""
        if self._feeds or self._listener is not None:
            self._pending.append(table)

    def wants(self, keys: Collection[str]) -> bool:
        """Whether anybody makes anything of figures of the machine under these keys."""
        return bool(self._feeds) or (self._listener is not None and self._listener.wants(keys))

    def note_process(self, process: Process) -> None:
        """Remembers what has become of a process until that is safe."""
        if self._feeds or self._listener is not None:
            self._news.append(replace(process))

    def note_event(self, run_id: str, event: Event) -> None:
        """Remembers an event until it is safe."""
        if self._listener is not None:
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
            _tell(self._listener, pending, news)
        ended = [one for one in news if isinstance(one, Process) and _is_ended_rank(one)]
        for name, feed in self._feeds.items():
            if (pending or ended) and self._now() >= self._rests_until.get(name, float("-inf")):
                try:
                    for table in pending:
                        feed.take(table)
                    for process in ended:
                        feed.finish(process.run_id, process.segment, process.rank)
                except Exception as error:  # noqa: BLE001 - an exporter may be written by anybody
                    reason = str(error) or repr(error)
                    log.warning("The exporter %s failed, and rests for a minute: %s", name, reason)
                    self._rests_until[name] = self._now() + RETRY_S

    def settle(self) -> None:
        """Has the listener come to its conclusions before journals are let go, and those who wait go on."""
        if self._listener is not None:
            self._listener.settle()

    def describe(self, facts: DeviceFacts) -> None:
        """Tells all what a device is, before its figures come."""
        for feed in self._feeds.values():
            feed.describe(facts)

    def forget(self) -> None:
        """Drops what was noted: it was not kept, and will be told again."""
        self._pending, self._news = [], []

    def close(self) -> None:
        """Completes all of them."""
        for name, feed in self._feeds.items():
            try:
                feed.close()
            except OSError as error:
                log.warning("The exporter %s could not be completed: %s", name, error)


def _is_ended_rank(process: Process) -> bool:
    return process.ended_ns is not None and process.role == "rank"


def _tell(listener: Listener, tables: list[Table], news: list[Process | tuple[str, Event]]) -> None:
    # Processes come first: rows and events are of those that are known.
    for one in news:
        if isinstance(one, Process):
            listener.follow(one)
    for table in tables:
        listener.take(table)
    for one in news:
        if not isinstance(one, Process):
            listener.hear(*one)


def feeds_of(settings: Settings) -> dict[str, Feed]:
    """The exporters the settings ask for; what is wrong with one is said in the log, and it is left out."""
    found: dict[str, Feed] = {}
    for name, options in settings.exporters.items():
        if not options.get("enabled", True):
            continue
        try:
            wanted = {option: value for option, value in options.items() if option != "enabled"}
            found[name] = plugins.make("exporters", name, Feed, wanted)  # type: ignore[type-abstract]  # only its members
        except (StepscopeError, OSError) as error:
            log.warning("The exporter %s is left out: %s", name, error)
    return found
