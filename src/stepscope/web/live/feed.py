"""The live feed: one look at the store for all clients, and each told what concerns it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from stepscope.agent.process.wake import wake
from stepscope.errors import NotFound, StepscopeError
from stepscope.web.api.responses import to_text
from stepscope.web.live import cursor, live_run
from stepscope.web.live.subscriber import Message, Subscriber, resync

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.views.runs.run_rows import RunRow
    from stepscope.web.app_state import AppState
    from stepscope.web.live.live_run import FollowedRun, RunUpdate

log = logging.getLogger("stepscope.web")

MIN_INTERVAL_S = 0.5
"""The least time between two looks: two a second."""
AGENT_WAIT_S = 0.05
MAX_AGENT_WAITS = 4
"""An agent that was woken has this often this long to write, which is more than it needs."""
MAX_INTERVAL_S = 2.0
MAX_TIME_SHARE = 0.25
"""Looking and telling may take this share of the time; where many clients make it more, looks are fewer."""
MANY_CLIENTS = 20
"""Up to so many clients the pace is kept whatever it costs."""
HEARTBEAT_S = 15.0


class Feed:
    """Watches the store while anybody follows it."""

    def __init__(self, state: AppState, now: Callable[[], float] = time.monotonic) -> None:
        self._state, self._now = state, now
        self._subscribers: set[Subscriber] = set()
        self._joining = 0
        self._seen: dict[str, FollowedRun] = {}
        self._missing: set[str] = set()
        """Runs whose pages know that they were deleted."""
        self._rows: dict[str, RunRow] = {}
        self._version: object = None
        self._someone = asyncio.Event()
        # Nobody may join in the middle of a look: what they wait for would not have been looked at.
        self._looking = asyncio.Lock()
        self._next_at = 0.0
        self._trouble = ""
        self.is_closing = False

    @property
    def client_count(self) -> int:
        """How many follow, or are about to: joining takes a moment, in which more may ask."""
        return len(self._subscribers) + self._joining

    async def run(self) -> None:
        """Looks and tells until it is cancelled."""
        while True:
            await self._someone.wait()
            await asyncio.sleep(max(self._next_at - self._now(), 0.0))
            if not self._subscribers:
                continue
            try:
                await self._look_if_changed()
            except StepscopeError as error:
                self._complain(str(error))
            except Exception:
                # Whatever it is, those who follow other runs must go on being told.
                log.exception("The live feed failed, and goes on.")
                self._next_at = self._now() + MAX_INTERVAL_S

    async def _look_if_changed(self) -> None:
        """Asks the agent to write what it has, looks, and says when to look again.

        An agent writes at a pace of its own: whoever only watched for that would be behind by both paces.
        """
        began_at = self._now()
        self._next_at = began_at + MIN_INTERVAL_S
        wake(self._state.options.folder)
        for _ in range(MAX_AGENT_WAITS):
            await asyncio.sleep(AGENT_WAIT_S)
            if await asyncio.to_thread(self._has_changed):
                looked_at = self._now()
                await self.look()
                self._next_at = began_at + interval_s(self._now() - looked_at, len(self._subscribers))
                return

    def _complain(self, trouble: str) -> None:
        """Says once what keeps the store from being read, and tries again after a while."""
        self._next_at = self._now() + MAX_INTERVAL_S
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("The live feed cannot read the store: %s", trouble)

    async def look(self) -> None:
        """Looks at every run that is followed, and tells what is new."""
        async with self._looking:
            for run_id in {one.run_id for one in self._subscribers if one.run_id is not None}:
                try:
                    await self._look_at(run_id)
                except StepscopeError as error:
                    self._complain(str(error))
                    self._seen.pop(run_id, None)
                    if isinstance(error, NotFound):
                        self._report_missing(run_id)
                else:
                    self._missing.discard(run_id)
            if any(one.run_id is None for one in self._subscribers):
                await self._look_at_list()

    def _report_missing(self, run_id: str) -> None:
        """Makes pages that show a deleted run read it again, once: the answer says that it is gone."""
        if run_id in self._missing:
            return
        self._missing.add(run_id)
        for subscriber in self._subscribers:
            if subscriber.run_id == run_id:
                subscriber.put(resync("The run is no longer in the store."))

    async def join(self, run_id: str | None, keys: frozenset[str], since: str | None) -> Subscriber:
        """A new client, with what it missed since its cursor waiting for it. Raises StoreError."""
        self._joining += 1
        try:
            return await self._join(run_id, keys, since)
        finally:
            self._joining -= 1

    async def _join(self, run_id: str | None, keys: frozenset[str], since: str | None) -> Subscriber:
        async with self._looking:
            if run_id is None:
                subscriber = Subscriber(None, frozenset())
                subscriber.cursor = f"t{self._state.now_ns() // 1_000_000}"
                subscriber.put(self._hello(subscriber.cursor))
                subscriber.put(await asyncio.to_thread(self._list_since, since))
            else:
                run_id = await asyncio.to_thread(self._id_of, run_id)
                await self._look_at(run_id)
                subscriber = Subscriber(run_id, keys)
            self._subscribers.add(subscriber)
            self._someone.set()
            seen = self._seen.get(run_id or "")
        if run_id is not None and seen is not None:
            await self._welcome(subscriber, run_id, since, seen)
        if self.is_closing:
            subscriber.close()
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """A client has gone."""
        self._subscribers.discard(subscriber)
        followed = {one.run_id for one in self._subscribers}
        for run_id in self._seen.keys() - followed:
            del self._seen[run_id]
        if not self._subscribers:
            self._someone.clear()

    def close(self) -> None:
        """Ends all streams, for good."""
        self.is_closing = True
        self.disconnect_all()

    def disconnect_all(self) -> None:
        """Ends all streams; who may come back does."""
        for subscriber in list(self._subscribers):
            subscriber.close()

    def _hello(self, text: str) -> Message:
        told = {"now": self._state.now_ns() / 1e9, "cursor": text, "heartbeat_s": HEARTBEAT_S}
        return Message("hello", to_text(told), text)

    async def _welcome(
        self, subscriber: Subscriber, run_id: str, since: str | None, seen: FollowedRun
    ) -> None:
        """Puts what a client missed before what has come since it joined."""
        subscriber.cursor = cursor.written(run_id, seen.position)
        is_known = since is not None and cursor.read(run_id, since) is not None
        # Until it has been told what it missed, a client that is cut off must come back with its own cursor.
        messages = [self._hello(since if since and is_known else subscriber.cursor)]
        if since:
            messages += await asyncio.to_thread(self._missed, run_id, subscriber.keys, since, seen)
        for message in messages + subscriber.drain():
            subscriber.put(message)

    def _missed(self, run_id: str, keys: frozenset[str], since: str, seen: FollowedRun) -> list[Message]:
        told = cursor.read(run_id, since)
        if told is None:
            return [resync("The cursor is not one of this run.", cursor.written(run_id, seen.position))]
        with self._state.readers.open() as opened:
            return live_run.missed(self._state, opened, run_id, keys, told, seen)

    async def _look_at(self, run_id: str) -> None:
        keys = frozenset().union(*(one.keys for one in self._subscribers if one.run_id == run_id))
        news = await asyncio.to_thread(self._news, run_id, keys)
        self._seen[run_id] = news.seen
        for subscriber in self._subscribers:
            if subscriber.run_id == run_id:
                _tell(subscriber, news)

    def _news(self, run_id: str, keys: frozenset[str]) -> RunUpdate:
        with self._state.readers.open() as opened:
            return live_run.look(self._state, opened, run_id, keys, self._seen.get(run_id))

    def _id_of(self, run_id: str) -> str:
        with self._state.readers.open() as opened:
            return opened.run(run_id).id

    def _has_changed(self) -> bool:
        """Whether anything was written since the last time this was asked."""
        version = (self._state.readers.version(), self._state.marks.changes)
        changed, self._version = version != self._version, version
        return changed

    async def _look_at_list(self) -> None:
        with contextlib.suppress(StepscopeError):
            message = await asyncio.to_thread(self._changed_rows)
            for subscriber in self._subscribers:
                if subscriber.run_id is None and message is not None:
                    subscriber.put(message)

    def _changed_rows(self) -> Message | None:
        with self._state.readers.open() as opened:
            rows = self._state.rows(opened)
        changed = [row for row in rows if self._rows.get(row.id) != row]
        before, self._rows = self._rows, {row.id: row for row in rows}
        is_gone = bool(before.keys() - self._rows.keys())
        return _list_message(changed, len(rows)) if changed or is_gone else None

    def _list_since(self, since: str | None) -> Message:
        """The rows of runs that are live, or have changed since a client last heard of them."""
        text = (since or "").removeprefix("t")
        heard_s = int(text) / 1000 if text.isascii() and text.isdecimal() else float("inf")
        with self._state.readers.open() as opened:
            rows = self._state.rows(opened)
        if all(one.run_id is not None for one in self._subscribers):
            # Else others follow the list who have yet to be told what is new in it.
            self._rows = {row.id: row for row in rows}
        told = [row for row in rows if row.ended is None or row.last_seen >= heard_s]
        return _list_message(told, len(rows))


def interval_s(took_s: float, clients: int) -> float:
    """The time from one look to the next."""
    if clients <= MANY_CLIENTS:
        return MIN_INTERVAL_S
    return min(max(MIN_INTERVAL_S, took_s / MAX_TIME_SHARE), MAX_INTERVAL_S)


def _tell(subscriber: Subscriber, news: RunUpdate) -> None:
    points = None if news.batch is None else news.batch.message(subscriber.keys)
    if points is not None:
        subscriber.put(points)
    for message in news.messages:
        subscriber.put(message)


def _list_message(rows: list[RunRow], total: int) -> Message:
    return Message("runs", to_text({"changed": rows, "total": total}))
