"""An HTTP server that receives notices, for tests of what is sent to people."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """An HTTP server that keeps what it is sent; `status` is what it answers."""

    def __init__(self) -> None:
        self.notices: list[dict] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    receiver.notices.append(json.loads(body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def rules(self, kind: str = "firing") -> list[str]:
        """The rules in the received notices, in order."""
        return [
            alert["rule"] for notice in self.notices if notice["kind"] == kind for alert in notice["alerts"]
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
