"""Polls the store once for all clients and sends each client what changed in the run it follows."""

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
from stepscope.web.live.events import ChangedRuns, Hello
from stepscope.web.live.subscriber import Message, Subscriber, resync

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.views.runs.run_rows import RunRow
    from stepscope.web.app_state import AppState
    from stepscope.web.live.live_run import FollowedRun, RunUpdate

log = logging.getLogger("stepscope.web")

MIN_INTERVAL_S = 0.5
"""The shortest time between two polls: two polls a second."""
AGENT_WAIT_S = 0.05
MAX_AGENT_WAITS = 4
"""How long, and how many times, a poll waits for an agent that was woken to write; it needs less."""
MAX_INTERVAL_S = 2.0
MAX_TIME_SHARE = 0.25
"""Polling and sending may take this share of the time; with many clients the interval grows instead."""
MANY_CLIENTS = 20
"""Up to this many clients the interval stays `MIN_INTERVAL_S`, whatever a poll costs."""
HEARTBEAT_S = 15.0


class Feed:
    """Watches the store while at least one client is connected."""

    def __init__(self, state: AppState, now: Callable[[], float] = time.monotonic) -> None:
        self._state, self._now = state, now
        self._subscribers: set[Subscriber] = set()
        self._joining = 0
        self._followed: dict[str, FollowedRun] = {}
        self._missing: set[str] = set()
        """Deleted runs whose clients have been informed."""
        self._rows: dict[str, RunRow] = {}
        self._version: object = None
        self._has_clients = asyncio.Event()
        # No client may join during a poll: the poll would not have read the keys it follows.
        self._poll_lock = asyncio.Lock()
        self._next_at = 0.0
        self._reported_error = ""
        self.is_closing = False

    @property
    def client_count(self) -> int:
        """Clients that are connected or joining; joining takes a moment in which more may ask."""
        return len(self._subscribers) + self._joining

    async def run(self) -> None:
        """Polls and sends until it is cancelled."""
        while True:
            await self._has_clients.wait()
            await asyncio.sleep(max(self._next_at - self._now(), 0.0))
            if not self._subscribers:
                continue
            try:
                await self._poll_if_changed()
            except StepscopeError as error:
                self._report_store_error(str(error))
            except Exception:
                # Clients of other runs must go on getting their updates, whatever failed.
                log.exception("The live feed failed; it continues.")
                self._next_at = self._now() + MAX_INTERVAL_S

    async def _poll_if_changed(self) -> None:
        """Asks the agent to write what it has, polls the store, and sets the time of the next poll.

        An agent writes at an interval of its own; without waking it, clients would be late by both intervals.
        """
        began_at = self._now()
        self._next_at = began_at + MIN_INTERVAL_S
        wake(self._state.options.folder)
        for _ in range(MAX_AGENT_WAITS):
            await asyncio.sleep(AGENT_WAIT_S)
            if await asyncio.to_thread(self._has_changed) or self._has_late_row():
                poll_began_at = self._now()
                await self.poll()
                self._next_at = began_at + interval_s(self._now() - poll_began_at, len(self._subscribers))
                return

    def _report_store_error(self, error_text: str) -> None:
        """Logs once why the store cannot be read, and delays the next poll."""
        self._next_at = self._now() + MAX_INTERVAL_S
        if error_text != self._reported_error:
            self._reported_error = error_text
            log.warning("The live feed cannot read the store: %s", error_text)

    async def poll(self) -> None:
        """Reads every run that has clients, and sends them what is new."""
        async with self._poll_lock:
            for run_id in {client.run_id for client in self._subscribers if client.run_id is not None}:
                try:
                    await self._poll_run(run_id)
                except StepscopeError as error:
                    self._report_store_error(str(error))
                    self._followed.pop(run_id, None)
                    if isinstance(error, NotFound):
                        self._report_missing(run_id)
                else:
                    self._missing.discard(run_id)
            if any(client.run_id is None for client in self._subscribers):
                await self._poll_list()

    def _report_missing(self, run_id: str) -> None:
        """Makes pages of a deleted run read it again, once; the response says that it is gone."""
        if run_id in self._missing:
            return
        self._missing.add(run_id)
        for subscriber in self._subscribers:
            if subscriber.run_id == run_id:
                subscriber.put(resync("The run is no longer in the store."))

    async def join(self, run_id: str | None, keys: frozenset[str], since: str | None) -> Subscriber:
        """Adds a client and queues what it missed since its cursor. Raises StoreError."""
        self._joining += 1
        try:
            return await self._join(run_id, keys, since)
        finally:
            self._joining -= 1

    async def _join(self, run_id: str | None, keys: frozenset[str], since: str | None) -> Subscriber:
        async with self._poll_lock:
            if run_id is None:
                subscriber = Subscriber(None, frozenset())
                subscriber.cursor = f"t{self._state.now_ns() // 1_000_000}"
                subscriber.put(self._hello(subscriber.cursor))
                subscriber.put(await asyncio.to_thread(self._list_since, since))
            else:
                run_id = await asyncio.to_thread(self._run_id, run_id)
                await self._poll_run(run_id)
                subscriber = Subscriber(run_id, keys)
            self._subscribers.add(subscriber)
            self._has_clients.set()
            followed = self._followed.get(run_id or "")
        if run_id is not None and followed is not None:
            await self._send_missed(subscriber, run_id, since, followed)
        if self.is_closing:
            subscriber.close()
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Removes a client."""
        self._subscribers.discard(subscriber)
        run_ids = {client.run_id for client in self._subscribers}
        for run_id in self._followed.keys() - run_ids:
            del self._followed[run_id]
        if not self._subscribers:
            self._has_clients.clear()

    def close(self) -> None:
        """Ends all streams; clients that join afterwards are disconnected at once."""
        self.is_closing = True
        self.disconnect_all()

    def disconnect_all(self) -> None:
        """Ends all streams; clients with a valid token reconnect."""
        for subscriber in list(self._subscribers):
            subscriber.close()

    def _hello(self, text: str) -> Message:
        return Message("hello", to_text(Hello(self._state.now_ns() / 1e9, text, HEARTBEAT_S)), text)

    async def _send_missed(
        self, subscriber: Subscriber, run_id: str, since: str | None, followed: FollowedRun
    ) -> None:
        """Queues what a client missed before what was queued since it joined."""
        subscriber.cursor = cursor.encode(run_id, followed.position)
        position = None if since is None else cursor.decode(run_id, since)
        is_known = position is not None
        # A client that is cut off before it got what it missed must reconnect with its own cursor.
        messages = [self._hello(since if since and is_known else subscriber.cursor)]
        if since:
            messages += await asyncio.to_thread(
                self._missed_messages, run_id, subscriber.keys, since, followed
            )
        if followed.row and (position is None or position.counts != followed.position.counts):
            messages.append(Message("run", followed.row))  # the other clients have it already
        for message in messages + subscriber.drain():
            subscriber.put(message)

    def _missed_messages(
        self, run_id: str, keys: frozenset[str], since: str, followed: FollowedRun
    ) -> list[Message]:
        position = cursor.decode(run_id, since)
        if position is None:
            return [resync("The cursor is not one of this run.", cursor.encode(run_id, followed.position))]
        with self._state.readers.open() as opened:
            return live_run.missed_messages(self._state, opened, run_id, keys, position, followed)

    async def _poll_run(self, run_id: str) -> None:
        clients = [client for client in self._subscribers if client.run_id == run_id]
        keys = frozenset().union(*(client.keys for client in clients))
        update = await asyncio.to_thread(self._read_update, run_id, keys)
        self._followed[run_id] = update.followed
        for subscriber in self._subscribers:
            if subscriber.run_id == run_id:
                _send_update(subscriber, update)

    def _read_update(self, run_id: str, keys: frozenset[str]) -> RunUpdate:
        with self._state.readers.open() as opened:
            return live_run.read_update(self._state, opened, run_id, keys, self._followed.get(run_id))

    def _run_id(self, run_id: str) -> str:
        with self._state.readers.open() as opened:
            return opened.run(run_id).id

    def _has_changed(self) -> bool:
        """Whether anything was written since the previous call."""
        version = (self._state.readers.version(), self._state.marks.changes)
        changed, self._version = version != self._version, version
        return changed

    def _has_late_row(self) -> bool:
        """Whether clients of a run may have an old row, although nothing was written since."""
        return any(followed.is_row_late for followed in self._followed.values())

    async def _poll_list(self) -> None:
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
        """The rows of runs that are live, or have changed since the cursor of a client."""
        text = (since or "").removeprefix("t")
        since_s = int(text) / 1000 if text.isascii() and text.isdecimal() else float("inf")
        with self._state.readers.open() as opened:
            rows = self._state.rows(opened)
        if all(client.run_id is not None for client in self._subscribers):
            # Otherwise other clients of the list have yet to get what is new in it.
            self._rows = {row.id: row for row in rows}
        changed = [row for row in rows if row.ended is None or row.last_seen >= since_s]
        return _list_message(changed, len(rows))


def interval_s(took_s: float, clients: int) -> float:
    """The time from the start of one poll to the next, by what polling costs with so many clients."""
    if clients <= MANY_CLIENTS:
        return MIN_INTERVAL_S
    return min(max(MIN_INTERVAL_S, took_s / MAX_TIME_SHARE), MAX_INTERVAL_S)


def _send_update(subscriber: Subscriber, update: RunUpdate) -> None:
    points = None if update.batch is None else update.batch.message(subscriber.keys)
    if points is not None:
        subscriber.put(points)
    for message in update.messages:
        subscriber.put(message)


def _list_message(rows: list[RunRow], total: int) -> Message:
    return Message("runs", to_text(ChangedRuns(rows, total)))
