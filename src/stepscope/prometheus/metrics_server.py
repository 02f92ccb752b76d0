"""Serves the metrics over HTTP on a port of their own, which runs share that name the same port."""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import logging
import os
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from stepscope.errors import ConfigError, StepscopeError
from stepscope.prometheus.exposition import client_library, render
from stepscope.prometheus.live_state import LiveState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger("stepscope.agent")

HOST = "127.0.0.1"
PORT = 9787
METRICS_PATH, HEALTHY_PATH, READY_PATH = "/metrics", "/-/healthy", "/-/ready"
PLAIN = "text/plain; charset=utf-8"

RETRY_S = 10.0
"""How often a port that is taken is tried again."""
REQUEST_S = 10.0
"""How long a client may take to send its request, and to read the response."""
MAX_CONNECTIONS = 16
"""Connections at the same time; with more, the oldest is closed."""
POLL_S = 0.2
"""How often a server checks whether it is to close."""
MIN_TOKEN_CHARACTERS = 16

Answer = tuple[HTTPStatus, bytes, str]
"""Status, body and content type."""


class MetricsServer:
    """Serves one state on one port, from threads of its own; a port that is taken is tried again."""

    def __init__(
        self, state: LiveState, host: str = HOST, port: int = PORT, token: str | None = None
    ) -> None:
        client_library()  # raises where it is not installed
        self.state, self.host, self.token = state, host, token
        self._port = port
        self._http: _HttpServer | None = None
        self._is_closing = threading.Event()
        self._is_serving = threading.Event()
        self.trouble = ""
        """Why it does not listen; empty if it does."""
        self._thread = threading.Thread(target=self._run, name="stepscope-prometheus", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on; the one it was given while it does not listen yet."""
        return self._port if self._http is None else int(self._http.server_address[1])

    def wait_until_serving(self, timeout_s: float) -> bool:
        """Waits until it listens; False where it does not within the time."""
        return self._is_serving.wait(timeout_s)

    def close(self) -> None:
        """Stops listening; does not wait for clients that are still reading."""
        self._is_closing.set()
        self._thread.join(REQUEST_S)

    def _run(self) -> None:
        while not self._is_closing.is_set():
            try:
                self._http = _HttpServer((self.host, self._port), self._answer, self.token)
            except OSError as error:
                if not self.trouble:
                    self.trouble = self._why_not(error)
                    log.warning("%s", self.trouble)
                self._is_closing.wait(RETRY_S)
            else:
                self.trouble = ""
                self._is_serving.set()
                with self._http:
                    while not self._is_closing.is_set():
                        self._http.handle_request()  # or nothing, after POLL_S
                return

    def _why_not(self, error: OSError) -> str:
        return (
            f"Metrics for Prometheus cannot be served on {self.host}:{self._port} ({error.strerror}). "
            f"It is tried again every {RETRY_S:.0f} s; stop what uses the port, or choose another port."
        )

    def _answer(self, path: str, accept: str) -> Answer:
        """The response to a request; its health names the process, so that others know whose port it is."""
        if path == HEALTHY_PATH:
            return HTTPStatus.OK, _health_text(os.getpid()).encode(), PLAIN
        return answer(self.state, path, accept)


def answer(state: LiveState, path: str, accept: str) -> Answer:
    """The response to a GET request with the token, or without one where none is needed."""
    if path == METRICS_PATH:
        body, content_type = render(state, accept)
        return HTTPStatus.OK, body, content_type
    if path == HEALTHY_PATH:
        return HTTPStatus.OK, b"ok\n", PLAIN
    if path == READY_PATH:
        if state.has_figures:
            return HTTPStatus.OK, b"ok\n", PLAIN
        return HTTPStatus.SERVICE_UNAVAILABLE, b"no figures yet\n", PLAIN
    return HTTPStatus.NOT_FOUND, f"There is only {METRICS_PATH} here.\n".encode(), PLAIN


def _health_text(pid: int) -> str:
    return f"ok (process {pid})\n"


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 32
    timeout = POLL_S

    def __init__(
        self, address: tuple[str, int], answer: Callable[[str, str], Answer], token: str | None
    ) -> None:
        self.answer, self.token = answer, token
        self._connections: dict[socket.socket, None] = {}
        """The open connections, the oldest first."""
        self._connections_lock = threading.Lock()
        self.address_family = _family_of(address[0])
        super().__init__(address, _RequestHandler)

    def server_bind(self) -> None:
        """Binds without looking up the host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handles a connection in a thread of its own; closes the oldest where too many are open."""
        with self._connections_lock:
            self._connections[request] = None
            if len(self._connections) > MAX_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection."""
        with self._connections_lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports nothing: a client that is gone or slow is its own trouble."""


class _RequestHandler(BaseHTTPRequestHandler):
    server: _HttpServer
    server_version, sys_version = "stepscope", ""
    timeout = REQUEST_S

    def do_GET(self) -> None:
        """Answers a request."""
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        """Answers with the headers alone."""
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        accept = self.headers.get("Accept", "")
        if self.server.token is None and not self._names_loopback():
            # A page of the web may give its own name to this machine, and would read the figures.
            text = b"The Host of a request must be localhost or a loopback address.\n"
            status, body, content_type = HTTPStatus.FORBIDDEN, text, PLAIN
        elif path not in {HEALTHY_PATH, READY_PATH} and not self._has_token():
            text = b"This needs the token, as `Authorization: Bearer TOKEN`.\n"
            status, body, content_type = HTTPStatus.UNAUTHORIZED, text, PLAIN
        else:
            status, body, content_type = self.server.answer(path, accept)
        self.send_response_only(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _names_loopback(self) -> bool:
        host = self.headers.get("Host", HOST)
        return _is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host)

    def _has_token(self) -> bool:
        if self.server.token is None:
            return True
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        received = token.strip().encode("utf-8", "surrogateescape")
        return kind.lower() == "bearer" and hmac.compare_digest(received, self.server.token.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Logs nothing: there is a request every few seconds."""


_shared: dict[tuple[str, int], tuple[MetricsServer, int]] = {}
"""The servers of this process by address, and how many use each."""
_shared_lock = threading.Lock()


def share_server(host: str, port: int, token: str | None) -> MetricsServer:
    """The server of an address: a new one, or the one that another run of this process uses already."""
    with _shared_lock:
        server, users = _shared.get((host, port)) or (MetricsServer(LiveState(), host, port, token), 0)
        if server.token != token:
            raise ConfigError(
                f"Another run already has metrics for Prometheus on port {port}, with another token. "
                "Give both the same exporters.prometheus.token_file, or this one another port."
            )
        if port:
            _shared[host, port] = (server, users + 1)
        return server


def release_server(server: MetricsServer, host: str, port: int) -> None:
    """Closes a server when its last user has released it."""
    with _shared_lock:
        shared, users = _shared.get((host, port), (server, 1))
        if shared is server and users > 1:
            _shared[host, port] = (server, users - 1)
            return
        _shared.pop((host, port), None)
    server.close()


def token_for(host: str, token_file: Path | None) -> str | None:
    """The token that clients need; raises ConfigError where other machines could read without one."""
    if token_file is None:
        if not _is_loopback(host):
            raise ConfigError(
                f"exporters.prometheus.host is {host!r}, which is not a loopback address such as {HOST}: "
                "other machines need a token. Set exporters.prometheus.token_file to a file with one line."
            )
        return None
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"exporters.prometheus.token_file is {token_file}: {reason}.") from error
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isprintable():
        raise ConfigError(
            f"{token_file} has no valid token; it must be one line of at least {MIN_TOKEN_CHARACTERS} "
            "characters."
        )
    return token


def port_trouble(host: str, port: int, own_pid: int | None) -> str | None:
    """Why metrics cannot be served on a port now, and what to do; None where nothing is in the way.

    `own_pid` is the process that may have the port already, as the agent of an earlier run does.
    """
    try:
        client_library()
    except StepscopeError as error:
        return str(error)
    if not port:
        return None
    try:
        with socket.socket(_family_of(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return f"Metrics for Prometheus cannot be served on {host}:{port} ({error.strerror})."
    else:
        return None
    if own_pid is not None and _health(host, port).endswith(_health_text(own_pid)):
        return None
    return (
        f"Port {port} is used by another program. Metrics for Prometheus are served there as soon as it is "
        "free; or choose another port with --prometheus-port."
    )


def _health(host: str, port: int) -> str:
    """What a server says about its health; empty where it does not answer like one of ours."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0) as connection:
        connection.sendall(f"GET {HEALTHY_PATH} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode("utf-8", "replace")
    return ""


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
