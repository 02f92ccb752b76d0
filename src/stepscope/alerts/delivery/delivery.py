"""Delivers posted notices: each channel in its own thread, with retries until a notice arrives."""

from __future__ import annotations

import json
import logging
import queue
import random
import threading
import time
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.channels.base import Channel, DeliveryError
from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepscope.config.sections import Alerts
    from stepscope.store.base import Posted, Store

log = logging.getLogger("stepscope.agent")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0
"""Pause between attempts, doubled each time, with jitter: many agents must not retry at the same moment."""

GIVE_UP_AFTER_S = 24 * 3600.0
"""Age at which a notice is given up."""

FORGOTTEN_AFTER_S = 3600.0
"""Age at which a notice is given up if its channel is no longer in the settings."""

SUPERSEDED = "a newer notice of the same rule took its place"

CLOSING_S = 2.0
"""How long an agent that ends waits for notices that are being sent."""

DEFAULT_CHANNELS: Mapping[str, dict[str, object]] = {"console": {}}
"""Channels that are enabled without settings."""

_Result = tuple["Posted", "DeliveryError | None"]


class _Sender:
    """One channel and its thread, which sends one notice at a time."""

    def __init__(self, channel: Channel, results: queue.SimpleQueue[_Result]) -> None:
        self._channel, self._results = channel, results
        self._waiting: queue.SimpleQueue[Posted | None] = queue.SimpleQueue()
        self.sending_id: int | None = None
        """Id of the notice that is being sent."""
        threading.Thread(target=self._run, name="stepscope-channel", daemon=True).start()

    def send(self, posted: Posted) -> None:
        """Queues a notice."""
        self.sending_id = posted.id
        self._waiting.put(posted)

    def stop(self) -> None:
        """Ends the thread after the current notice."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (posted := self._waiting.get()) is not None:
            failure = None
            try:
                self._channel.send(posted.notice)
            except DeliveryError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - libraries may raise anything; the thread must survive
                failure = DeliveryError(type(error).__name__)
            self._results.put((posted, failure))


class Delivery:
    """Sends the notices of an agent. They are in the store, so that the next agent continues."""

    def __init__(
        self,
        store: Store,
        channels_of: Callable[[str], Mapping[str, Channel]],
        now_ns: Callable[[], int] = time.time_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`channels_of` returns the channels of a run by name; runs may share one."""
        self._store, self._channels_of = store, channels_of
        self._now_ns, self._chance = now_ns, chance
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._senders: dict[Channel, _Sender] = {}
        """By channel, for channels that have something to send."""
        self._waiting: list[Posted] = []
        self.has_news = True
        """Whether notices were posted or changed since they were last read."""

    @property
    def is_waiting(self) -> bool:
        """Whether a notice is being sent, or waits for its next attempt."""
        return self.has_news or any(self._channel_of(posted) is not None for posted in self._waiting)

    def tick(self) -> None:
        """Stores the results of earlier attempts, and sends the notices that are due; never blocks."""
        self._store_results()
        if self.has_news:
            self.has_news = False
            self._waiting = self._store.alert_book.undelivered()
        now_ns = self._now_ns()
        self._give_up_old(now_ns)
        self._drop_superseded(now_ns)
        older: set[tuple[str, str, str]] = set()
        for posted in self._waiting:
            # Notices about a rule arrive in the order in which they were posted.
            is_next = older.isdisjoint(_rules_of(posted))
            older |= _rules_of(posted)
            channel = self._channel_of(posted) if is_next and posted.due_ns <= now_ns else None
            if channel is not None:
                sender = self._senders.get(channel)
                if sender is None:
                    sender = self._senders[channel] = _Sender(channel, self._results)
                if sender.sending_id is None:
                    sender.send(posted)
        self._stop_idle()

    def close(self) -> None:
        """Ends all threads. A notice that is still being sent may be sent again later, with the same id."""
        deadline = time.monotonic() + CLOSING_S
        while self._is_sending and time.monotonic() < deadline:
            time.sleep(0.02)
            self._store_results()
        for sender in self._senders.values():
            sender.stop()

    @property
    def _is_sending(self) -> bool:
        return any(sender.sending_id is not None for sender in self._senders.values())

    def _channel_of(self, posted: Posted) -> Channel | None:
        return self._channels_of(posted.notice.run_id).get(posted.channel)

    def _stop_idle(self) -> None:
        """Ends the threads that have nothing to send: notices are rare, and runs start and end."""
        for channel, sender in list(self._senders.items()):
            if sender.sending_id is None:
                sender.stop()
                del self._senders[channel]

    def _store_results(self) -> None:
        while not self._results.empty():
            posted, failure = self._results.get()
            book, now_ns = self._store.alert_book, self._now_ns()
            with self._store.transaction():
                if failure is None:
                    book.delivered(posted.id, now_ns)
                elif failure.is_final:
                    log.warning("A notice on channel %s was given up: %s", posted.channel, failure)
                    book.give_up(posted.id, now_ns, str(failure))
                else:
                    log.info("A notice on channel %s will be retried: %s", posted.channel, failure)
                    book.postpone(posted.id, now_ns + self._pause_ns(posted.attempts), str(failure))
            for sender in self._senders.values():
                if sender.sending_id == posted.id:
                    sender.sending_id = None
            self.has_news = True

    def _pause_ns(self, attempts: int) -> int:
        pause_s = min(FIRST_PAUSE_S * 2**attempts, LONGEST_PAUSE_S)
        return int(pause_s * (0.75 + 0.5 * self._chance()) * 1e9)

    def _drop_superseded(self, now_ns: int) -> None:
        """Gives up notices that an outage delayed and that newer notices about the same rules replace."""
        newer: set[tuple[str, str, str]] = set()
        tried = {place for posted in self._waiting if posted.attempts for place in _rules_of(posted)}
        for posted in reversed(self._waiting):
            if _rules_of(posted) <= newer & tried and not self._is_being_sent(posted):
                with self._store.transaction():
                    self._store.alert_book.give_up(posted.id, now_ns, SUPERSEDED)
                self.has_news = True
            newer |= _rules_of(posted)
        if self.has_news:
            self.has_news = False
            self._waiting = self._store.alert_book.undelivered()

    def _give_up_old(self, now_ns: int) -> None:
        for posted in self._waiting:
            has_channel = self._channel_of(posted) is not None
            limit_s = GIVE_UP_AFTER_S if has_channel else FORGOTTEN_AFTER_S
            if now_ns - posted.notice.at_ns > limit_s * 1e9 and not self._is_being_sent(posted):
                why = "it could not be delivered for a day" if has_channel else "there is no such channel"
                with self._store.transaction():
                    self._store.alert_book.give_up(posted.id, now_ns, why)
                self.has_news = True

    def _is_being_sent(self, posted: Posted) -> bool:
        return any(sender.sending_id == posted.id for sender in self._senders.values())


