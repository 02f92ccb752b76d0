"""One client of the live feed, and what waits for it: bounded, since a slow client must cost no memory."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from stepscope.web.api.responses import to_text

MAX_WAITING = 64
MAX_BYTES = 4 * 1024 * 1024
"""Beyond either, what waits is dropped and the client is told to read anew."""


@dataclass(frozen=True)
class Message:
    """An event, ready to be sent; many clients share one."""

    event: str
    text: str
    """JSON in one line."""
    cursor: str | None = None

    def as_sse(self) -> bytes:
        """As an event stream has it."""
        identity = "" if self.cursor is None else f"id: {self.cursor}\n"
        return f"event: {self.event}\n{identity}data: {self.text}\n\n".encode()


def resync(why: str, cursor: str | None = None) -> Message:
    """Tells a client to read anew what it shows."""
    return Message("resync", to_text({"why": why}), cursor)


class Subscriber:
    """A client that holds a stream, or waits for a delta."""

    def __init__(self, run_id: str | None, keys: frozenset[str]) -> None:
        self.run_id, self.keys = run_id, keys
        self.cursor = ""
        """Where it stands once it has read what waited for it when it joined."""
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self.is_closed = False

    def put(self, message: Message) -> None:
        """Lets a message wait; where too many do, all of them become one call to read anew."""
        self._waiting.append(message)
        self._bytes += len(message.text)
        if len(self._waiting) > MAX_WAITING or (self._bytes > MAX_BYTES and len(self._waiting) > 1):
            self._waiting.clear()
            behind = resync("This client reads more slowly than the run is recorded.", message.cursor)
            self._waiting.append(behind)
            self._bytes = len(behind.text)
        self._arrived.set()

    def close(self) -> None:
        """Ends the stream after what waits."""
        self.is_closed = True
        self._arrived.set()

    async def get(self, patience_s: float) -> Message | None:
        """The next message; None when none comes in time, or none will come any more."""
        if not self._waiting and not self.is_closed:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), patience_s)
            except asyncio.TimeoutError:
                return None
        return self._pop()

    def drain(self) -> list[Message]:
        """All that waits now."""
        found = []
        while (message := self._pop()) is not None:
            found.append(message)
        return found

    def _pop(self) -> Message | None:
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._bytes -= len(message.text)
        return message
