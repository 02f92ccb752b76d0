"""A web server on the loopback interface that keeps what it was sent and gives the answers of the test."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Request:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What a server received, and what it answers; the last answer holds for all that follow."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """Answers with a status, headers and a body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@contextlib.contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A server for as long as the block runs."""
    received = Receiver(answers=[status(200, b"ok")])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append(Request(self.path, dict(self.headers), body))
            answer = received.answers[0] if len(received.answers) == 1 else received.answers.pop(0)
            with contextlib.suppress(OSError):  # who asked may have left
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