def _rules_of(posted: Posted) -> set[tuple[str, str, str]]:
    """Returns the rules that a notice is about, with channel and run."""
    return {(posted.channel, posted.notice.run_id, alert.rule) for alert in posted.notice.alerts}


class Channels:
    """The channels of all runs; runs with the same settings of a channel share it."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel | None] = {}

    def of(self, settings: Alerts, directory: Path | None = None) -> dict[str, Channel]:
        """Returns the channels of a run's settings; a channel with invalid settings is logged and skipped."""
        channels: dict[str, Channel] = {}
        for name, options in {**DEFAULT_CHANNELS, **settings.channels}.items():
            if not options.get("enabled", True):
                continue
            place = json.dumps([name, options, str(directory)], sort_keys=True)
            if place not in self._channels:
                self._channels[place] = _make_or_log(name, options, directory)
            channel = self._channels[place]
            if channel is not None:
                channels[name] = channel
        return channels


def _make_or_log(name: str, options: Mapping[str, object], directory: Path | None) -> Channel | None:
    try:
        return make_channel(name, options, directory)
    except StepscopeError as error:
        log.warning("Channel %s is skipped: %s", name, error)
        return None


def make_channel(name: str, options: Mapping[str, object], directory: Path | None = None) -> Channel:
    """Creates a channel from its settings; its kind is its name unless the option `kind` is set.

    Relative paths in its options start at `directory`, by default the working directory.
    """
    kind = str(options.get("kind", name))
    arguments = {option: value for option, value in options.items() if option not in ("enabled", "kind")}
    internal = {} if directory is None else {"_directory": directory}
    return plugins.make("channels", kind, Channel, arguments, internal)  # type: ignore[type-abstract]  # only its members
