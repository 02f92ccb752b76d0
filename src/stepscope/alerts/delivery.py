"""Delivers what is in the outboxes: each channel in a thread of its own, tried again until it arrives."""

from __future__ import annotations

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

    from stepscope.config.sections import Alerts
    from stepscope.store.base import Posted, Store

log = logging.getLogger("stepscope.agent")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0
"""Between attempts, doubled each time, and varied: many agents must not come back at the same moment."""

GIVE_UP_AFTER_S = 24 * 3600.0
"""A notice that old helps nobody."""

FORGOTTEN_AFTER_S = 3600.0
"""One for a channel that is no longer in the settings is given up after this."""

CLOSING_S = 2.0
"""How long an agent that ends waits for what is just being sent."""

USUAL: Mapping[str, dict[str, object]] = {"console": {}}
"""Channels that nobody needs to ask for."""

_Result = tuple["Posted", "DeliveryError | None"]


class _Sender:
    """One channel and its thread, which sends one notice at a time."""

    def __init__(self, name: str, channel: Channel, results: queue.SimpleQueue[_Result]) -> None:
        self._channel, self._results = channel, results
        self._waiting: queue.SimpleQueue[Posted | None] = queue.SimpleQueue()
        self.in_hand: int | None = None
        """The number of the notice that is being sent."""
        threading.Thread(target=self._run, name=f"stepscope-{name}", daemon=True).start()

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
        channels: Mapping[str, Channel],
        now_ns: Callable[[], int] = time.time_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._now_ns, self._chance = store, now_ns, chance
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._senders = {name: _Sender(name, channel, self._results) for name, channel in channels.items()}
        self._waiting: list[Posted] = []
        self.has_news = True
        """Whether something was posted that is not yet known here."""

    @property
    def names(self) -> tuple[str, ...]:
        """The channels there are."""
        return tuple(self._senders)

    @property
    def is_waiting(self) -> bool:
        """Whether a notice is being sent, or waits for its next attempt."""
        return self.has_news or any(one.channel in self._senders for one in self._waiting)

    def tick(self) -> None:
        """Notes what has become of notices, and sends those that are due; never waits."""
        self._note_results()
        if self.has_news:
            self.has_news = False
            self._waiting = self._store.alert_book.undelivered()
        now_ns = self._now_ns()
        self._give_up_old(now_ns)
        for name, sender in self._senders.items():
            due = (one for one in self._waiting if one.channel == name and one.due_ns <= now_ns)
            first = next(due, None)
            if first is not None and sender.in_hand is None:
                sender.send(first)

    def close(self) -> None:
        """Lets go. What is being sent may still arrive; it is then sent again, with the same id."""
        deadline = time.monotonic() + CLOSING_S
        while any(one.in_hand is not None for one in self._senders.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
            self._note_results()
        for sender in self._senders.values():
            sender.stop()

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
            self._senders[posted.channel].in_hand = None
            self.has_news = True

    def _pause_ns(self, attempts: int) -> int:
        pause_s = min(FIRST_PAUSE_S * 2**attempts, LONGEST_PAUSE_S)
        return int(pause_s * (0.75 + 0.5 * self._chance()) * 1e9)

    def _give_up_old(self, now_ns: int) -> None:
        for one in self._waiting:
            sender = self._senders.get(one.channel)
            limit_s = FORGOTTEN_AFTER_S if sender is None else GIVE_UP_AFTER_S
            if now_ns - one.notice.at_ns > limit_s * 1e9 and (sender is None or sender.in_hand != one.id):
                why = "there is no such channel" if sender is None else "it could not be delivered for a day"
                with self._store.transaction():
                    self._store.alert_book.give_up(one.id, now_ns, why)
                self.has_news = True


def channels_of(settings: Alerts) -> dict[str, Channel]:
    """The channels the settings ask for; what is wrong with one is said in the log, and it is left out."""
    found: dict[str, Channel] = {}
    for name, options in {**USUAL, **settings.channels}.items():
        if not options.get("enabled", True):
            continue
        try:
            found[name] = make_channel(name, options)
        except StepscopeError as error:
            log.warning("The channel %s is left out: %s", name, error)
    return found


def make_channel(name: str, options: Mapping[str, object]) -> Channel:
    """A channel by its name in the settings, which is its kind unless `kind` says otherwise."""
    kind = str(options.get("kind", name))
    wanted = {option: value for option, value in options.items() if option not in ("enabled", "kind")}
    return plugins.make("channels", kind, Channel, wanted)  # type: ignore[type-abstract]  # only its members
