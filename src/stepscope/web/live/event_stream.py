"""Sends a client its events for as long as it listens; a client that takes nothing is let go."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.responses import Response

from stepscope.web.live.feed import HEARTBEAT_S

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from stepscope.web.live.feed import Feed
    from stepscope.web.live.subscriber import Subscriber

STUCK_S = 60.0
"""A client that has taken nothing for so long is gone."""

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """An answer of the kind text/event-stream."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, subscriber: Subscriber, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._feed, self._subscriber, self._heartbeat_s = feed, subscriber, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the client goes, or the server ends."""
        gone = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(self._subscriber)
            for task in (gone, sending):
                task.cancel()
                # Its client has gone, is stuck, or the server ends: nobody is left to tell.
                with contextlib.suppress(asyncio.CancelledError, OSError, asyncio.TimeoutError):
                    await task

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while True:
            message = await self._subscriber.get(self._heartbeat_s)
            if message is None and self._subscriber.is_closed:
                break
            text = b": heartbeat\n\n" if message is None else message.as_sse()
            part = {"type": "http.response.body", "body": text, "more_body": True}
            await asyncio.wait_for(send(part), STUCK_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
