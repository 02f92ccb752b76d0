"""Delivers what is in the outboxes: each channel in a thread of its own, tried again until it arrives."""

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
"""Between attempts, doubled each time, and varied: many agents must not come back at the same moment."""

GIVE_UP_AFTER_S = 24 * 3600.0
"""A notice that old helps nobody."""

FORGOTTEN_AFTER_S = 3600.0
"""One for a channel that is no longer in the settings is given up after this."""

SUPERSEDED = "a newer notice of the same rule took its place"

CLOSING_S = 2.0
"""How long an agent that ends waits for what is just being sent."""

USUAL: Mapping[str, dict[str, object]] = {"console": {}}
"""Channels that nobody needs to ask for."""

_Result = tuple["Posted", "DeliveryError | None"]


class _Sender:
    """One channel and its thread, which sends one notice at a time."""

    def __init__(self, channel: Channel, results: queue.SimpleQueue[_Result]) -> None:
        self._channel, self._results = channel, results
        self._waiting: queue.SimpleQueue[Posted | None] = queue.SimpleQueue()
        self.in_hand: int | None = None
        """The number of the notice that is being sent."""
        threading.Thread(target=self._run, name="stepscope-channel", daemon=True).start()

    def send(self, posted: Posted) -> None:
        """Hands a notice over."""
        self.in_hand = posted.id
        self._waiting.put(posted)

    def stop(self) -> None:
        """Ends the thread once it is done with what it has."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (posted := self._waiting.get()) is not None:
            failure = None
            try:
                self._channel.send(posted.notice)
            except DeliveryError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a library may raise anything, and the thread must live
                failure = DeliveryError(type(error).__name__)
            self._results.put((posted, failure))


class Delivery:
    """The outboxes of an agent. What they hold is in the store, so that the next agent carries on."""

    def __init__(
        self,
        store: Store,
        channels_of: Callable[[str], Mapping[str, Channel]],
        now_ns: Callable[[], int] = time.time_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`channels_of` gives the channels of a run by their names; runs may share one."""
        self._store, self._channels_of = store, channels_of
        self._now_ns, self._chance = now_ns, chance
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._senders: dict[Channel, _Sender] = {}
        """Of the channels that have something to send."""
        self._waiting: list[Posted] = []
        self.has_news = True
        """Whether something was posted that is not yet known here."""

    @property
    def is_waiting(self) -> bool:
        """Whether a notice is being sent, or waits for its next attempt."""
        return self.has_news or any(self._channel_of(one) is not None for one in self._waiting)

    def tick(self) -> None:
        """Notes what has become of notices, and sends those that are due; never waits."""
        self._note_results()
        if self.has_news:
            self.has_news = False
            self._waiting = self._store.alert_book.undelivered()
        now_ns = self._now_ns()
        self._give_up_old(now_ns)
        self._drop_superseded(now_ns)
        older: set[tuple[str, str, str]] = set()
        for one in self._waiting:
            # What is said of a rule arrives in the order in which it was said.
            is_next = older.isdisjoint(_rules_of(one))
            older |= _rules_of(one)
            channel = self._channel_of(one) if is_next and one.due_ns <= now_ns else None
            if channel is not None:
                sender = self._senders.get(channel)
                if sender is None:
                    sender = self._senders[channel] = _Sender(channel, self._results)
                if sender.in_hand is None:
                    sender.send(one)
        self._stop_idle()

    def close(self) -> None:
        """Lets go. What is being sent may still arrive; it is then sent again, with the same id."""
        deadline = time.monotonic() + CLOSING_S
        while any(one.in_hand is not None for one in self._senders.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
            self._note_results()
        for sender in self._senders.values():
            sender.stop()

    def _channel_of(self, posted: Posted) -> Channel | None:
        return self._channels_of(posted.notice.run_id).get(posted.channel)

    def _stop_idle(self) -> None:
        """Ends the threads that have nothing to send: notices are rare, and runs come and go."""
        for channel, sender in list(self._senders.items()):
            if sender.in_hand is None:
                sender.stop()
                del self._senders[channel]

    def _note_results(self) -> None:
        while not self._results.empty():
            posted, failure = self._results.get()
            book, now_ns = self._store.alert_book, self._now_ns()
            with self._store.transaction():
                if failure is None:
                    book.delivered(posted.id, now_ns)
                elif failure.is_final:
                    log.warning("A notice by %s is given up: %s", posted.channel, failure)
                    book.give_up(posted.id, now_ns, str(failure))
                else:
                    log.info("A notice by %s is tried again later: %s", posted.channel, failure)
                    book.postpone(posted.id, now_ns + self._pause_ns(posted.attempts), str(failure))
            for sender in self._senders.values():
                if sender.in_hand == posted.id:
                    sender.in_hand = None
            self.has_news = True

    def _pause_ns(self, attempts: int) -> int:
        pause_s = min(FIRST_PAUSE_S * 2**attempts, LONGEST_PAUSE_S)
        return int(pause_s * (0.75 + 0.5 * self._chance()) * 1e9)

    def _drop_superseded(self, now_ns: int) -> None:
        """Gives up what an outage held up and newer notices say better: how a rule stands now."""
        newer: set[tuple[str, str, str]] = set()
        tried = {place for one in self._waiting if one.attempts for place in _rules_of(one)}
        for one in reversed(self._waiting):
            is_in_hand = any(sender.in_hand == one.id for sender in self._senders.values())
            if _rules_of(one) <= newer & tried and not is_in_hand:
                with self._store.transaction():
                    self._store.alert_book.give_up(one.id, now_ns, SUPERSEDED)
                self.has_news = True
            newer |= _rules_of(one)
        if self.has_news:
            self.has_news = False
            self._waiting = self._store.alert_book.undelivered()

    def _give_up_old(self, now_ns: int) -> None:
        for one in self._waiting:
            has_channel = self._channel_of(one) is not None
            is_in_hand = any(sender.in_hand == one.id for sender in self._senders.values())
            limit_s = GIVE_UP_AFTER_S if has_channel else FORGOTTEN_AFTER_S
            if now_ns - one.notice.at_ns > limit_s * 1e9 and not is_in_hand:
                why = "it could not be delivered for a day" if has_channel else "there is no such channel"
                with self._store.transaction():
                    self._store.alert_book.give_up(one.id, now_ns, why)
                self.has_news = True


def _rules_of(posted: Posted) -> set[tuple[str, str, str]]:
    """The rules that a notice is about, by channel and run."""
    return {(posted.channel, posted.notice.run_id, alert.rule) for alert in posted.notice.alerts}


class Channels:
    """The channels of all runs; those that ask for the same share one."""

    def __init__(self) -> None:
        self._made: dict[str, Channel | None] = {}

    def of(self, settings: Alerts, directory: Path | None = None) -> dict[str, Channel]:
        """What a run's settings ask for; what is wrong with one is said in the log, and it is left out."""
        found: dict[str, Channel] = {}
        for name, options in {**USUAL, **settings.channels}.items():
            if not options.get("enabled", True):
                continue
            place = json.dumps([name, options, str(directory)], sort_keys=True)
            if place not in self._made:
                self._made[place] = _make_or_complain(name, options, directory)
            channel = self._made[place]
            if channel is not None:
                found[name] = channel
        return found


def _make_or_complain(name: str, options: Mapping[str, object], directory: Path | None) -> Channel | None:
    try:
        return make_channel(name, options, directory)
    except StepscopeError as error:
        log.warning("The channel %s is left out: %s", name, error)
        return None


def make_channel(name: str, options: Mapping[str, object], directory: Path | None = None) -> Channel:
    """A channel by its name in the settings, which is its kind unless `kind` says otherwise.

    Relative paths in its options begin at the directory, else at the working directory.
    """
    kind = str(options.get("kind", name))
    wanted = {option: value for option, value in options.items() if option not in ("enabled", "kind")}
    told = {} if directory is None else {"_directory": directory}
    return plugins.make("channels", kind, Channel, wanted, told)  # type: ignore[type-abstract]  # only its members
