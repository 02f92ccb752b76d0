"""The server answers over stdio and HTTP, several clients at once, whatever happens to the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from stepscope.cli.main import main
from stepscope.mcp.http_server import create_app
from stepscope.mcp.server import create_server
from stepscope.mcp.watched_store import WatchedStore
from stepscope.schema.record import Event
from stepscope.store.sqlite import SqliteStore
from tests.golden.fixed_store import fill
from tests.mcp.asking import answer_of, client_of, content_of, error_of, stdio_server, text_of
from tests.web.asking import FROM_THE_PAGE, TOKEN, options

TRAINING = """
import sys
import stepscope
with stepscope.TrainingMonitor(run="live") as monitor:
    for step in range(400):
        monitor.log_training_step(loss=1 / (step + 1))
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_run_that_is_being_recorded_by_an_agent_is_read_up_to_its_last_step(start, folder: Path) -> None:
    training = start(TRAINING, stdin=subprocess.PIPE)
    assert training.stdout.readline() == "ready\n"

    async def ask() -> list[dict]:
        async with Client(stdio_server(folder)) as first, Client(stdio_server(folder)) as second:
            calls = (
                ("list_runs", {}),
                ("explain_run", {}),
                ("read_series", {"keys": ["loss"], "buckets": 1}),
            )
            both = await asyncio.gather(
                *(
                    client.call_tool(tool, arguments)
                    for client in (first, second)
                    for tool, arguments in calls
                )
            )
            return [content_of(result) for result in both]

    listed, explained, series, *others = asyncio.run(ask())
    (row,) = listed["runs"]
    assert (row["run"], row["status"], row["step"]) == ("live", "running", 399)
    assert explained["run"]["status"] == "running"
    assert series["series"][0]["points"] == 400
    assert others[2] == series
    training.communicate("\n", timeout=120)
    assert answer_of(folder, "list_runs")["runs"][0]["status"] == "finished"


def test_tools_say_that_there_is_no_store_until_a_run_is_recorded(folder: Path) -> None:
    async def ask() -> tuple:
        async with client_of(folder) as client:
            empty = await client.call_tool("list_runs", {})
            unknown = await client.call_tool("explain_run", {})
            fill(folder)
            return empty, unknown, await client.call_tool("explain_run", {})

    empty, unknown, explained = asyncio.run(ask())
    for result in (empty, unknown):
        assert result.is_error
        assert f"There is no store at {folder}" in text_of(result)
    assert content_of(explained)["run"]["run"] == "trained"


def test_a_store_that_is_deleted_while_it_is_served_is_missing_and_not_empty(folder: Path) -> None:
    fill(folder)

    async def ask() -> tuple:
        async with client_of(folder) as client:
            before = await client.call_tool("list_runs", {})
            shutil.rmtree(folder)
            return before, await client.call_tool("list_runs", {}), await client.call_tool("explain_run", {})

    before, after, explained = asyncio.run(ask())
    assert content_of(before)["matching"] == 2
    for result in (after, explained):
        assert result.is_error
        assert f"There is no store at {folder}" in text_of(result)


def test_a_store_without_runs_is_an_empty_one(folder: Path) -> None:
    folder.mkdir()
    SqliteStore(folder / "store.sqlite").close()
    assert "has no run yet" in answer_of(folder, "list_runs")["store"]
    assert "stepscope demo" in error_of(folder, "explain_run")


@pytest.mark.parametrize("damage", [b"not a database at all", b""])
def test_a_damaged_store_is_an_error_that_says_so(damage: bytes, folder: Path) -> None:
    fill(folder)
    (folder / "store.sqlite").write_bytes(damage * 1000)
    for suffix in ("-wal", "-shm"):
        (folder / f"store.sqlite{suffix}").unlink(missing_ok=True)
    if damage:
        assert "store" in error_of(folder, "explain_run")
    else:
        error_of(folder, "explain_run")


def test_a_store_is_read_while_a_transaction_is_open(folder: Path) -> None:
    fill(folder)
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        store.put_event("trained-5a1ad000", Event("x", 1, 0, 0, "a1", {}))
        assert answer_of(folder, "explain_run")["finding"]["id"] == "input.exposed_wait"
    store.close()


