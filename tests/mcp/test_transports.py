"""The server answers over stdio and HTTP, several clients at once, whatever happens to the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from stepscope.mcp.http_server import create_app
from stepscope.mcp.server import create_server
from stepscope.mcp.watched_store import WatchedStore
from stepscope.schema.record import Event
from stepscope.store.sqlite import SqliteStore
from tests.golden.fixed_store import fill
from tests.mcp.asking import answer_of, client_of, content_of, error_of, stdio_server, text_of
from tests.web.asking import TOKEN, options

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


def test_a_store_that_is_not_there_yet_has_no_runs_until_one_is_recorded(folder: Path) -> None:
    async def ask() -> tuple:
        async with client_of(folder) as client:
            empty = await client.call_tool("list_runs", {})
            unknown = await client.call_tool("explain_run", {})
            fill(folder)
            return empty, unknown, await client.call_tool("explain_run", {})

    empty, unknown, explained = asyncio.run(ask())
    assert "has no run yet" in content_of(empty)["store"]
    assert unknown.is_error
    assert "stepscope demo" in text_of(unknown)
    assert content_of(explained)["run"]["run"] == "trained"


def test_a_store_that_is_deleted_while_it_is_served_has_no_runs(folder: Path) -> None:
    fill(folder)

    async def ask() -> tuple:
        async with client_of(folder) as client:
            before = await client.call_tool("list_runs", {})
            shutil.rmtree(folder)
            return before, await client.call_tool("list_runs", {}), await client.call_tool("explain_run", {})

    before, after, explained = asyncio.run(ask())
    assert content_of(before)["matching"] == 2
    assert content_of(after)["matching"] == 0
    assert explained.is_error


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


def status_of(folder: Path, headers: dict[str, str], **given) -> tuple[int, str]:
    async def ask():
        async with served(folder, **given) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            accept = {"Accept": "application/json, text/event-stream"}
            response = await http.post("/mcp", json=body, headers={**accept, **headers})
            return response.status_code, response.text

    return asyncio.run(ask())


def test_over_http_the_token_of_the_page_is_needed(folder: Path) -> None:
    fill(folder)
    assert (
        ask_over_http(folder, {"Authorization": f"Bearer {TOKEN}"})["finding"]["id"] == "input.exposed_wait"
    )
    assert status_of(folder, {})[0] == 401
    assert status_of(folder, {"Authorization": "Bearer wrong"})[0] == 401


def test_over_http_another_host_name_and_another_origin_are_refused(folder: Path) -> None:
    fill(folder)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert status_of(folder, {**bearer, "Host": "evil.test"})[0] == 403
    assert status_of(folder, {**bearer, "Origin": "http://evil.test"})[0] == 403
    assert status_of(folder, {**bearer, "Host": "gpu1.lab"}, allowed_hosts=("gpu1.lab",))[0] != 403


def test_without_a_token_a_web_page_cannot_ask_and_a_client_says_that_it_is_none(folder: Path) -> None:
    fill(folder)
    assert ask_over_http(folder, {"X-Stepscope": "1"}, token=None)["finding"]["id"] == "input.exposed_wait"
    assert status_of(folder, {}, token=None)[0] == 403


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
