"""One client of the live feed and its queue, which is bounded: a slow client must not cost memory."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from stepscope.web.api.responses import to_text
from stepscope.web.live.events import EventName, Resync

MAX_QUEUED = 64
MAX_BYTES = 4 * 1024 * 1024
"""Beyond either limit the queue is cleared and the client is asked to read everything again."""


@dataclass(frozen=True)
class Message:
    """An event, ready to be sent; many clients share the same object."""

    event: EventName
    text: str
    """JSON in one line."""
    cursor: str | None = None

    def as_sse(self) -> bytes:
        """The bytes of a server-sent event."""
        identity = "" if self.cursor is None else f"id: {self.cursor}\n"
        return f"event: {self.event}\n{identity}data: {self.text}\n\n".encode()


def resync(why: str, cursor: str | None = None) -> Message:
    """Asks a client to read everything it shows again."""
    return Message("resync", to_text(Resync(why)), cursor)


class Subscriber:
    """A client that holds a stream, or waits for a delta."""

    def __init__(self, run_id: str | None, keys: frozenset[str]) -> None:
        self.run_id, self.keys = run_id, keys
        self.cursor = ""
        """Its position once it has read what was queued when it joined."""
        self._queue: deque[Message] = deque()
        self._bytes = 0
        self._message_arrived = asyncio.Event()
        self.is_closed = False

    def put(self, message: Message) -> None:
        """Queues a message; where the queue is full, one `resync` replaces all of it."""
        self._queue.append(message)
        self._bytes += len(message.text)
        if len(self._queue) > MAX_QUEUED or (self._bytes > MAX_BYTES and len(self._queue) > 1):
            self._queue.clear()
            too_slow = resync("This client reads more slowly than the run is recorded.", message.cursor)
            self._queue.append(too_slow)
            self._bytes = len(too_slow.text)
        self._message_arrived.set()

    def close(self) -> None:
        """Ends the stream after the messages that are queued."""
        self.is_closed = True
        self._message_arrived.set()

    async def get(self, timeout_s: float) -> Message | None:
        """The next message; None after `timeout_s`, or when the stream has ended."""
        if not self._queue and not self.is_closed:
            self._message_arrived.clear()
            try:
                await asyncio.wait_for(self._message_arrived.wait(), timeout_s)
            except asyncio.TimeoutError:
                return None
        return self._pop()

    def drain(self) -> list[Message]:
        """Takes all messages that are queued now."""
        messages = []
        while (message := self._pop()) is not None:
            messages.append(message)
        return messages

    def _pop(self) -> Message | None:
        if not self._queue:
            return None
        message = self._queue.popleft()
        self._bytes -= len(message.text)
        return message