@contextlib.asynccontextmanager
async def served(folder: Path, **given):
    """An HTTP client of the application, without a socket."""
    settings = options(folder, **given)
    store = WatchedStore(settings)
    app = create_app(create_server(store, allows_writes=False), store.state)
    events: asyncio.Queue = asyncio.Queue()
    started, ended = asyncio.Event(), asyncio.Event()

    async def send(message) -> None:
        (started if "startup" in message["type"] else ended).set()

    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, events.get, send))
    await events.put({"type": "lifespan.startup"})
    await started.wait()
    try:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1"
        ) as http:
            yield http
    finally:
        await events.put({"type": "lifespan.shutdown"})
        await life
        store.close()


def ask_over_http(folder: Path, headers: dict[str, str], **given):
    async def ask():
        async with served(folder, **given) as http:
            http.headers.update(headers)
            transport = streamable_http_client("http://127.0.0.1/mcp", http_client=http)
            async with Client(transport) as client:
                return content_of(await client.call_tool("explain_run", {}))

    return asyncio.run(ask())


def response_to(folder: Path, headers: dict[str, str], method: str = "POST", path: str = "/mcp", **given):
    async def ask():
        async with served(folder, **given) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            accept = {"Accept": "application/json, text/event-stream"}
            content = {"json": body} if method == "POST" else {}
            return await http.request(method, path, headers={**accept, **headers}, **content)

    return asyncio.run(asyncio.wait_for(ask(), 60))


def status_of(folder: Path, headers: dict[str, str], **given) -> int:
    return response_to(folder, headers, **given).status_code


def test_over_http_the_token_of_the_page_is_needed(folder: Path) -> None:
    fill(folder)
    assert (
        ask_over_http(folder, {"Authorization": f"Bearer {TOKEN}"})["finding"]["id"] == "input.exposed_wait"
    )
    assert status_of(folder, {}) == 401
    assert status_of(folder, {"Authorization": "Bearer wrong"}) == 401


def test_over_http_another_host_name_and_another_origin_are_refused(folder: Path) -> None:
    fill(folder)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert status_of(folder, {**bearer, "Host": "evil.test"}) == 403
    assert status_of(folder, {**bearer, "Origin": "http://evil.test"}) == 403
    assert status_of(folder, {**bearer, "Host": "gpu1.lab"}, allowed_hosts=("gpu1.lab",)) != 403


def test_without_a_token_a_web_page_cannot_ask_and_a_client_says_that_it_is_none(folder: Path) -> None:
    fill(folder)
    assert ask_over_http(folder, {"X-Stepscope": "1"}, token=None)["finding"]["id"] == "input.exposed_wait"
    for method in ("POST", "GET", "HEAD", "OPTIONS", "DELETE"):
        response = response_to(folder, {}, method, token=None)
        assert response.status_code == 403, method
        assert method == "HEAD" or "X-Stepscope: 1" in response.json()["error"]["message"]
        for foreign in ({"Origin": "http://evil.test"}, {"Sec-Fetch-Site": "cross-site"}):
            assert status_of(folder, {"X-Stepscope": "1", **foreign}, method=method, token=None) == 403


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp?token=wrong", "/login"])
def test_without_the_token_a_client_learns_in_json_which_header_it_must_send(
    method: str, path: str, folder: Path
) -> None:
    fill(folder)
    response = response_to(folder, {}, method, path)
    assert response.status_code == 401
    assert "Authorization: Bearer TOKEN" in response.json()["error"]["message"]
    assert "stepscope serve" not in response.text


def test_the_cookie_of_the_page_is_not_accepted_in_place_of_the_token(folder: Path) -> None:
    fill(folder)
    assert status_of(folder, FROM_THE_PAGE) == 401


@pytest.fixture
def http_process(folder: Path) -> Iterator[Callable[..., tuple[subprocess.Popen, str]]]:
    """Starts `stepscope mcp --http` and returns the process with its address."""
    started: list[subprocess.Popen] = []

    def start_server(*arguments: str) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-m", "stepscope", "mcp", "--http", "--port", "0", "--store", str(folder)]
        process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        started.append(process)
        return process, process.stdout.readline().split()[1]

    yield start_server
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_command_serves_over_http_until_it_is_stopped(http_process, folder: Path) -> None:
    fill(folder)
    process, address = http_process()
    token = (folder / "server.token").read_text().strip()

    async def ask():
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            first, second = (streamable_http_client(address, http_client=http) for _ in range(2))
            async with Client(first) as one, Client(second) as other:
                return await asyncio.gather(
                    one.call_tool("list_runs", {}), other.call_tool("explain_run", {})
                )

    listed, explained = asyncio.run(ask())
    assert content_of(listed)["matching"] == 2
    assert content_of(explained)["run"]["run"] == "trained"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


