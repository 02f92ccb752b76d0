"""Clients that connect and then send or read too little do not block others."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.cases import few
from tests.web.asking import API, BEARER, RUN, TOKEN, append, rich_store, times

SERVER = """
import json, resource, sys
from pathlib import Path
from stepscope.web.server.options import Limits, ServerOptions
from stepscope.web.server.serving import serve

options = json.loads(sys.argv[2])
files = options.pop("files", None)
if files is not None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
for name in ("tls_certificate", "tls_key"):
    if name in options:
        options[name] = Path(options[name])
limits = Limits(**options.pop("limits", {}))
serve(
    ServerOptions(folder=Path(sys.argv[1]), port=0, limits=limits, **options),
    None, lambda address: print(address, flush=True), exactly=True,
)
"""

HOME = "Host: 127.0.0.1\r\n"
AS_OWNER = f"Authorization: {BEARER['Authorization']}\r\n"
MARKS = f"{API}/runs/{RUN}/marks"

HALF_OPEN = {
    "nothing": "",
    "half of the request line": "GET /api/v1/he",
    "half of the headers": f"GET {API}/health HTTP/1.1\r\n{HOME}X-Long: {'a' * 10_000}",
    "half of a stranger's body": f"PUT {MARKS} HTTP/1.1\r\n{HOME}Content-Length: 1000\r\n\r\n{{",
    "half of a body": (
        f"PUT {MARKS} HTTP/1.1\r\n{HOME}{AS_OWNER}Content-Type: application/json\r\n"
        "Content-Length: 1000\r\n\r\n{"
    ),
    "a whole request and no more": f"GET {API}/health HTTP/1.1\r\n{HOME}\r\n",
    "a body that a GET does not have": f"GET {API}/health HTTP/1.1\r\n{HOME}Content-Length: 1000\r\n\r\n{{",
}
STREAM = f"GET {API}/stream HTTP/1.1\r\n{HOME}{AS_OWNER}\r\n"


class Crowd:
    """Connections to one server, closed at the end of a test."""

    def __init__(self, address: httpx.URL, stack: contextlib.ExitStack) -> None:
        self._address, self._stack = (address.host, address.port), stack

    def join(self, sent: str = "") -> socket.socket:
        made = self._stack.enter_context(socket.create_connection(self._address, timeout=30))
        with contextlib.suppress(ConnectionError):  # it may be closed before it has said a word
            made.sendall(sent.encode())
        return made


class Server:
    def __init__(self, process, stack: contextlib.ExitStack) -> None:
        self.process = process
        line = process.stdout.readline()
        assert line, process.stderr.read()
        self.url = httpx.URL(line.strip())
        self.crowd = Crowd(self.url, stack)

    def client(self, **options) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=BEARER, timeout=30, **options)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture
def serve(folder: Path, start) -> Iterator[Callable[..., Server]]:
    """Starts a server with limits of the test's own as a real process."""
    rich_store(folder).close()
    with contextlib.ExitStack() as stack:
        yield lambda **options: Server(start(SERVER, folder, json.dumps({"token": TOKEN, **options})), stack)


def is_closed(connection: socket.socket, wait_ms: int = 0) -> bool:
    """Whether the server has closed it; what it sent is not read, so that nothing moves on by that."""
    watched = select.poll()
    watched.register(connection, select.POLLRDHUP)
    return bool(watched.poll(wait_ms))


def assert_owner_is_served(server: Server) -> None:
    """A new connection, the page and the API, as a person opens them."""
    with server.client() as client:
        assert client.get("/").status_code == 200
        assert client.get(f"{API}/runs").json()["total"] == 1


@pytest.mark.slow
def test_the_owner_is_served_while_more_than_five_hundred_connections_are_half_open(serve) -> None:
    server = serve()
    kinds = [*HALF_OPEN.values(), STREAM]
    others = [server.crowd.join(kinds[number % len(kinds)]) for number in range(520)]
    assert_owner_is_served(server)
    # They are not all gone: there was room beside them.
    assert sum(not is_closed(other) for other in others) > 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*HALF_OPEN, "a stream that is not read"])
@pytest.mark.parametrize("token", [TOKEN, None], ids=["token", "no token"])
def test_the_owner_is_served_beside_a_thousand_half_open_connections(serve, kind: str, token) -> None:
    server = serve(token=token)
    for number in range(1000):
        server.crowd.join(HALF_OPEN.get(kind, STREAM))
        if number % 250 == 0:
            assert_owner_is_served(server)
    assert_owner_is_served(server)
    assert server.descriptors() < 700


