"""The server of metrics answers, keeps others out, and waits for nobody."""

from __future__ import annotations

import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message

import pytest

from stepscope.errors import ConfigError, MissingExtra
from stepscope.prometheus import metrics_server
from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.metrics_server import (
    HOST,
    MAX_CONNECTIONS,
    MetricsServer,
    port_trouble,
    release_server,
    share_server,
    token_for,
)
from tests.prometheus.made import OPENMETRICS, full_state, samples_of

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def serve() -> Iterator[Callable[..., MetricsServer]]:
    """Starts servers on free ports."""
    servers: list[MetricsServer] = []

    def start(state: LiveState | None = None, **options: object) -> MetricsServer:
        servers.append(MetricsServer(state or full_state(), **{"port": 0, **options}))
        assert servers[-1].wait_until_serving(60.0)
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def ask(server: MetricsServer, path: str = "/metrics", **headers: str) -> tuple[int, str, Message]:
    """The status, the text and the headers of a response."""
    request = urllib.request.Request(f"http://{HOST}:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_the_format_is_the_one_that_the_client_asks_for(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    status, text, headers = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "training_loss" in samples_of(text)
    _, text, headers = ask(server, Accept=OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert "_created" not in text


def test_it_is_healthy_at_once_and_ready_when_it_has_figures(serve: Callable[..., MetricsServer]) -> None:
    empty, full = serve(LiveState()), serve()
    assert ask(empty, "/-/healthy")[0] == 200
    assert ask(empty, "/-/ready")[:2] == (503, "no figures yet\n")
    assert ask(full, "/-/ready")[0] == 200
    assert ask(full, "/elsewhere")[0] == 404


def test_metrics_need_the_token_and_health_does_not(serve: Callable[..., MetricsServer]) -> None:
    server = serve(token=TOKEN)
    status, text, headers = ask(server)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "training_loss" not in text
    for wrong in (
        f"Basic {TOKEN}",
        "Bearer ",
        f"Bearer {TOKEN}x",
        "Bearer \udcff".encode("utf-8", "replace").decode(),
    ):
        assert ask(server, Authorization=wrong)[0] == 401
    assert ask(server, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(server, "/-/healthy")[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::1]", "localhost:80", "127.0.0.1:80", "[::1]:80"]
)
def test_without_a_token_the_names_of_this_machine_are_answered(
    host: str, serve: Callable[..., MetricsServer]
) -> None:
    assert ask(serve(), Host=host)[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:80", "localhost.evil.test", "0.0.0.0", "", "::ffff"]
)
def test_a_page_that_gives_its_own_name_to_this_machine_reads_nothing(
    host: str, serve: Callable[..., MetricsServer]
) -> None:
    for path in ("/metrics", "/-/healthy"):
        status, text, _ = ask(serve(), path, Host=host)
        assert (status, "Host" in text) == (403, True)
    assert ask(serve(token=TOKEN), Host=host, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_the_server_does_not_name_its_software(serve: Callable[..., MetricsServer]) -> None:
    assert ask(serve())[2]["Server"] is None


def test_clients_that_never_ask_or_never_read_hold_up_nobody(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    stuck = []
    for number in range(2 * MAX_CONNECTIONS):
        connection = socket.create_connection((HOST, server.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        if number % 2:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        stuck.append(connection)
    try:
        assert ask(server)[0] == 200
        # Rows are taken meanwhile: no scrape holds the lock while it writes.
        taken = threading.Thread(target=lambda: server.state.lock.acquire() and server.state.lock.release())
        taken.start()
        taken.join(60)
        assert not taken.is_alive()
    finally:
        for connection in stuck:
            connection.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_it_also_listens_on_an_address_of_ipv6(serve: Callable[..., MetricsServer]) -> None:
    server = serve(host="::1")
    with urllib.request.urlopen(f"http://[::1]:{server.port}/metrics", timeout=60) as response:
        assert response.status == 200
    assert port_trouble("::1", server.port, os.getpid()) is None
    assert port_trouble("::1", server.port, None) is not None


def test_a_request_that_is_not_http_harms_nothing(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    with socket.create_connection((HOST, server.port)) as connection:
        connection.sendall(b"\x16\x03\x01\xff\xff nonsense\r\n\r\n")
        assert b"400" in connection.recv(1000)
    with socket.create_connection((HOST, server.port)) as connection:
        connection.sendall(b"POST /metrics HTTP/1.1\r\n\r\n")
        assert b"501" in connection.recv(1000)
    assert ask(server)[0] == 200


def test_a_port_that_is_taken_is_reported_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "RETRY_S", 0.01)
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        server = MetricsServer(full_state(), port=port)
        assert not server.wait_until_serving(0.2)
        trouble = port_trouble(HOST, port, None)
    try:
        assert server.wait_until_serving(60.0)
        assert ask(server)[0] == 200
        assert caplog.text.count(f"cannot be served on {HOST}:{port}") == 1
        assert trouble is not None
        assert f"Port {port} is used by another program" in trouble
    finally:
        server.close()


def test_the_port_of_an_own_agent_is_not_in_the_way(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    assert port_trouble(HOST, server.port, os.getpid()) is None
    assert port_trouble(HOST, server.port, os.getpid() + 1) is not None


def test_an_address_of_another_machine_is_named_with_the_reason() -> None:
    trouble = port_trouble("192.0.2.1", 9787, None)  # an address for examples, which no machine has
    assert (
        trouble
        == "Metrics for Prometheus cannot be served on 192.0.2.1:9787 (Cannot assign requested address)."
    )


def test_runs_with_one_port_share_a_server_until_the_last_has_ended() -> None:
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    first, second = share_server(HOST, port, None), share_server(HOST, port, None)
    assert first is second
    with pytest.raises(ConfigError, match="with another token"):
        share_server(HOST, port, TOKEN)
    release_server(first, HOST, port)
    assert first.wait_until_serving(60.0)
    assert ask(first)[0] == 200
    release_server(second, HOST, port)
    with pytest.raises(urllib.error.URLError):
        ask(first)


def test_other_machines_need_a_token_that_nobody_guesses(tmp_path) -> None:
    assert token_for("localhost", None) is None
    assert token_for("::1", None) is None
    for host in ("0.0.0.0", "node1.example", "::"):
        with pytest.raises(ConfigError, match="token_file"):
            token_for(host, None)
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="No such file"):
        token_for("0.0.0.0", file)
    file.write_text("short\n")
    with pytest.raises(ConfigError, match="at least 16 characters"):
        token_for("0.0.0.0", file)
    file.write_text(f"{TOKEN}\n")
    assert token_for("0.0.0.0", file) == TOKEN


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stepscope\[prometheus\]'"):
        MetricsServer(LiveState(), port=0)
    assert "pip install 'stepscope[prometheus]'" in str(port_trouble(HOST, 0, None))


@pytest.fixture(autouse=True)
def propagated_log() -> None:
    """The agent's log may have been sent to a file by an agent in this process."""
    logging.getLogger("stepscope.agent").propagate = True