LIMITED_SERVER = """
import sys
from pathlib import Path
from stepscope.mcp.http_server import serve
from stepscope.web.server.options import Limits, ServerOptions

limits = Limits(head_seconds=float(sys.argv[2]))
options = ServerOptions(folder=Path(sys.argv[1]), port=0, token=sys.argv[3], limits=limits)
serve(options, lambda address: print(address, flush=True), allows_writes=False, exactly=True)
"""
HALF_OPEN = ("", "POST /mcp HTTP/1.1\r\nHost: 127")


def limited_server(start, folder: Path, head_seconds: float = 10.0) -> httpx2.URL:
    """The address of a server in a process of its own."""
    fill(folder)
    process = start(LIMITED_SERVER, folder, head_seconds, TOKEN)
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return httpx2.URL(line.strip())


def connect(address: httpx2.URL, sent: str) -> socket.socket:
    connection = socket.create_connection((address.host, address.port), timeout=60)
    with contextlib.suppress(ConnectionError):
        connection.sendall(sent.encode())
    return connection


@pytest.mark.slow
def test_a_client_is_answered_beside_hundreds_of_connections_without_a_whole_request(
    start, folder: Path
) -> None:
    address = limited_server(start, folder)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    with contextlib.ExitStack() as stack:
        for number in range(350):
            stack.enter_context(connect(address, HALF_OPEN[number % 2]))
            if number % 50 == 0 or number > 345:
                response = httpx2.post(address, json=body, headers=headers, timeout=60)
                assert response.status_code == 200, response.text


@pytest.mark.slow
@pytest.mark.parametrize("sent", HALF_OPEN, ids=["nothing", "half of the head"])
def test_a_connection_without_a_whole_request_is_closed(sent: str, start, folder: Path) -> None:
    with connect(limited_server(start, folder, head_seconds=0.3), sent) as connection:
        assert connection.recv(1000) == b""


@pytest.mark.slow
@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 413)])
def test_a_body_that_is_too_large_is_answered_with_an_error(
    headers: dict[str, str], status: int, start, folder: Path
) -> None:
    address = limited_server(start, folder)
    for _ in range(3):
        response = httpx2.post(address, content=b" " * 9_000_000, headers=headers, timeout=60)
        assert response.status_code == status
        assert response.json()["error"]["message"]


def run_command(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepscope", "mcp", "--store", str(folder), *options]
    return subprocess.run(command, input="", capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_over_http_a_folder_that_is_not_there_is_not_created(folder: Path) -> None:
    done = run_command(folder, "--http", "--port", "0")
    assert done.returncode == 1
    assert f"There is no folder {folder}" in done.stderr
    assert not folder.exists()


@pytest.mark.slow
def test_over_http_a_folder_without_a_store_is_served_with_a_notice(http_process, folder: Path) -> None:
    folder.mkdir()
    process, address = http_process()
    assert address.endswith("/mcp")
    assert process.poll() is None


@pytest.mark.parametrize("option", ["--no-token", "--behind-proxy", "--port=0", "--allow-host=gpu1.lab"])
def test_an_option_of_the_http_server_without_it_is_an_error(option: str, capsys, folder: Path) -> None:
    with pytest.raises(SystemExit):
        main(["mcp", "--store", str(folder), option])
    assert f"{option.partition('=')[0]} needs --http" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_server_on_standard_input_ends_when_it_is_interrupted(ending: int, folder: Path) -> None:
    fill(folder)
    command = [sys.executable, "-m", "stepscope", "mcp", "--store", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        process.stdin.write(f"{json.dumps(request)}\n")
        process.stdin.flush()
        assert '"id":1' in process.stdout.readline()
        process.send_signal(ending)
        assert process.wait(timeout=60) == -ending


@pytest.mark.slow
def test_the_server_on_standard_input_ends_when_its_client_closes_it(folder: Path) -> None:
    command = [sys.executable, "-m", "stepscope", "mcp", "--store", str(folder)]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "There is no store" in done.stderr
    assert not folder.exists()