QUICK = {"head_seconds": 0.3, "keep_alive_seconds": 1, "body_seconds": 0.3, "stuck_seconds": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("kind", few(HALF_OPEN, 2))
def test_a_half_open_connection_is_closed_by_the_server(serve, kind: str) -> None:
    server = serve(limits=QUICK)
    assert is_closed(server.crowd.join(HALF_OPEN[kind]), wait_ms=30_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin", ["GET /a HTTP/1.1\r\nX-A: ", HALF_OPEN["a body that a GET does not have"]], ids=["head", "body"]
)
def test_a_request_that_arrives_a_byte_at_a_time_is_not_waited_for(serve, begin: str) -> None:
    connection = serve(limits=QUICK).crowd.join(begin)
    for _ in range(600):
        if is_closed(connection, wait_ms=50):
            return
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"a")
    pytest.fail("the server went on waiting")


@pytest.mark.slow
def test_a_client_that_does_not_read_its_responses_is_disconnected(serve) -> None:
    server = serve(limits=QUICK)
    request = f"GET {API}/runs/{RUN}/series?keys=loss&buckets=4000 HTTP/1.1\r\n{HOME}{AS_OWNER}\r\n"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((server.url.host, server.url.port))
        slow.sendall(request.encode() * 400)
        assert is_closed(slow, wait_ms=60_000)
    assert_owner_is_served(server)


def test_the_connections_of_an_address_are_bounded_and_the_oldest_idle_ones_go_first(serve, until) -> None:
    crowd = serve(limits={"connections_per_address": 5}).crowd
    first = [crowd.join() for _ in range(5)]
    later = [crowd.join() for _ in range(3)]
    until(lambda: all(map(is_closed, first[:3])))
    assert not any(map(is_closed, [*first[3:], *later]))


@pytest.mark.slow
def test_all_connections_together_are_bounded(serve, until) -> None:
    crowd = serve(limits={"connections": 5}, behind_proxy=True).crowd
    first = [crowd.join() for _ in range(8)]
    until(lambda: all(map(is_closed, first[:3])))
    assert not any(map(is_closed, first[3:]))


@pytest.mark.slow
def test_live_streams_and_clients_with_the_token_stay_connected_at_the_limit(serve, folder) -> None:
    store = rich_store(folder)
    server = serve(limits={"connections_per_address": 8})
    with (
        server.client() as watching,
        server.client() as known,
        watching.stream("GET", f"{API}/stream?run={RUN}&keys=live") as stream,
    ):
        lines = stream.iter_lines()
        assert next(line for line in lines if line == "event: hello")
        opened = []

        def note(event: str, _: object) -> None:
            if event == "connection.connect_tcp.started":
                opened.append(event)

        asked = {"extensions": {"trace": note}}
        assert known.get(f"{API}/meta", **asked).status_code == 200
        for _ in range(100):
            server.crowd.join("GET /")
            server.crowd.join(HALF_OPEN["a whole request and no more"])
        assert_owner_is_served(server)
        assert known.get(f"{API}/meta", **asked).status_code == 200
        assert len(opened) == 1  # on the connection it had
        append(store, {"live": [1.0]}, [1], times(1, 2000))
        assert next(line for line in lines if line == "event: points")
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("files", [64, 150])
def test_a_server_that_may_open_few_files_continues_accepting(serve, files: int, until) -> None:
    server = serve(files=files)
    for number in range(300):
        server.crowd.join(list(HALF_OPEN.values())[number % 3])

    def is_owner_served() -> bool:
        with contextlib.suppress(httpx.TransportError), server.client() as client:
            return client.get(f"{API}/runs").status_code == 200
        return False

    until(is_owner_served)
    assert server.descriptors() <= files
    assert server.process.poll() is None


@pytest.mark.slow
def test_endless_tls_handshakes_do_not_block_other_clients(serve, tmp_path, until) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = {"tls_certificate": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
    server = serve(limits={"connections_per_address": 5}, **tls)
    silent = [server.crowd.join() for _ in range(40)]
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with server.client(verify=trusted) as client:
        assert client.get(f"{API}/runs").json()["total"] == 1
    until(lambda: sum(map(is_closed, silent)) >= 35)
    # One that leaves in the middle is no failure of the server's.
    silent[-1].close()
    with server.client(verify=trusted) as client:
        assert client.get(f"{API}/runs").json()["total"] == 1


@pytest.mark.slow
def test_half_open_connections_do_not_keep_a_server_from_ending(serve) -> None:
    server = serve()
    for sent in HALF_OPEN.values():
        server.crowd.join(sent)
    assert_owner_is_served(server)
    server.process.terminate()
    assert server.process.wait(30) == 0
