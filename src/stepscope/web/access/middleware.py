"""The ASGI middleware in front of every route: checks host, token, origin and limits, adds headers."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from stepscope.web.access import error_responses
from stepscope.web.access.error_responses import error_response, plain_page
from stepscope.web.access.hosts import host_names, is_allowed, is_same_origin
from stepscope.web.access.incoming_request import HEALTH_PATHS, SCRAPED, IncomingRequest, with_path
from stepscope.web.access.request_body import BodyRefused, read_checked_body

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stepscope.web.access.keyring import Keyring
    from stepscope.web.server.options import ServerOptions

log = logging.getLogger("stepscope.web")

CUSTOM_HEADER = "x-stepscope"

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        # 'self' and not 'none': the page names its base path in a <base> element.
        "base-uri 'self'",
        "form-action 'self'",
    ]
)

SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}

_REMOVED_HEADERS = frozenset({b"server", b"x-powered-by"})

BURST_S = 5.0
MAX_BUCKETS = 4096
"""Buckets kept at the same time; beyond it the least recently used one is dropped."""


def security_headers(frame_origins: Sequence[str]) -> dict[bytes, bytes]:
    """The headers of every response; pages of these origins may show it in a frame, by default none."""
    ancestors = " ".join(frame_origins) or "'none'"
    policy = f"{CONTENT_SECURITY_POLICY}; frame-ancestors {ancestors}"
    headers = {b"content-security-policy": policy.encode(), **SECURITY_HEADERS}
    # The older header knows no origins; browsers that know the policy ignore it.
    return headers if frame_origins else {**headers, b"x-frame-options": b"DENY"}


class AccessMiddleware:
    """Lets a request through only if it has the token, or needs none, and is within the limits.

    With `is_for_programs` there is no login: cookies do not count, and every request, also one that only
    reads, must be one that no web page can cause.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: ServerOptions,
        keyring: Keyring,
        now: Callable[[], float] = time.monotonic,
        *,
        is_for_programs: bool = False,
    ) -> None:
        self._app, self._options, self._keyring, self._now = app, options, keyring, now
        self._is_for_programs = is_for_programs
        self._headers = security_headers(options.settings.dashboard.frame_origins)
        self._base_path = options.base_path.rstrip("/")
        self._names = host_names(options.host, options.allowed_hosts)
        self._requests = RateLimit(options.limits.requests_per_second, now)
        self._changes = RateLimit(options.limits.changes_per_second, now)
        self._unauthenticated = RateLimit(options.limits.strangers_per_second, now)
        self.last_request_at = now()
        """Time of the last request with the token, apart from scrapes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to its route, or answers it with an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._respond(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = IncomingRequest(scope, self._base_path)
        error_id, began_at, status = error_responses.new_id(), self._now(), 0

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        send_response = with_security_headers(send_noting, self._headers)
        try:
            response = self._refusal(request)
            if response is None and request.is_change:
                receive = await read_checked_body(request, receive, self._options.limits)
            if response is None:
                inner = {
                    **with_path(scope, request.path),
                    "state": {**scope.get("state", {}), "id": error_id},
                }
                await self._app(inner, receive, send_response)
            else:
                await response(scope, receive, send_response)
        except BodyRefused as error:
            await error_response(error.status, error.message, error_id=error_id)(
                scope, receive, send_response
            )
        except Exception:
            log.exception("error %s in %s %a", error_id, request.method, request.path)
            if not status:
                await error_response(500, error_responses.INTERNAL_ERROR, error_id=error_id)(
                    scope, receive, send_response
                )
        finally:
            # The path only: a query may hold a token or a search text.
            took_ms = 1000 * (self._now() - began_at)
            log.info("%s %a %d %.0f ms %s", request.method, request.path, status, took_ms, error_id)

    def _refusal(self, request: IncomingRequest) -> Response | None:
        """The error or redirect to answer with; None lets the request through."""
        refused = self._wrong_host(request)
        if refused is not None or request.path in HEALTH_PATHS:
            return refused
        response = self._login(request)
        if response is not None:
            return response
        keyring = self._keyring
        has_bearer = keyring.accepts(request.bearer())
        has_cookie = not self._is_for_programs and keyring.is_in_cookie(request)
        if not (has_bearer or has_cookie or not keyring.is_needed()):
            return self._token_missing(request, error_responses.NEEDS_LOGIN)
        if request.path != SCRAPED:  # which goes on for ever, also where nobody needs the server any more
            self.last_request_at = self._now()
        request.mark_authenticated()
        if request.is_change or self._is_for_programs:
            refused = self._cross_origin(request, without_bearer=not has_bearer)
            if refused is None and request.is_change and self._options.read_only:
                refused = error_response(405, "This server changes nothing: it was started with --read-only.")
        return refused or self._rate_limited(request)

    def _wrong_host(self, request: IncomingRequest) -> Response | None:
        # A target such as http://evil.test/ names a host in the place of the path.
        names_path = request.path.startswith("/")
        if (
            names_path
            and len(request.headers("host")) == 1
            and is_allowed(request.header("host"), self._names)
        ):
            return None
        return error_response(
            403,
            f"The request names the host {str(request.header('host'))[:100]!r}, and this server does not "
            "answer to that name. If it is right, start the server with --allow-host NAME.",
        )

    def _login(self, request: IncomingRequest) -> Response | None:
        """Exchanges a token in the URL for a cookie, and redirects to the URL without it."""
        is_needed, token = self._keyring.is_needed(), request.query_token()
        if self._is_for_programs or request.is_api or request.method != "GET":
            return None
        if token is None and request.path != "/login":
            return None
        if is_needed and token is None:
            return None
        target = "/" if request.path == "/login" else request.address_without_token()
        response = RedirectResponse(f"{self._base_path}{target}", 303)
        if not is_needed:
            return response
        if not self._keyring.lets_in(token, request):
            return self._token_missing(request, error_responses.WRONG_LOGIN)
        self._keyring.set_cookie(response, request)
        request.mark_authenticated()
        return response

    def _token_missing(self, request: IncomingRequest, text: str) -> Response:
        if not self._unauthenticated.allows(request.address):
            return error_response(429, "Too many requests without a token. Wait a few seconds.")
        headers = {"WWW-Authenticate": "Bearer"}
        if self._is_for_programs:
            is_missing = request.bearer() is None
            text = error_responses.NEEDS_HEADER if is_missing else error_responses.WRONG_HEADER
            return error_response(401, text, headers=headers)
        if request.is_api or request.method != "GET":
            return error_response(401, text, headers=headers)
        page = plain_page(401, "stepscope", text)
        page.headers.update(headers)
        return page

    def _cross_origin(self, request: IncomingRequest, *, without_bearer: bool) -> Response | None:
        """Refuses a change that another site may have caused: browsers add cookies to any request."""
        origins, host = request.headers("origin"), request.header("host") or ""
        fetch_site = request.header("sec-fetch-site")
        is_cross_origin = any(not is_same_origin(origin, host) for origin in origins) or len(origins) > 1
        if is_cross_origin or fetch_site not in (None, "same-origin", "none"):
            what = "sent this request" if self._is_for_programs else "asked for this change"
            return error_response(403, f"A page of another origin {what}.")
        if self._is_for_programs and without_bearer and request.header(CUSTOM_HEADER) != "1":
            return error_response(
                403, "Send the header X-Stepscope: 1. This server needs no token, but no web page may ask it."
            )
        by_cookie = without_bearer and self._keyring.is_needed()
        if without_bearer and (request.header(CUSTOM_HEADER) != "1" or (by_cookie and not origins)):
            return error_response(
                403, "A change needs the header X-Stepscope: 1 and the Origin of this page."
            )
        return None

    def _rate_limited(self, request: IncomingRequest) -> Response | None:
        rate = self._changes if request.is_change else self._requests
        if rate.allows("token"):
            return None
        return error_response(
            429, "Too many requests. Wait a second and try again.", headers={"Retry-After": "1"}
        )


class RateLimit:
    """A token bucket for each name: requests per second, with bursts of `BURST_S` seconds' worth."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._burst = max(per_second * BURST_S, 1.0)
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, name: str) -> bool:
        """Whether one more request is allowed now; counts it if so."""
        now = self._now()
        left, since = self._buckets.pop(name, (self._burst, now))
        left = min(left + (now - since) * self._per_second, self._burst)
        allowed = left >= 1
        self._buckets[name] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return allowed


def with_security_headers(send: Send, added: Mapping[bytes, bytes]) -> Send:
    """Adds security headers to responses; those without Cache-Control must not be stored."""

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, value)
                for name, value in message.get("headers", [])
                if name.lower() not in _REMOVED_HEADERS
            ]
            names = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in added.items() if name not in names]
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return send_secured
