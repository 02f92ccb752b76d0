"""A receiver of OTLP/HTTP metrics on the loopback interface, which decodes what it gets."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Receiver:
    """Holds every request; a test sets the status of the answers, or makes them wait."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answer = ExportMetricsServiceResponse()
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                receiver.may_answer.wait(60)
                answer = receiver.answer.SerializeToString()
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Location", "http://192.0.2.1/")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def resources(self) -> list[dict[str, Any]]:
        """The attributes of every resource received, in order."""
        return [attributes(block.resource) for request in self.requests for block in request.resource_metrics]

    def metrics(self) -> dict[str, Any]:
        """The newest of each metric, by name."""
        return {
            metric.name: metric
            for request in self.requests
            for block in request.resource_metrics
            for scope in block.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Every point of a metric with its attributes, in the order received."""
        return [
            (attributes(point), point)
            for request in self.requests
            for block in request.resource_metrics
            for scope in block.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        ]


def attributes(owner: Any) -> dict[str, Any]:
    """The attributes of a resource or a point."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in owner.attributes}


def value(point: Any) -> float:
    """The value of a number point."""
    number: float = getattr(point, point.WhichOneof("value"))
    return number
