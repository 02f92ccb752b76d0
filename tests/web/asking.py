"""Sends requests to a server's application without a socket, and makes example stores."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np

from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteStore
from stepscope.web.access.tokens import cookie_name, cookie_value
from stepscope.web.app import create_app
from stepscope.web.app_state import AppState
from stepscope.web.server.options import Limits, ServerOptions

TOKEN = "correct-horse-battery-staple-0123456789"
PLACE = "http://127.0.0.1:8787"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
COOKIE = {"Cookie": f"{cookie_name(TOKEN)}={cookie_value(TOKEN)}"}
FROM_THE_PAGE = {**COOKIE, "Origin": PLACE, "X-Stepscope": "1", "Sec-Fetch-Site": "same-origin"}
API = "/api/v1"

RUN = "mnist-0badcafe"
NS = 10**9
BEGUN_NS = 1_760_000_000 * NS
GENEROUS = Limits(requests_per_second=1e6, changes_per_second=1e6, strangers_per_second=1e6)


def options(folder: Path, **given) -> ServerOptions:
    return ServerOptions(**{"folder": folder, "token": TOKEN, "limits": GENEROUS, **given})


def state_and_app(folder: Path, **given):
    settings = options(folder, **given)
    state = AppState(settings)
    return state, create_app(settings, state)


def app_of(folder: Path, **given):
    return state_and_app(folder, **given)[1]


def ask(app, path: str, method: str = "GET", headers=None, **content) -> httpx.Response:
    """One request, as somebody who has the token unless the headers say otherwise."""

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PLACE) as client:
            return await client.request(
                method, path, headers=BEARER if headers is None else headers, **content
            )

    return asyncio.run(send())


def get(app, path: str, **parameters):
    """The JSON of an answer that must be fine."""
    response = ask(app, f"{API}{path}", params=parameters or None)
    assert response.status_code == 200, response.text
    return response.json()


def error_of(response: httpx.Response) -> str:
    """The message of an error, which has the one shape all errors have."""
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "id"}
    assert body["error"]["id"]
    return body["error"]["message"]


def process(segment: str = "s1", rank: int = 0, **fields) -> Process:
    known = Process(
        RUN, "mnist", "demo", segment, rank, "node1", 100 + rank, "rank", BEGUN_NS, last_ns=BEGUN_NS
    )
    return replace(known, **fields)


def times(count: int, after_s: float = 0.0, every_s: float = 0.01) -> np.ndarray:
    begin = BEGUN_NS + int(after_s * NS)
    return begin + (np.arange(1, count + 1) * int(every_s * NS)).astype(np.int64)


def append(store: SqliteStore, columns, steps=None, times_ns=None, of: Source | None = None) -> None:
    values = np.array(list(columns.values()), np.float64).T
    steps = np.arange(len(values)) if steps is None else np.asarray(steps)
    with store.transaction():
        store.append(
            of or Source(RUN, "s1", 0, "node1"),
            list(columns),
            steps.astype(np.int64),
            times(len(values)) if times_ns is None else np.asarray(times_ns, np.int64),
            values,
        )


WAITS = {
    "id": "input.exposed_wait", "key": "input.exposed_wait", "title": "Waits for data",
    "headline": "41% waits", "detail": "", "severity": "warning", "confidence": 0.9, "share": 0.4,
    "open": True, "muted": False,
    "first_step": 1, "last_step": 2, "first_time": 1.0, "last_time": 2.0, "rank": None, "device": "",
    "evidence": [], "chart": None, "ruled_out": [], "remedies": [], "tries": [], "estimate": None,
    "how": "", "refs": [],
}  # fmt: skip


def rich_store(folder: Path) -> SqliteStore:
    """A run of two ranks and two segments, the second of which repeats steps; a GPU; an alert."""
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        for rank in (0, 1):
            ended = {"status": "failed", "reason": "ValueError: no", "ended_ns": BEGUN_NS + 20 * NS}
            store.put_process(process(rank=rank, last_ns=BEGUN_NS + 10 * NS, **ended))
            later = {"started_ns": BEGUN_NS + 100 * NS, "last_ns": BEGUN_NS + 110 * NS}
            ended = {"status": "finished", "ended_ns": BEGUN_NS + 110 * NS}
            store.put_process(process("s2", rank, facts={"config": {"batch_size": 32}}, **later, **ended))
        store.put_event(RUN, Event("epoch", BEGUN_NS + NS, 100, 0, "s1", {"epoch": 1}))
        store.alert_book.fire(
            OpenAlert(
                RUN,
                "input_bound",
                "warning",
                "It waits for data.",
                BEGUN_NS + 5 * NS,
                {"rank": 0, "value": 0.4},
            )
        )
    for rank in (0, 1):
        loss = np.linspace(2, 1, 1000)
        loss[500] = np.nan
        append(
            store, {"loss": loss, "step_seconds": np.full(1000, 0.01)}, of=Source(RUN, "s1", rank, "node1")
        )
        again = np.arange(800, 1600)
        columns = {"loss": np.linspace(1.2, 0.5, 800), "step_seconds": np.full(800, 0.01)}
        append(store, columns, again, times(800, 100), Source(RUN, "s2", rank, "node1"))
    gpu = {"gpu/utilization_ratio": np.linspace(0, 1, 11)}
    of = Source(RUN, "s1", None, "node1", "gpu0", "seconds")
    append(store, gpu, np.zeros(11), times(11, 0, 1.0) - NS, of)
    return store


def header_and_columns(content: bytes):
    """What the binary format holds: the header, and for each series its columns by name."""
    length = int.from_bytes(content[:4], "little")
    assert (4 + length) % 8 == 0
    header = json.loads(content[4 : 4 + length])
    numbers = np.frombuffer(content[4 + length :], "<f8")
    columns_of_series, at = [], 0
    for series in header["series"]:
        columns = {}
        for name in header["columns"]:
            columns[name] = numbers[at : at + series["length"]]
            at += series["length"]
        columns_of_series.append(columns)
    assert at == len(numbers)
    return header, columns_of_series
