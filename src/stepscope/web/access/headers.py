"""The headers every answer carries: what a browser may load, keep, frame and tell others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Send

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "frame-ancestors 'none'",
        # 'self' and not 'none': the page names its base path in a <base> element.
        "base-uri 'self'",
        "form-action 'self'",
    ]
)

ALWAYS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}

_NAMES_OF_SOFTWARE = frozenset({b"server", b"x-powered-by"})


def secured(send: Send) -> Send:
    """Sends the same answers with the headers that keep them safe; what is not said to be kept is not."""

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [one for one in message.get("headers", []) if one[0].lower() not in _NAMES_OF_SOFTWARE]
            names = {name.lower() for name, _ in given}
            given += [(name, value) for name, value in ALWAYS.items() if name not in names]
            if b"cache-control" not in names:
                given.append((b"cache-control", b"no-store"))
            message = {**message, "headers": given}
        await send(message)

    return send_secured
