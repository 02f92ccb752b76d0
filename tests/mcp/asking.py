"""Calls tools with the official client, and makes stores for it to read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mcp_types import CallToolResult

from mcp import Client, StdioServerParameters
from stepscope.mcp.server import create_server
from stepscope.mcp.watched_store import WatchedStore
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.schema.window import RankWindow, Window
from stepscope.store.sqlite import SqliteStore
from stepscope.web.server.options import ServerOptions
from zoo import recordings, window_file

NS = 10**9
Calls = tuple[str, Mapping[str, Any]]


@contextlib.asynccontextmanager
async def client_of(folder: Path, *, allows_writes: bool = False) -> AsyncIterator[Client]:
    """A client that is connected to a server in this process."""
    store = WatchedStore(ServerOptions(folder=folder))
    try:
        async with Client(create_server(store, allows_writes=allows_writes)) as client:
            yield client
    finally:
        store.close()


def results_of(folder: Path, *calls: Calls, allows_writes: bool = False) -> list[CallToolResult]:
    """The results of several calls, one after another."""

    async def ask() -> list[CallToolResult]:
        async with client_of(folder, allows_writes=allows_writes) as client:
            return [await client.call_tool(name, dict(arguments)) for name, arguments in calls]

    return asyncio.run(ask())


def answer_of(folder: Path, tool: str, *, allows_writes: bool = False, **arguments: Any) -> dict[str, Any]:
    """The content of an answer that must not be an error."""
    (result,) = results_of(folder, (tool, arguments), allows_writes=allows_writes)
    return content_of(result)


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    return result.structured_content


def error_of(folder: Path, tool: str, *, allows_writes: bool = False, **arguments: Any) -> str:
    """The message of a call that must be an error."""
    (result,) = results_of(folder, (tool, arguments), allows_writes=allows_writes)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    (part,) = result.content
    return part.text


def stdio_server(folder: Path, *options: str) -> StdioServerParameters:
    """How a client starts the server of a store."""
    arguments = ["-m", "stepscope", "mcp", "--store", str(folder), *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


def json_of(result: CallToolResult) -> Any:
    return json.loads(text_of(result))


def recorded_fault(case: str, folder: Path) -> None:
    """Writes the recorded run of a zoo case into a store, as its agent would have."""
    window, _ = window_file.load(recordings.FOLDER / f"{case}.window")
    folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        for rank in window.ranks:
            store.put_process(_process(case, window, rank))
            _append_rank(store, case, window.segment, rank)
        for figures in window.machine:
            source = Source(case, window.segment, figures.rank, figures.host, figures.device, "seconds")
            times_ns = (figures.times * NS).astype(np.int64)
            steps = np.zeros(len(times_ns), np.int64)
            store.append(source, [figures.key], steps, times_ns, figures.values[:, None])
        for event in window.events:
            store.put_event(case, event)
    store.close()


def _process(case: str, window: Window, rank: RankWindow) -> Process:
    begin_ns, end_ns = int(rank.times[0] * NS) - NS, int(rank.times[-1] * NS)
    return Process(
        run_id=case,
        name=case,
        project="zoo",
        segment=window.segment,
        rank=rank.rank,
        host=rank.host,
        pid=100 + rank.rank,
        role="rank",
        started_ns=begin_ns,
        status="finished",
        exit_code=0,
        ended_ns=end_ns,
        last_ns=end_ns,
        facts=dict(window.facts.get(rank.rank, {})),
    )


def _append_rank(store: SqliteStore, case: str, segment: str, rank: RankWindow) -> None:
    """Rows of the keys that were recorded at the same steps."""
    columns_by_steps: dict[bytes, list[str]] = {}
    for key, column in rank.columns.items():
        columns_by_steps.setdefault(column.present.tobytes(), []).append(key)
    for keys in columns_by_steps.values():
        present = rank.columns[keys[0]].present
        values = np.array([rank.columns[key].values[present] for key in keys]).T
        times_ns = (rank.times[present] * NS).astype(np.int64)
        source = Source(case, segment, rank.rank, rank.host)
        store.append(source, keys, rank.steps[present].astype(np.int64), times_ns, values)
