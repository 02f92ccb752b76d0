"""Sends server-sent events to a client until it disconnects or stops reading."""

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

SEND_TIMEOUT_S = 60.0
"""A client that has read nothing for so long is disconnected."""

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """A response of the type text/event-stream."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, subscriber: Subscriber, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._feed, self._subscriber, self._heartbeat_s = feed, subscriber, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the client disconnects, or the server ends."""
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait({disconnected, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(self._subscriber)
            for task in (disconnected, sending):
                task.cancel()
                # The client has disconnected or is stuck, or the server ends: nobody can get the error.
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
            await asyncio.wait_for(send(part), SEND_TIMEOUT_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
