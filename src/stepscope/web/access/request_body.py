"""Reads the body of a request within limits of size, time and depth, before any route gets it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Receive

    from stepscope.web.access.incoming_request import IncomingRequest
    from stepscope.web.server.options import Limits

MAX_DEPTH = 32
"""No valid request has JSON nested deeper than this."""

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class BodyRefused(Exception):
    """A body that is too large, too slow, too deep or not JSON."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


async def read_checked_body(request: IncomingRequest, receive: Receive, limits: Limits) -> Receive:
    """Reads and checks the whole body; returns a `receive` that replays it. Raises BodyRefused."""
    _check_headers(request, limits)
    try:
        body = await asyncio.wait_for(_read(receive, limits.body_bytes), limits.body_seconds)
    except asyncio.TimeoutError:
        raise BodyRefused(
            408, f"The request did not arrive within {limits.body_seconds:.0f} s. Send it again."
        ) from None
    if body:
        _check_kind(request)
        if await asyncio.to_thread(is_nested_too_deep, body):
            raise BodyRefused(400, f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    return _replaying(body, receive)


def is_nested_too_deep(body: bytes) -> bool:
    """Whether JSON is nested deeper than `MAX_DEPTH`, counted without parsing it."""
    level = 0
    for byte in _JSON_STRING.sub(b"", body).translate(None, delete=_NOT_BRACKETS):
        level += 1 if byte in b"[{" else -1
        if level > MAX_DEPTH:
            return True
    return False


def _check_headers(request: IncomingRequest, limits: Limits) -> None:
    length = request.header("content-length")
    if length is not None and (not length.isdecimal() or int(length) > limits.body_bytes):
        raise BodyRefused(413, f"The body has {length} bytes; the maximum is {limits.body_bytes}.")
    encoding = request.header("content-encoding")
    if encoding not in (None, "", "identity"):
        raise BodyRefused(400, f"Content-Encoding is {encoding!r}; send the body uncompressed.")


def _check_kind(request: IncomingRequest) -> None:
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BodyRefused(400, f"Content-Type is {kind!r}; it must be application/json.")


async def _read(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyRefused(400, "The request broke off.")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:  # a chunked body does not say how long it will be
            raise BodyRefused(413, f"The body has more than {max_bytes} bytes, the maximum.")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replaying(body: bytes, receive: Receive) -> Receive:
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay
